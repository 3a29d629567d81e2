// SPDX-License-Identifier: MIT

package durable

// A view is a task as a question finds it.
type view struct {
	rec      *record
	running  bool
	node     string // that holds it; empty if none does
	revision int64  // of the engine; 0 on a store
}

func (v view) state(now int64) State {
	if v.running {
		return Running
	}
	return v.rec.state(now)
}

func (v view) info(now int64) Info {
	i := v.rec.info(now)
	i.State, i.Node = v.state(now), v.node
	return i
}

// A stretch is a part of one of the orders in which the tasks are kept.
type stretch struct {
	order order
	after Position // byDue: begins after it,
	until int64    // and ends with what is due then
	from  string   // the others: begins with the first key that is not less
}

type order uint8

const (
	byDue     order = iota // by due time and key
	byKey                  // by key
	byFailing              // of those of which an attempt has failed, by key
	byRunning              // of those that are running, by key
)
