// SPDX-License-Identifier: MIT

package orders

import (
	"cmp"
	"slices"
	"sync"
)

// A ledger records the location of every unit of the stock. It is safe for concurrent use.
type ledger struct {
	stock func(sku string) int // returns the number of units at the start

	mu    sync.Mutex // protects the field below
	items map[string]*item
}

// An item is the stock of one SKU.
type item struct {
	sku string

	mu      sync.Mutex // protects the field below
	account account
}

// An account counts units of stock: the number at the start, and the number in each place now.
type account struct {
	start, sold, shelf, held int
}

// balances reports whether every unit is in exactly one place.
func (a account) balances() bool {
	return a.start == a.sold+a.shelf+a.held && a.sold >= 0 && a.shelf >= 0 && a.held >= 0
}

func (a account) plus(b account) account {
	return account{a.start + b.start, a.sold + b.sold, a.shelf + b.shelf, a.held + b.held}
}

// newLedger returns an empty ledger. The first lookup of a SKU adds the SKU, with the number of units that stock
// returns.
func newLedger(stock func(sku string) int) *ledger {
	return &ledger{stock: stock, items: make(map[string]*item)}
}

// item returns the stock of the SKU.
func (l *ledger) item(sku string) *item {
	l.mu.Lock()
	defer l.mu.Unlock()
	it := l.items[sku]
	if it == nil {
		units := l.stock(sku)
		it = &item{sku: sku, account: account{start: units, shelf: units}}
		l.items[sku] = it
	}
	return it
}

// hold takes n units off the shelf for an order, and reports whether there were enough. If there were not, it takes
// none.
func (it *item) hold(n int) bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	if n > it.account.shelf {
		return false
	}
	it.account.shelf -= n
	it.account.held += n
	return true
}

// sell ships n held units.
func (it *item) sell(n int) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.account.held -= n
	it.account.sold += n
}

// giveBack puts n held units back on the shelf.
func (it *item) giveBack(n int) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.account.held -= n
	it.account.shelf += n
}

// A row is the account of one SKU.
type row struct {
	sku string
	account
}

// rows returns the accounts of all SKUs, starting with the SKU of which the most units have left the shelf.
func (l *ledger) rows() []row {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := make([]row, 0, len(l.items))
	for _, it := range l.items {
		it.mu.Lock()
		rows = append(rows, row{it.sku, it.account})
		it.mu.Unlock()
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.start-b.shelf, a.start-a.shelf), cmp.Compare(a.sku, b.sku))
	})
	return rows
}
