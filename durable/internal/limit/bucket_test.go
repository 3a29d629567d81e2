// SPDX-License-Identifier: MIT

package limit

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever other nodes each node sees, the shares of the nodes that take part add up to at most the whole. If all see
// the same nodes, they add up to the whole.
func TestPart_sum(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		takers, others, n := 1+draw.IntN(6), draw.IntN(6), 1+draw.IntN(20)
		l := Bound{Rate: 1 + draw.IntN(50), Per: time.Second, Burst: n}
		takes := make([]bool, takers+others) // by rank
		for _, i := range draw.Perm(len(takes))[:takers] {
			takes[i] = true
		}
		same := draw.IntN(2) == 0
		sum, burst, rate, rank := 0, 0, 0.0, 0
		for i := range takes {
			if !takes[i] {
				continue
			}
			p := Part{rank, takers}
			rank++
			for j := range takes {
				if !same && !takes[j] && draw.IntN(2) == 0 {
					if p.Nodes++; j < i {
						p.Rank++
					}
				}
			}
			sum += p.of(n)
			if b := newBucket(l, p, 0); b.holds > 0 {
				burst += b.holds
				rate += float64(time.Second) / float64(b.each)
			}
		}
		if sum > n || burst > n || rate > 1.000001*float64(l.Rate) || same && (sum < n || rate < 0.999*float64(l.Rate)) {
			t.Fatalf("%d of %d, bursts of %d, rate %v of %d; %v, %v", sum, n, burst, rate, l.Rate, takes, same)
		}
	}
}
