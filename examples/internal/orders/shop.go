// SPDX-License-Identifier: MIT

package orders

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A shop holds stock for orders until they are paid, but no longer than a window. Each accepted order has one task in
// the wheel. The task's key is the order's ID, and the task is due when the window ends.
//
// The wheel decides between a payment and the end of the window. Either RemoveTask removes the task and the job never
// runs, or RemoveTask does not find the task because the job has begun. The units of an order are therefore moved
// exactly once, by either the payment or the job. The shop needs no lock and no separate state for an order.
type shop struct {
	wheel  *timewheel.TimeWheel
	ledger *ledger
	window time.Duration // in real time

	tally tally
	open  atomic.Int64  // number of orders whose stock is held, plus one until the shop closes
	idle  chan struct{} // closed when the shop is closed and no orders are left
}

// A tally counts orders.
type tally struct {
	created, refused, paid, givenBack, paidLate atomic.Int64
}

// A hold is the stock held for one accepted order.
type hold struct {
	key      string
	item     *item
	quantity int
	paidAt   time.Duration // payment time on the orders' clock, used by the feeder
}

func newShop(wheel *timewheel.TimeWheel, ledger *ledger, window time.Duration) *shop {
	s := &shop{wheel: wheel, ledger: ledger, window: window, idle: make(chan struct{})}
	s.open.Store(1)
	return s
}

// place accepts an order and holds its stock. If there is not enough stock, it refuses the order and returns nil.
func (s *shop) place(o order) (*hold, error) {
	h := &hold{key: o.id, item: s.ledger.item(o.sku), quantity: o.quantity}
	if !h.item.hold(h.quantity) {
		s.tally.refused.Add(1)
		return nil, nil
	}
	s.open.Add(1)
	err := s.wheel.AddTask(&timewheel.Task{
		Key:      h.key,
		Interval: s.window,
		Job:      func(*timewheel.Task) { s.expire(h) },
	})
	if err != nil {
		h.item.giveBack(h.quantity)
		s.leave()
		return nil, fmt.Errorf("accepting order %s: %w", o.id, err)
	}
	s.tally.created.Add(1)
	return h, nil
}

// pay records the payment for an order. If the order's task has begun, the payment is too late.
func (s *shop) pay(h *hold) error {
	switch err := s.wheel.RemoveTask(h.key); {
	case errors.Is(err, timewheel.ErrTaskKeyNotFound):
		s.tally.paidLate.Add(1)
		return nil
	case err != nil:
		return fmt.Errorf("payment of order %s: %w", h.key, err)
	}
	h.item.sell(h.quantity)
	s.tally.paid.Add(1)
	s.leave()
	return nil
}

// expire is the job of an order's task. It runs if the order was not paid within the window.
func (s *shop) expire(h *hold) {
	h.item.giveBack(h.quantity)
	s.tally.givenBack.Add(1)
	s.leave()
}

// close marks the end of the orders.
func (s *shop) close() { s.leave() }

func (s *shop) leave() {
	if s.open.Add(-1) == 0 {
		close(s.idle)
	}
}
