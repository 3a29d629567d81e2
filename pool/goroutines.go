// SPDX-License-Identifier: MIT

package pool

import "github.com/panjf2000/ants/v2"

// goroutines are those of an ants pool, which is there only while it is needed. The pool's lock guards it.
//
// The ants pool is without a limit: the bound is the pool's own, kept under its lock. ants counts a worker
// until it has gone back, a moment after its last job has ended, and would refuse a job for which there is
// room.
type goroutines struct{ ants *ants.Pool }

func (g *goroutines) start(work func()) {
	if g.ants == nil {
		// A pool without a limit and with no option set has nothing that it could refuse.
		g.ants, _ = ants.NewPool(-1)
	}
	if err := g.ants.Submit(work); err != nil {
		go work() // ants refuses when it is full or closed, and this one is neither
	}
}

// release lets those that are idle end now, and those that work when they are done.
func (g *goroutines) release() {
	if g.ants != nil {
		g.ants.Release()
		g.ants = nil
	}
}
