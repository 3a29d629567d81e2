// SPDX-License-Identifier: MIT

package orders

import (
	"testing"
	"time"
)

// sale returns the orders of a sale.
func sale(t *testing.T, n int, seed uint64) []order {
	t.Helper()
	var all []order
	for o, err := range newGenerator(n, seed).orders() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func TestGenerator_sameSeed_sameSale(t *testing.T) {
	a, b, other := sale(t, 500, 7), sale(t, 500, 7), sale(t, 500, 8)
	equal := 0
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("order %d is %+v, and %+v the second time", i, a[i], b[i])
		}
		if a[i].at.Equal(other[i].at) {
			equal++
		}
	}
	if equal > 0 {
		t.Errorf("%d orders of 500 come at the same time with another seed", equal)
	}
	if x, y := newGenerator(500, 7), newGenerator(500, 7); x.stock[x.skus[0]] != y.stock[y.skus[0]] {
		t.Error("the stock is another the second time")
	}
}

func TestGenerator_makesSoundOrders(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		ids := make(map[string]bool)
		last := saleOpens
		for _, o := range sale(t, n, 1) {
			line, err := o.appendLine(nil)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := parseOrder(line); err != nil || !same(again, o) {
				t.Fatalf("order %+v is %+v, %v when it is read", o, again, err)
			}
			if ids[o.id] || o.at.Before(last) {
				t.Fatalf("order %+v comes twice, or too early", o)
			}
			ids[o.id], last = true, o.at
		}
		if len(ids) != n {
			t.Errorf("got %d orders, want %d", len(ids), n)
		}
	}
}

func TestGenerator_makesTheSaleItPromises(t *testing.T) {
	const n = 50_000
	var inRush, paid, inTime int
	skus := make(map[string]int)
	g := newGenerator(n, 1)
	for _, o := range sale(t, n, 1) {
		if o.at.Sub(saleOpens) < rush {
			inRush++
		}
		if o.paid {
			paid++
		}
		if o.paid && o.paidAt.Sub(o.at) < 30*time.Minute {
			inTime++
		}
		skus[o.sku]++
	}
	for _, c := range []struct {
		what         string
		n, low, high int
	}{
		{"in the rush", inRush, 740, 760},
		{"paid", paid, 780, 800},
		{"paid within half an hour", inTime, 740, 770},
		{"of the most wanted SKU", skus[g.skus[0]], 120, 160},
		{"of the least wanted SKU", skus[g.skus[len(g.skus)-1]], 8, 16},
	} {
		if share := c.n * 1000 / n; share < c.low || share > c.high {
			t.Errorf("of a thousand orders %d are %s, want %d to %d", share, c.what, c.low, c.high)
		}
	}
}

func TestGenerator_isLazy(t *testing.T) {
	seen := 0
	for range newGenerator(1<<30, 1).orders() {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("got %d orders", seen)
	}
}
