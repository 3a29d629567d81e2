// SPDX-License-Identifier: MIT

package orders

import (
	"container/heap"
	"context"
	"time"
)

// slack is how long a task may still be live after its due time.
const slack = 100 * time.Millisecond

// A feeder places orders in the shop and makes their payments, each at its time. Orders arrive one at a time. The
// payments for accepted orders wait in a heap. Together they form one stream in chronological order.
//
// Orders keep the sequence of the input: an order that is older than its predecessor is placed at the time of the
// predecessor. A feeder that is late because the machine is slow catches up and drops nothing. The window of an order
// begins when the order actually reaches the shop. The feeder skips quiet periods without orders, payments and tasks.
type feeder struct {
	shop *shop
	pace pace
	in   <-chan order // nil after the last order

	next     order         // the next order, if waits is set
	nextAt   time.Duration // time of the next order on the orders' clock
	waits    bool
	payments payments
	lastDue  time.Time // due time of the last order's task

	began, ended time.Time     // when the first and the last order reached the shop
	lag          time.Duration // maximum delay of an order or a payment
}

// run feeds the shop until there are no further orders and payments. It returns the error of ctx if ctx is done first.
func (f *feeder) run(ctx context.Context) error {
	for f.in != nil || f.waits || len(f.payments) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step reads the next order if none is waiting. Otherwise it places the waiting order or makes a payment, whichever
// comes first.
func (f *feeder) step(ctx context.Context) error {
	if !f.waits && f.in != nil {
		paymentFirst, err := f.takeIn(ctx)
		if err != nil || !paymentFirst {
			return err
		}
		return f.pay()
	}
	if len(f.payments) > 0 && (!f.waits || f.payments[0].paidAt <= f.nextAt) {
		if err := f.waitUntil(ctx, f.payments[0].paidAt); err != nil {
			return err
		}
		return f.pay()
	}
	if err := f.waitUntil(ctx, f.nextAt); err != nil {
		return err
	}
	return f.place()
}

// takeIn reads the next order, or detects the end of the orders. It reports whether the next payment was due first.
func (f *feeder) takeIn(ctx context.Context) (bool, error) {
	select {
	case o, ok := <-f.in:
		f.cameIn(o, ok)
		return false, nil
	default:
	}
	var payment <-chan time.Time
	if len(f.payments) > 0 {
		payment = time.After(time.Until(f.pace.real(f.payments[0].paidAt)))
	}
	select {
	case o, ok := <-f.in:
		f.cameIn(o, ok)
		return false, nil
	case <-payment:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (f *feeder) cameIn(o order, ok bool) {
	if !ok {
		f.in = nil
		return
	}
	if f.began.IsZero() {
		f.began = time.Now()
		f.ended, f.lastDue = f.began, f.began
		f.pace.begin(o.at, f.began)
	}
	f.next, f.nextAt, f.waits = o, max(f.nextAt, f.pace.offset(o.at)), true
}

// waitUntil waits until offset on the orders' clock. If nothing can happen before that time, it skips ahead.
func (f *feeder) waitUntil(ctx context.Context, offset time.Duration) error {
	now, at := time.Now(), f.pace.real(offset)
	quiet := f.lastDue.Add(slack)
	if quiet.Before(now) {
		quiet = now
	}
	if at.After(quiet) {
		f.pace.skip(at, quiet)
		at = quiet
	}
	if ahead := at.Sub(now); ahead > 0 {
		select {
		case <-time.After(ahead):
		case <-ctx.Done():
			return ctx.Err()
		}
		now = time.Now()
	}
	f.lag = max(f.lag, now.Sub(at))
	return nil
}

// place places the next order in the shop.
func (f *feeder) place() error {
	h, err := f.shop.place(f.next)
	if err != nil {
		return err
	}
	f.waits, f.ended = false, time.Now()
	if h == nil {
		return nil
	}
	f.lastDue = f.ended.Add(f.shop.window)
	if f.next.paid {
		h.paidAt = max(f.nextAt, f.pace.offset(f.next.paidAt))
		heap.Push(&f.payments, h)
	}
	return nil
}

// pay makes the next payment.
func (f *feeder) pay() error { return f.shop.pay(heap.Pop(&f.payments).(*hold)) }

// payments is a heap of orders, ordered by payment time.
type payments []*hold

func (p payments) Len() int           { return len(p) }
func (p payments) Less(i, j int) bool { return p[i].paidAt < p[j].paidAt }
func (p payments) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push appends a *hold, for package heap.
func (p *payments) Push(h any) { *p = append(*p, h.(*hold)) }

// Pop removes the last *hold, for package heap.
func (p *payments) Pop() any {
	last := len(*p) - 1
	h := (*p)[last]
	(*p)[last] = nil
	*p = (*p)[:last]
	return h
}
