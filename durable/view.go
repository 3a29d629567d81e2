// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A view is a task as a question finds it.
type view struct {
	rec      *record
	running  bool
	started  int64  // when the handler was called that is running, or its start was confirmed; 0 if that is unknown
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
	if v.running && v.started > 0 {
		i.Started = time.Unix(0, v.started)
	}
	return i
}

// A stretch is a part of one of the orders in which the tasks are kept.
type stretch struct {
	order order
	after engine.Position // byDue: begins after it,
	until int64           // and ends with what is due then
	from  string          // the others: begins with the first key that is not less
}

type order uint8

const (
	byDue     order = iota // by due time and key
	byKey                  // by key
	byFailing              // of those of which an attempt has failed, by key
	byRunning              // of those that are running, by key
)
