// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Tasks is a scheduler whose tasks survive the process. Package tasks provides an implementation.
type Tasks interface {
	Start() error
	Add(id string, delay time.Duration) error // does nothing if the task already exists
	Remove(id string) error                   // does nothing if the task does not exist or has begun
	Len() int
	Counts() (added, removed, run, parked uint64) // since this process started
	Close(ctx context.Context) error
}

// An Open opens the tasks in a directory. After Start, each task calls expire at least once when it is due.
type Open func(dir string, expire func(id string) error) (Tasks, error)

// A keptShop is a shop whose orders survive the process. Each order that holds stock has a task in a durable scheduler,
// and each change to an order is a step in a book.
//
// The book decides between a payment and the end of the window: the step that is written first takes effect. A task may
// therefore run twice, or after a payment, without harm. After a crash between two writes, the tasks are corrected to
// match the book. A held order without a task gets one, and a task whose order is no longer held does nothing.
type keptShop struct {
	tasks  Tasks
	book   *book
	ledger *ledger
	window time.Duration // in real time

	tally  tally
	lives  int       // number of times that the book was opened
	latest time.Time // time of the latest order in the book, on the orders' clock
	open   atomic.Int64
	idle   chan struct{}

	failed chan error // the first error

	mu     sync.Mutex // protects the field below
	orders map[string]*keptOrder
}

// A keptOrder is an order in the book.
type keptOrder struct {
	item     *item
	quantity int

	mu sync.Mutex // held from a decision until its step is written
	is string
}

func openKept(open Open, dir string, ledger *ledger, window time.Duration) (*keptShop, error) {
	s := &keptShop{
		ledger: ledger, window: window, orders: make(map[string]*keptOrder), idle: make(chan struct{}), lives: 1,
		failed: make(chan error, 1),
	}
	s.open.Store(1)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory: %w", err)
	}
	tasks, err := open(filepath.Join(dir, "tasks"), s.expire)
	if err != nil {
		return nil, err
	}
	s.tasks = tasks
	if s.book, err = openBook(filepath.Join(dir, "book.jsonl"), s.read); err == nil {
		err = s.book.write(step{Is: isOpened})
	}
	if err == nil {
		err = s.makeGood()
	}
	if err == nil {
		err = tasks.Start()
	}
	if err != nil {
		err = errors.Join(err, tasks.Close(context.Background()))
		if s.book != nil {
			err = errors.Join(err, s.book.close())
		}
		return nil, err
	}
	return s, nil
}

// read applies a step from the book.
func (s *keptShop) read(st step) error {
	if st.Is == isOpened {
		s.lives++
		return nil
	}
	o := s.orders[st.Order]
	switch {
	case st.Is == isRefused && o == nil:
		s.orders[st.Order] = &keptOrder{is: isRefused}
		s.tally.refused.Add(1)
	case st.Is == isHeld && o == nil:
		o = &keptOrder{item: s.ledger.item(st.SKU), quantity: st.Quantity, is: isHeld}
		if !o.item.hold(o.quantity) {
			return fmt.Errorf("order %s holds more than there is; is -stock another?", printable(st.Order))
		}
		s.orders[st.Order] = o
		s.tally.created.Add(1)
		s.open.Add(1)
	case o == nil:
		return fmt.Errorf("order %s is %s and was never held", printable(st.Order), printable(st.Is))
	default:
		if !s.settle(o, st.Is) {
			return fmt.Errorf("order %s is %s after it was %s", printable(st.Order), printable(st.Is), o.is)
		}
	}
	if st.At.After(s.latest) {
		s.latest = st.At
	}
	return nil
}

// makeGood adds the missing tasks of held orders. A task is missing if a crash came between the order's step and its
// task.
func (s *keptShop) makeGood() error {
	for id, o := range s.orders {
		if o.is != isHeld {
			continue
		}
		if err := s.tasks.Add(id, s.window); err != nil {
			return err
		}
	}
	return nil
}

// place accepts or refuses an order. An order that is already in the book keeps its state.
func (s *keptShop) place(o order) error {
	s.mu.Lock()
	if s.orders[o.id] != nil {
		s.mu.Unlock()
		return nil
	}
	kept := &keptOrder{item: s.ledger.item(o.sku), quantity: o.quantity, is: isRefused}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	s.orders[o.id] = kept
	s.mu.Unlock()
	if kept.item.hold(o.quantity) {
		kept.is = isHeld
	}
	st := step{Order: o.id, Is: kept.is, At: o.at}
	if kept.is == isRefused {
		s.tally.refused.Add(1)
		return s.book.write(st)
	}
	s.open.Add(1)
	s.tally.created.Add(1)
	st.SKU, st.Quantity = o.sku, o.quantity
	if err := s.book.write(st); err != nil {
		return err
	}
	return s.tasks.Add(o.id, s.window)
}

// pay records the payment for a placed order.
func (s *keptShop) pay(id string) error {
	paid, err := s.decide(id, isPaid)
	if err != nil {
		return err
	}
	if !paid {
		_, err := s.decide(id, isLate)
		return err
	}
	return s.tasks.Remove(id) // does nothing if the task has begun; the task then detects that the order is paid
}

// expire is the handler for an order's task. It may be called more than once.
func (s *keptShop) expire(id string) error {
	_, err := s.decide(id, isBack)
	if err != nil {
		s.fail(err)
	}
	return err
}

// decide moves an order to the given state, if that is still possible, and reports whether it did.
func (s *keptShop) decide(id, is string) (bool, error) {
	s.mu.Lock()
	o := s.orders[id]
	s.mu.Unlock()
	if o == nil {
		return false, fmt.Errorf("there is a task of order %s, and no such order", printable(id))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.may(is) {
		return false, nil
	}
	if err := s.book.write(step{Order: id, Is: is}); err != nil {
		return false, err
	}
	return s.settle(o, is), nil
}

// may reports whether the order can move to the given state.
func (o *keptOrder) may(is string) bool {
	return o.is == isHeld && (is == isPaid || is == isBack) || o.is == isBack && is == isLate
}

// settle moves an order to a new state, together with its stock. It reports whether that state is allowed.
func (s *keptShop) settle(o *keptOrder, is string) bool {
	if !o.may(is) {
		return false
	}
	o.is = is
	switch is {
	case isLate:
		s.tally.paidLate.Add(1)
		return true
	case isPaid:
		o.item.sell(o.quantity)
		s.tally.paid.Add(1)
	case isBack:
		o.item.giveBack(o.quantity)
		s.tally.givenBack.Add(1)
	}
	s.leave()
	return true
}

// enter prevents the shop from becoming idle until leave is called.
func (s *keptShop) enter() { s.open.Add(1) }

func (s *keptShop) leave() {
	if s.open.Add(-1) == 0 {
		close(s.idle)
	}
}

// fail ends the session with the error, unless the session has already failed.
func (s *keptShop) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// close waits for the running handlers to end and closes the shop.
func (s *keptShop) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return errors.Join(s.tasks.Close(ctx), s.book.close())
}
