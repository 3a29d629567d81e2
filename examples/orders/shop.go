// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A shop holds stock for orders until they are paid, but no longer than its window.
//
// The wheel decides between a payment and the end of the window. Either RemoveTask returns nil and the job never runs,
// or it returns ErrTaskKeyNotFound because the job has begun. So the units of an order are moved exactly once, by the
// payment or by the job, and an order needs neither a state nor a lock of its own.
type shop struct {
	wheel  *timewheel.TimeWheel
	window time.Duration // in real time

	mu       sync.Mutex // protects the fields below, because jobs run next to orders and payments
	accounts [len(products)]account
	tally    tally
	late     []time.Duration // for each run, the time from its due time to its start
}

// An account counts the units of a product: at the start, and in each place now.
type account struct{ start, sold, available, held int }

// A tally counts orders.
type tally struct {
	accepted, refused int
	paid, givenBack   int // of those accepted
	paidLate          int // of those given back
}

// held returns the number of orders that still hold stock.
func (t tally) held() int { return t.accepted - t.paid - t.givenBack }

// place accepts an order: it holds the units and adds the task that gives them back. If there are too few units, it
// refuses the order.
func (s *shop) place(o *order) error {
	if !s.hold(o) {
		return nil
	}
	err := s.wheel.AddTask(&timewheel.Task{
		Key:   o.id,
		Delay: s.window,
		Job:   func(*timewheel.Task) { s.giveBack(o) },
	})
	if err != nil {
		s.giveBack(o)
		return fmt.Errorf("accepting %s: %w", o.id, err)
	}
	o.accepted = true
	return nil
}

// pay records the payment of an order. It comes too late if the order's task has begun.
func (s *shop) pay(o *order) error {
	if !o.accepted {
		return nil
	}
	err := s.wheel.RemoveTask(o.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.accounts[o.product].held -= o.units
		s.accounts[o.product].sold += o.units
		s.tally.paid++
		return nil
	case errors.Is(err, timewheel.ErrTaskKeyNotFound):
		s.tally.paidLate++ // a real shop would refund the payment
		return nil
	}
	return fmt.Errorf("payment of %s: %w", o.id, err)
}

// giveBack is the job of an order's task. It runs if the order was not paid in time.
func (s *shop) giveBack(o *order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[o.product].held -= o.units
	s.accounts[o.product].available += o.units
	s.tally.givenBack++
}

// hold takes the units of an order out of the available stock, or reports that there are too few.
func (s *shop) hold(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.accounts[o.product]
	if a.available < o.units {
		s.tally.refused++
		return false
	}
	a.available -= o.units
	a.held += o.units
	s.tally.accepted++
	return true
}

// observe records how late a run was. The wheel calls it after each run.
func (s *shop) observe(run timewheel.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, run.Started.Sub(run.Due))
}

// String returns the shop's progress.
func (s *shop) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally
	return fmt.Sprintf("%s orders: %s wait for payment, %s paid, %s given back", thousands(t.accepted+t.refused),
		thousands(t.held()), thousands(t.paid), thousands(t.givenBack))
}
