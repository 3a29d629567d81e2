// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// openShop returns a shop with the window and the given number of units of each SKU. Its wheel stops when the
// test ends.
func openShop(t *testing.T, window time.Duration, units int) *shop {
	t.Helper()
	tw := timewheel.NewTimeWheel(time.Millisecond, 512)
	tw.Start()
	t.Cleanup(func() {
		if err := tw.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return newShop(tw, newLedger(stockOf(units)), window)
}

// placed places an order of n units, and fails if it is not accepted.
func placed(t *testing.T, s *shop, id string, n int) *hold {
	t.Helper()
	h, err := s.place(order{id: id, sku: "TEA", quantity: n})
	if err != nil || h == nil {
		t.Fatalf("order %s was not accepted: %v, %v", id, h, err)
	}
	return h
}

func TestShop_keepsTheStockUntilTheWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, time.Second, 10)
		inTime, tooLate := placed(t, s, "in time", 4), placed(t, s, "too late", 6)
		refused := func() bool {
			h, err := s.place(order{id: "another", sku: "TEA", quantity: 6})
			return err == nil && h == nil
		}
		time.Sleep(time.Second - time.Millisecond)
		if !refused() {
			t.Error("stock that is held was sold again")
		}
		if err := s.pay(inTime); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
		if err := s.pay(tooLate); err != nil {
			t.Fatal(err)
		}
		if want := (account{start: 10, sold: 4, shelf: 6}); s.ledger.rows()[0].account != want {
			t.Errorf("got %+v, want %+v", s.ledger.rows()[0].account, want)
		}
		if refused() {
			t.Error("stock that was given back is not sold again")
		}
		s.close()
		<-s.idle
		y := &s.tally
		got := fmt.Sprint(y.created.Load(), y.refused.Load(), y.paid.Load(), y.givenBack.Load(), y.paidLate.Load())
		if want := "3 1 1 2 1"; got != want {
			t.Errorf("got %s, want %s: created, refused, paid, given back, paid late", got, want)
		}
	})
}

func TestShop_orderThatTheWheelRefuses_holdsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, time.Second, 10)
		placed(t, s, "A-1", 1)
		_, err := s.place(order{id: "A-1", sku: "TEA", quantity: 1})
		if !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
			t.Errorf("got %v for an id that is in use", err)
		}
		s.wheel.Stop()
		_, err = s.place(order{id: "A-2", sku: "TEA", quantity: 1})
		if !errors.Is(err, timewheel.ErrStopped) {
			t.Errorf("got %v from a wheel that is stopped", err)
		}
		if want := (account{start: 10, shelf: 9, held: 1}); s.ledger.rows()[0].account != want {
			t.Errorf("got %+v, want %+v", s.ledger.rows()[0].account, want)
		}
		if s.tally.created.Load() != 1 {
			t.Errorf("%d orders were created, want 1", s.tally.created.Load())
		}
	})
}

// The orders of this test are paid just when their window ends: for each order either the payment or the end of the
// window must win, never both.
func TestShop_paymentsThatRaceTheWindow_moveEachUnitOnce(t *testing.T) {
	const customers, orders = 4, 500
	s := openShop(t, 2*time.Millisecond, customers*orders*2)
	var paid atomic.Int64
	var wg sync.WaitGroup
	for c := range customers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			var open []*hold
			for i := range orders {
				open = append(open, placed(t, s, fmt.Sprintf("A-%d-%d", c, i), 2))
				for len(open) > random.IntN(100) {
					if err := s.pay(open[0]); err != nil {
						t.Error(err)
					}
					paid.Add(1)
					open = open[1:]
				}
			}
		})
	}
	wg.Wait()
	s.close()
	<-s.idle
	y := &s.tally
	if y.paid.Load()+y.givenBack.Load() != customers*orders || y.paid.Load()+y.paidLate.Load() != paid.Load() {
		t.Errorf("of %d orders %d are paid and %d given back; of %d payments %d came too late",
			customers*orders, y.paid.Load(), y.givenBack.Load(), paid.Load(), y.paidLate.Load())
	}
	sold := int(y.paid.Load()) * 2
	want := account{start: customers * orders * 2, sold: sold, shelf: customers*orders*2 - sold}
	if got := s.ledger.rows()[0].account; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
