// SPDX-License-Identifier: MIT

package orders

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// These constants describe the generated sale. Three quarters of the orders arrive during the rush, the first quarter
// of an hour. About eight in ten customers pay, half of them within nine minutes. One in thirty pays after more than
// half an hour, when by default the goods are back on the shelf.
const (
	rush, rest  = 15 * time.Minute, 30 * time.Minute
	rushShare   = 0.75
	payShare    = 0.79
	paySoonest  = 15 * time.Second
	payMedian   = 9 * time.Minute
	paySigma    = 0.7  // standard deviation of the logarithm of the delay
	skew        = 0.7  // demand for the i-th product is proportional to i^-skew
	leastStock  = 0.82 // minimum stock, as a share of the expected demand
	mostStock   = 1.12
	span        = rush + rest
	numberWidth = 7 // number of digits in an order ID
)

// saleOpens is the time from which orders may arrive. It is a fixed date, so that the same seed generates the same
// orders.
var saleOpens = time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)

// quantities is the distribution of units per order. Each share is the fraction of orders with that number of units.
var quantities = [...]struct {
	units int
	share float64
}{{1, 0.70}, {2, 0.20}, {3, 0.06}, {4, 0.03}, {6, 0.01}}

// A generator generates the orders of a sale. The same number of orders and the same seed generate the same sale.
type generator struct {
	n    int
	seed uint64

	skus  []string
	upTo  []float64      // cumulative share of orders, up to and including each SKU
	stock map[string]int // units of each SKU at the start
}

// newGenerator returns a generator for n orders.
func newGenerator(n int, seed uint64) *generator {
	g := &generator{n: n, seed: seed, stock: make(map[string]int)}
	for _, product := range []string{"TEE", "POLO", "SHIRT", "HOODIE", "JACKET", "SHORTS", "JEANS", "CAP"} {
		for _, size := range []string{"S", "M", "L", "XL"} {
			g.skus = append(g.skus, product+"-"+size)
		}
	}
	random := g.random(1)
	random.Shuffle(len(g.skus), func(i, j int) { g.skus[i], g.skus[j] = g.skus[j], g.skus[i] })
	var all, perOrder float64
	for i := range g.skus {
		all += math.Pow(float64(i+1), -skew)
		g.upTo = append(g.upTo, all)
	}
	for _, q := range quantities {
		perOrder += float64(q.units) * q.share
	}
	before := 0.0
	for i, sku := range g.skus {
		g.upTo[i] /= all
		wanted := float64(n) * (g.upTo[i] - before) * perOrder
		before = g.upTo[i]
		// The stock of a SKU is chosen without knowledge of the actual demand. Returned units are sold again, so
		// slightly less stock than the demand is enough. If a SKU has even less, some customers are refused: about one
		// in a hundred overall.
		g.stock[sku] = int(math.Ceil(wanted * (leastStock + (mostStock-leastStock)*random.Float64())))
	}
	return g
}

func (g *generator) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(g.seed, stream)) }

// orders generates the orders one at a time, in chronological order. It yields no errors.
func (g *generator) orders() iter.Seq2[order, error] {
	return func(yield func(order, error) bool) {
		random := g.random(2)
		inRush := float64(g.n) * rushShare
		gaps := [2]float64{float64(rush) / inRush, float64(rest) / (float64(g.n) - inRush)}
		at := saleOpens
		for i := range g.n {
			gap := gaps[0]
			if at.Sub(saleOpens) >= rush {
				gap = gaps[1]
			}
			at = at.Add(time.Duration(random.ExpFloat64() * gap))
			o := order{
				id:       fmt.Sprintf("A-%0*d", numberWidth, i+1),
				sku:      g.skus[sort.SearchFloat64s(g.upTo[:len(g.upTo)-1], random.Float64())],
				quantity: g.quantity(random),
				at:       at,
				paid:     random.Float64() < payShare,
			}
			if o.paid {
				o.paidAt = at.Add(paySoonest + time.Duration(float64(payMedian)*math.Exp(paySigma*random.NormFloat64())))
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (g *generator) quantity(random *rand.Rand) int {
	r := random.Float64()
	for _, q := range quantities {
		if r -= q.share; r < 0 {
			return q.units
		}
	}
	return 1
}
