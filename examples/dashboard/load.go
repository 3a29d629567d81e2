// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	orders   = 60_000          // number of open orders at the start
	window   = 2 * time.Minute // time after which the stock of an unpaid order is returned
	sale     = 15 * time.Second
	sessions = 20_000
	idle     = time.Minute // time without a touch after which a session ends
)

// A shop is a simulated load. Orders arrive in waves, most of them are paid in time, and the stock of the unpaid orders
// is returned. Repeating tasks count the shelves, and from time to time there is a sale.
type shop struct {
	tw *timewheel.TimeWheel
	n  int // number of orders so far
}

func openShop(tw *timewheel.TimeWheel) *shop {
	s := &shop{tw: tw}
	for range orders {
		s.order(time.Second + rand.N(window))
	}
	for i := range 200 {
		_ = tw.AddTask(&timewheel.Task{
			Key: fmt.Sprintf("shelf-%03d", i), Interval: time.Second + rand.N(4*time.Second), Times: timewheel.Forever, Job: count,
		})
	}
	for i, report := range []string{"takings", "returns", "stock"} {
		_ = tw.AddTask(&timewheel.Task{
			Key: "report-" + report, Delay: time.Duration(2+3*i) * time.Second, Interval: 40 * time.Second,
			Times: timewheel.Forever, Job: write,
		})
	}
	_ = tw.AddTask(&timewheel.Task{Key: "mirror", Interval: 300 * time.Millisecond, Times: timewheel.Forever,
		Job: timewheel.SkipIfRunning(count)})
	return s
}

func (s *shop) order(due time.Duration) {
	s.n++
	_ = s.tw.AddTask(&timewheel.Task{Key: fmt.Sprintf("order-%07d", s.n), Interval: due, Job: giveBack})
}

// sell adds and pays orders until ctx is done.
func (s *shop) sell(ctx context.Context) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	began, lastSale := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		wave := int(60 * (1 + math.Sin(2*math.Pi*time.Since(began).Seconds()/40)))
		for range wave {
			s.order(window/2 + rand.N(window/2))
		}
		for range wave * 3 / 4 { // pay these orders
			_ = s.tw.RemoveTask(fmt.Sprintf("order-%07d", max(s.n-rand.IntN(orders), 1)))
		}
		if time.Since(lastSale) > sale {
			lastSale = time.Now()
			for range 1000 {
				s.order(2 * time.Second) // the offer ends for all of these orders at the same instant
			}
		}
	}
}

// A server has sessions. A touch postpones the end of a session, and a session ends after a minute without a touch.
type server struct {
	tw *timewheel.TimeWheel
	n  int // number of sessions so far
}

func openServer(tw *timewheel.TimeWheel) *server {
	s := &server{tw: tw}
	for range sessions {
		s.begin()
	}
	return s
}

func sessionKey(i int) string { return fmt.Sprintf("session/%08x", uint32(i)*2654435761) }

func (s *server) begin() {
	_ = s.tw.AddTask(&timewheel.Task{
		Key: sessionKey(s.n), Delay: rand.N(idle) + time.Second, Interval: idle, Job: func(*timewheel.Task) {},
	})
	s.n++
}

// serve touches sessions until ctx is done.
func (s *server) serve(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for range 40 {
			if err := s.tw.Reschedule(sessionKey(s.n-1-rand.IntN(sessions)), idle); err != nil {
				s.begin() // the session has ended, so another begins
			}
		}
	}
}

// giveBack returns the stock of an order. It takes a few milliseconds, and occasionally much longer.
func giveBack(*timewheel.Task) {
	if rand.IntN(1000) == 0 {
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(rand.N(4 * time.Millisecond))
}

// count counts a shelf.
func count(*timewheel.Task) { time.Sleep(rand.N(30 * time.Millisecond)) }

// write writes a report, which takes 5 to 20 s unless the wheel stops.
func write(task *timewheel.Task) {
	select {
	case <-time.After(5*time.Second + rand.N(15*time.Second)):
	case <-task.Context().Done():
	}
}
