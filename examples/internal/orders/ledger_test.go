// SPDX-License-Identifier: MIT

package orders

import (
	"sync"
	"sync/atomic"
	"testing"
)

// stockOf returns the same stock for each SKU.
func stockOf(units int) func(string) int { return func(string) int { return units } }

func TestLedger_movesUnits(t *testing.T) {
	l := newLedger(stockOf(10))
	tea, cup := l.item("TEA"), l.item("CUP")
	if !tea.hold(4) || !tea.hold(6) || tea.hold(1) || !cup.hold(1) {
		t.Fatal("of 10 units the first 10 can be held, and no more")
	}
	tea.sell(4)
	tea.giveBack(6)
	want := []row{{"TEA", account{start: 10, sold: 4, shelf: 6}}, {"CUP", account{start: 10, shelf: 9, held: 1}}}
	rows := l.rows()
	if len(rows) != 2 || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("got %+v, want %+v", rows, want)
	}
	if l.item("TEA") != tea {
		t.Error("the SKU has two accounts")
	}
}

func TestLedger_refusedHold_takesNothing(t *testing.T) {
	it := newLedger(stockOf(10)).item("TEA")
	if it.hold(11) || !it.hold(10) {
		t.Error("a hold that was refused has taken something")
	}
}

func TestAccount_balances(t *testing.T) {
	for _, c := range []struct {
		account account
		want    bool
	}{
		{account{}, true},
		{account{start: 6, sold: 1, shelf: 2, held: 3}, true},
		{account{start: 7, sold: 1, shelf: 2, held: 3}, false},
		{account{start: 5, sold: 1, shelf: 2, held: 3}, false},
		{account{start: 6, sold: 7, shelf: 2, held: -3}, false},
		{account{start: 6, sold: 7, shelf: -2, held: 1}, false},
		{account{start: 6, sold: -1, shelf: 2, held: 5}, false},
	} {
		if got := c.account.balances(); got != c.want {
			t.Errorf("%+v: got %v", c.account, got)
		}
	}
}

func TestLedger_concurrentOrders_neverOversell(t *testing.T) {
	const units, customers, orders = 100, 8, 2000
	l := newLedger(stockOf(units))
	var out, sold atomic.Int64 // units that are off the shelf, and the sold ones among them
	var wg sync.WaitGroup
	for c := range customers {
		wg.Go(func() {
			for i := range orders {
				it, n := l.item("TEA"), 1+(c+i)%7
				if !it.hold(n) {
					continue
				}
				if now := out.Add(int64(n)); now > units {
					t.Errorf("%d units are held or sold, of %d", now, units)
				}
				if i%100 == 0 {
					sold.Add(int64(n))
					it.sell(n)
					continue
				}
				out.Add(int64(-n))
				it.giveBack(n)
			}
		})
	}
	wg.Wait()
	want := account{start: units, sold: int(sold.Load()), shelf: units - int(sold.Load())}
	if got := l.rows()[0].account; got != want || !got.balances() {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
