// SPDX-License-Identifier: MIT

package timewheeltest_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/timewheel/timewheeltest"
)

// orders is the code under test: an order that is not paid within half an hour gets two reminders, and is then
// released.
type orders struct {
	tw        *timewheel.TimeWheel
	reminders atomic.Int32 // atomic, because runs are not on the test's goroutine
	released  atomic.Bool
}

func (o *orders) place(key string) error {
	remind := func(*timewheel.Task) { o.reminders.Add(1) }
	release := func(*timewheel.Task) { o.released.Store(true) }
	return errors.Join(
		o.tw.AddTask(&timewheel.Task{Key: key + "/remind", Interval: 10 * time.Minute, Times: 2, Job: remind}),
		o.tw.AddTask(&timewheel.Task{Key: key + "/release", Delay: 30 * time.Minute, Job: release}))
}

// In a test file, testOrder would be func TestOrder_thatIsNotPaid_isReleased(t *testing.T).
func testOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &orders{tw: timewheel.NewTimeWheel(time.Second, 60)}
		o.tw.Start()
		defer o.tw.Stop()
		if err := o.place("order-1"); err != nil {
			t.Fatal(err)
		}
		next := timewheeltest.Next(o.tw)
		if len(next) != 2 || next[0].Key != "order-1/remind" || next[1].Key != "order-1/release" {
			t.Errorf("planned are %v", next)
		}

		info, ok := timewheeltest.RunNext(o.tw) // at whatever time it is due
		if !ok || info.Key != "order-1/remind" || o.reminders.Load() != 1 {
			t.Errorf("%v has run, and there were %d reminders", info.Key, o.reminders.Load())
		}
		timewheeltest.Advance(19 * time.Minute)
		if o.reminders.Load() != 2 || o.released.Load() {
			t.Errorf("there were %d reminders, and the order is released: %v", o.reminders.Load(), o.released.Load())
		}
		if err := o.tw.Reschedule("order-1/release", 0); err != nil { // now
			t.Error(err)
		}
		timewheeltest.RunDue(o.tw)
		if !o.released.Load() {
			t.Error("the order is not released")
		}
		if _, ok := timewheeltest.RunNext(o.tw); ok {
			t.Error("something is left to run")
		}
	})
}

// A test that spans half an hour and takes microseconds.
func Example() {
	var t *testing.T // the argument of the test function
	testOrder(t)
}
