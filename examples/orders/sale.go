// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Three of four orders arrive in the rush, the first third of the sale. Four of five customers want to pay, after 11
// minutes on average. About one in twenty does so too late.
const (
	saleLength = 45 * time.Minute
	rushLength = 15 * time.Minute
	meanDelay  = 11 * time.Minute
	maxUnits   = 3    // of an order
	stockShare = 0.86 // of all units that are ordered: slightly too few, so some orders are refused
)

var products = [...]string{"shirts", "jackets", "jeans", "socks", "shoes", "hats", "gloves", "scarves"}

// An order is what a customer wants.
type order struct {
	id       string
	product  int // index in products
	units    int
	accepted bool // set by the shop
}

// An event is an order that arrives, or its payment.
type event struct {
	at      time.Duration // since the start of the sale, in the shop's time
	order   *order
	payment bool
}

// newSale makes up n orders. It returns their events, in the order of their times, and the stock of each product. The
// same numbers make the same sale.
func newSale(n int, seed uint64) (events []event, stock [len(products)]int) {
	random := rand.New(rand.NewPCG(seed, 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Float64() * float64(d)) }
	arrivals := make([]time.Duration, n)
	for i := range arrivals {
		if random.IntN(4) > 0 {
			arrivals[i] = upTo(rushLength)
		} else {
			arrivals[i] = rushLength + upTo(saleLength-rushLength)
		}
	}
	slices.Sort(arrivals)

	orders := make([]order, n)
	events = make([]event, 0, 2*n)
	for i, at := range arrivals {
		r := random.Float64()
		o := &orders[i]
		o.id = fmt.Sprintf("order-%07d", i+1)
		o.product = int(r * r * float64(len(products))) // the square makes the first products the most popular ones
		o.units = 1 + random.IntN(maxUnits)
		stock[o.product] += o.units
		events = append(events, event{at: at, order: o})
		payAt := at + time.Duration(random.ExpFloat64()*float64(meanDelay))
		if random.IntN(5) > 0 && payAt < saleLength+window { // no later than the last task
			events = append(events, event{at: payAt, order: o, payment: true})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for i := range stock {
		stock[i] = int(float64(stock[i]) * stockShare)
	}
	return events, stock
}
