// SPDX-License-Identifier: MIT

// Package histories checks the verbs of two nodes of a cluster for linearizability, while answers are lost,
// calls fail and are delayed, and connections are cut.
//
// A history contains the operations of goroutines on both nodes on a few keys, and the runs of the tasks. It is right
// if one scheduler could have executed all operations in some order, each between its call and its return (Herlihy and
// Wing, "Linearizability", TOPLAS 1990). porcupine looks for that order. A verb whose outcome is unknown never returns:
// it may take effect at any later time, or after the end of the history, which means never.
package histories

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/seed581295f1/timewheel/durable"
)

type verb string

const (
	add        verb = "AddTask"
	set        verb = "SetTask"
	remove     verb = "RemoveTask"
	reschedule verb = "Reschedule"
	pause      verb = "Pause"
	resume     verb = "Resume"
	exist      verb = "Exist"
	get        verb = "Get"

	start verb = "start" // a handler is called: the start was confirmed before
	end   verb = "end"   // a handler has returned nil: the task may advance to its next run at any later time, or never
)

// A call is the input of an operation. No two tasks of a history have the same number.
type call struct {
	verb  verb
	key   string
	task  int
	times int    // of an add or set: the runs; of a start: the remaining runs, including this one
	seq   uint64 // of a start or end
	fence int64  // of a start or end
	began int64  // of a start: when the handler was called
}

// An answer is the output. The task, its times and seq, and whether it is paused, come from a Get.
type answer struct {
	unknown bool
	ok      bool // the verb succeeded, or there is a task
	task    int
	times   int
	seq     uint64
	paused  bool
}

// A state is the state of a key. The fence is at least the greatest fence of its starts, including those of its earlier
// tasks.
type state struct {
	task   int // 0: none
	times  int
	seq    uint64
	paused bool
	fence  int64
}

// step reports whether the operation fits the state, and returns the next state.
func step(s state, c call, a answer) (bool, state) {
	there := s.task != 0
	next, done := s, there
	switch c.verb {
	case add:
		if done = !there; done {
			next = state{task: c.task, times: c.times, fence: s.fence}
		}
	case set:
		done = true
		next = state{task: c.task, times: c.times, fence: s.fence}
	case remove:
		next = state{fence: s.fence}
	case reschedule:
		if there {
			next.seq++
		}
	case pause:
		if there && !s.paused {
			next.paused = true
			next.fence++ // a run in progress no longer counts
		}
	case resume:
		next.paused = false
	case get:
		if a.ok && (s.task != a.task || s.times != a.times || s.seq != a.seq || s.paused != a.paused) {
			return false, s
		}
	case start:
		next.fence = c.fence
		return s.task == c.task && s.seq == c.seq && s.times == c.times && !s.paused && s.fence < c.fence, next
	case end:
		if s.task != c.task || s.seq != c.seq || s.fence != c.fence {
			return true, s // it was moved, replaced or taken over
		}
		if s.times == 1 {
			return true, state{fence: s.fence}
		}
		if next.seq++; s.times != durable.Forever {
			next.times--
		}
		return true, next
	}
	return a.unknown || a.ok == done, next
}

var model = porcupine.Model{
	Partition: func(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := make(map[string][]porcupine.Operation)
		for _, op := range ops {
			key := op.Input.(call).key
			of[key] = append(of[key], op)
		}
		for _, part := range of {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(s, input, output any) (bool, any) { return step(s.(state), input.(call), output.(answer)) },
}

// A history contains the operations, in the order of their calls and returns.
type history struct {
	mu    sync.Mutex // protects below
	time  int64      // calls and returns so far
	at    time.Time  // the time of the last one, and
	first int64      // the number of the first one at that time
	ops   []porcupine.Operation

	virtual bool // time is virtual
}

const never = math.MaxInt64

// now returns the time of a call.
func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookLocked()
	h.time++
	return h.time
}

func (h *history) lookLocked() {
	if now := time.Now(); !now.Equal(h.at) {
		h.at, h.first = now, h.time+1
	}
}

// instant returns the time of the first call or return at the current virtual time. What happens at the same virtual time
// happens in any order.
func (h *history) instant() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookLocked()
	return h.first
}

// note records an operation that has returned.
func (h *history) note(client int, called int64, c call, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookLocked()
	h.time++
	op := porcupine.Operation{ClientId: client, Call: called, Return: h.time, Input: c, Output: a}
	if a.unknown {
		op.Return = never
	}
	h.ops = append(h.ops, op)
}

// checkLimit is the time limit of the checker. It usually takes milliseconds, but minutes for some wrong histories.
const checkLimit = 20 * time.Second

// check looks for the order.
func (h *history) check() porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.virtual && h.beginsLate() {
		return porcupine.Illegal
	}
	return porcupine.CheckOperationsTimeout(model, h.ops, checkLimit)
}

// beginsLate reports whether a run begins after a verb has returned that has ended its task. The model allows that, because
// others see the effect of a verb before it has returned. In real time some time passes between the beginning of a run and
// the first statement of its handler.
func (h *history) beginsLate() bool {
	put := make(map[int]porcupine.Operation) // the verb that has put each task
	var ends, removals []porcupine.Operation
	for _, op := range h.ops {
		switch c, a := op.Input.(call), op.Output.(answer); {
		case a.unknown && c.verb == remove:
			removals = append(removals, op)
		case a.unknown || !a.ok:
		case c.verb == add:
			put[c.task] = op
		case c.verb == set:
			put[c.task] = op
			ends = append(ends, op)
		case c.verb == remove:
			ends, removals = append(ends, op), append(removals, op)
		}
	}
	return slices.ContainsFunc(h.ops, func(run porcupine.Operation) bool {
		c := run.Input.(call)
		by, known := put[c.task]
		removed := func(set porcupine.Operation) bool { // by another verb: that one waits
			return slices.ContainsFunc(removals, func(r porcupine.Operation) bool {
				return r.Input.(call).key == c.key && r.Call > by.Call && r.Call < set.Return
			})
		}
		return c.verb == start && known && slices.ContainsFunc(ends, func(end porcupine.Operation) bool {
			return end.Input.(call).key == c.key && end.Call > by.Return && end.Return < c.began &&
				(end.Input.(call).verb == remove || !removed(end))
		})
	})
}

func (h *history) String() string {
	var b strings.Builder
	for _, op := range h.ops {
		fmt.Fprintf(&b, "%5d %5d  %+v %+v\n", op.Call, op.Return, op.Input, op.Output)
	}
	return strings.ReplaceAll(b.String(), fmt.Sprint(never), "never")
}

// A tally counts the contents of histories.
type tally struct{ histories, operations, unknown, starts int }

// check fails the test if no order explains the history, and counts its contents.
func (n *tally) check(t *testing.T, h *history, repeat string) {
	t.Helper()
	if got := h.check(); got != porcupine.Ok {
		t.Fatalf("%s: this history is %v:\n%v", repeat, got, h)
	}
	n.histories++
	for _, op := range h.ops {
		n.operations++
		switch v := op.Input.(call).verb; {
		case v == start:
			n.starts++
		case v != end && op.Output.(answer).unknown:
			n.unknown++
		}
	}
}

// tame reports whether the histories are too tame to find mistakes: no outcome is unknown, or no run starts.
func (n *tally) tame() bool { return n.unknown == 0 || n.starts == 0 }

// report fails the test if the histories are too tame.
func (n *tally) report(t *testing.T) {
	t.Logf("%+v", *n)
	if n.histories >= 10 && n.tame() {
		t.Error("no outcome is unknown, or no run starts")
	}
}

// good returns a history of one goroutine with every verb.
func good() []porcupine.Operation {
	yes, no := answer{ok: true}, answer{}
	h := &history{}
	for _, o := range []struct {
		c call
		a answer
	}{
		0:  {call{verb: get}, no},
		1:  {call{verb: remove}, no},
		2:  {call{verb: add, task: 1, times: 2}, yes},
		3:  {call{verb: add, task: 2, times: 1}, no},
		4:  {call{verb: get}, answer{ok: true, task: 1, times: 2}},
		5:  {call{verb: start, task: 1, times: 2, fence: 5}, yes},
		6:  {call{verb: end, task: 1, fence: 5}, answer{unknown: true}},
		7:  {call{verb: get}, answer{ok: true, task: 1, times: 1, seq: 1}},
		8:  {call{verb: reschedule}, yes},
		9:  {call{verb: start, task: 1, times: 1, seq: 2, fence: 7}, yes},
		10: {call{verb: exist}, yes},
		11: {call{verb: set, task: 3, times: 1}, yes},
		12: {call{verb: end, task: 1, seq: 2, fence: 7}, answer{unknown: true}},
		13: {call{verb: get}, answer{ok: true, task: 3, times: 1}},
		14: {call{verb: remove}, yes},
		15: {call{verb: reschedule}, no},
		16: {call{verb: exist}, no},
		17: {call{verb: add, task: 4, times: 1}, answer{unknown: true}},
		18: {call{verb: get}, no},
		19: {call{verb: get}, answer{ok: true, task: 4, times: 1}},
		20: {call{key: "b", verb: pause}, no},
		21: {call{key: "b", verb: resume}, no},
		22: {call{key: "b", verb: add, task: 5, times: 1}, yes},
		23: {call{key: "b", verb: pause}, yes},
		24: {call{key: "b", verb: reschedule}, yes},
		25: {call{key: "b", verb: pause}, yes},
		26: {call{key: "b", verb: get}, answer{ok: true, task: 5, times: 1, seq: 1, paused: true}},
		27: {call{key: "b", verb: resume}, yes},
		28: {call{key: "b", verb: start, task: 5, times: 1, seq: 1, fence: 9}, yes},
		29: {call{key: "b", verb: pause}, yes},
		30: {call{key: "b", verb: end, task: 5, seq: 1, fence: 9}, answer{unknown: true}},
		31: {call{key: "b", verb: get}, answer{ok: true, task: 5, times: 1, seq: 1, paused: true}},
		32: {call{key: "b", verb: resume}, yes},
		33: {call{key: "b", verb: resume}, yes},
		34: {call{key: "b", verb: start, task: 5, times: 1, seq: 1, fence: 12}, yes},
		35: {call{key: "b", verb: pause}, yes},
		36: {call{key: "b", verb: set, task: 6, times: 1}, yes},
		37: {call{key: "b", verb: get}, answer{ok: true, task: 6, times: 1}},
	} {
		o.c.key = cmp.Or(o.c.key, "a")
		h.note(0, h.now(), o.c, o.a)
	}
	return h.ops
}

// Histories that no scheduler may have must be refused, or the other tests prove nothing.
func TestCheck_falsifiedHistory_isRefused(t *testing.T) {
	// falsify checks the good history with a change in one operation.
	type op = porcupine.Operation
	falsify := func(want porcupine.CheckResult, what string, i int, change func(*op, *call, *answer)) {
		ops := good()
		c, a := ops[i].Input.(call), ops[i].Output.(answer)
		change(&ops[i], &c, &a)
		ops[i].Input, ops[i].Output = c, a
		if got := (&history{ops: ops}).check(); got != want {
			t.Errorf("%s, in operation %d: the history is %v", what, i, got)
		}
	}
	falsify(porcupine.Ok, "no change", 0, func(*op, *call, *answer) {})
	falsify(porcupine.Ok, "the add never takes effect", 19, func(_ *op, _ *call, a *answer) { *a = answer{} })
	no := func(what string, i int, change func(op *op, c *call, a *answer)) {
		falsify(porcupine.Illegal, what, i, change)
	}
	for i, o := range good() {
		v, a := o.Input.(call).verb, o.Output.(answer)
		if !a.unknown && v != set && v != start && i != 19 {
			no("the opposite answer", i, func(_ *op, _ *call, a *answer) { a.ok = !a.ok })
		}
		if v == get && a.ok {
			no("another task", i, func(_ *op, _ *call, a *answer) { a.task = 2 })
			no("another count", i, func(_ *op, _ *call, a *answer) { a.times++ })
			no("another run", i, func(_ *op, _ *call, a *answer) { a.seq++ })
			no("paused, or not", i, func(_ *op, _ *call, a *answer) { a.paused = !a.paused })
		}
	}
	no("a start of a task that was never added", 9, func(_ *op, c *call, _ *answer) { c.task = 2 })
	no("a start of the run before the move", 9, func(_ *op, c *call, _ *answer) { c.seq = 1 })
	no("a start with another count", 9, func(_ *op, c *call, _ *answer) { c.times = 2 })
	no("a start with an older fence", 9, func(_ *op, c *call, _ *answer) { c.fence = 4 })
	no("a start after the removal", 9, func(o *op, _ *call, _ *answer) { o.Call, o.Return = 31, never })
	no("a start while it is paused", 27, func(_ *op, c *call, _ *answer) { c.verb = exist })
	no("a start of the run before the pause", 34, func(_ *op, c *call, _ *answer) { c.fence = 9 })
	no("the end of a run that was paused", 31, func(_ *op, _ *call, a *answer) { *a = answer{} })
	no("the end of a run that was never started", 6, func(_ *op, c *call, _ *answer) { c.fence = 4 })
	no("a task that was never added", 17, func(_ *op, c *call, _ *answer) { c.verb = get })
}
