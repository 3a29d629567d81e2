// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
)

// A simMachine is the machine of one node of a simulation. While it is suspended, the clocks of the node stand still,
// its calls do not leave it, answers do not reach it, and its handlers and verbs wait. The other nodes and the engine
// go on.
//
// The timers of the node run on, but get no further than the next call of the engine. The call leaves the machine when it
// would have done so if the timers had stood still too: later by the whole suspension.
type simMachine struct {
	mu          sync.Mutex // protects below
	suspensions []suspension
	soon        time.Duration // of the suspension that begins soon, or 0
	paused      bool          // the same, as in suspension
}

// A suspension lasts from one instant to another. If the machine is a virtual one that was paused, its wall clock does
// not show it.
type suspension struct {
	from, to time.Time
	paused   bool
}

func (s suspension) at(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// within returns how much of the suspension lies between the two times.
func (s suspension) within(from, to time.Time) time.Duration {
	if s.from.After(from) {
		from = s.from
	}
	if s.to.Before(to) {
		to = s.to
	}
	return max(to.Sub(from), 0)
}

// suspendSoon makes a suspension begin at the next call of begin, or when the next start has been confirmed and its
// answer is on the way.
func (m *simMachine) suspendSoon(d time.Duration, paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.soon, m.paused = d, paused
}

// begin begins the suspension that was to begin soon.
func (m *simMachine) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.soon > 0 {
		m.suspensions = append(m.suspensions, suspension{now, now.Add(m.soon), m.paused})
		m.soon = 0
	}
}

// clocks returns the monotonic and the wall clock of the machine.
func (m *simMachine) clocks() (mono, wall int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	mono = now.UnixNano()
	shown := int64(0)
	for _, s := range m.suspensions {
		mono -= int64(s.within(s.from, now))
		if !s.paused && !now.Before(s.to) {
			shown += int64(s.to.Sub(s.from))
		}
	}
	return mono, mono + shown
}

// slept returns how long the machine has been suspended, except for suspensions that ended a second ago.
func (m *simMachine) slept() (d int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.suspensions {
		if now := time.Now(); now.Sub(s.to) < time.Second {
			d += int64(s.within(s.from, now))
		}
	}
	return d
}

// monotonic returns the clocks of a machine whose wall clock follows the monotonic one.
func (m *simMachine) monotonic() (mono, wall int64) {
	mono, _ = m.clocks()
	return mono, mono
}

// unseen returns how long the machine has been suspended since the given time, so that its clocks do not show it, or
// show too little to be told from the slewing of a clock. Clocks do not show a suspension that is in progress. Only calls to the
// engine wait for its end here, and timers do not.
func (m *simMachine) unseen(since time.Time) (d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.suspensions {
		if now := time.Now(); s.paused || s.to.Sub(s.from) <= clock.Slack || s.at(now) {
			d += s.within(since, now)
		}
	}
	return d
}

// String returns all suspensions.
func (m *simMachine) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.suspensions)
}

// current returns the suspension that is in progress.
func (m *simMachine) current() (s suspension, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	i := slices.IndexFunc(m.suspensions, func(s suspension) bool { return s.at(now) })
	if i < 0 {
		return s, false
	}
	return m.suspensions[i], true
}

// wake waits until the machine is not suspended.
func (m *simMachine) wake() {
	for s, is := m.current(); is; s, is = m.current() {
		time.Sleep(time.Until(s.to))
	}
}

// An onSimMachine engine is that of a node on a machine.
type onSimMachine struct {
	engine.Engine
	machine *simMachine
}

// call makes a call from the machine, and waits until the answer has reached it. The timer of the context stands still
// during a suspension, as all timers do.
func (o onSimMachine) call(ctx context.Context, do func(ctx context.Context)) {
	for s, is := o.machine.current(); is; s, is = o.machine.current() {
		ctx = context.WithoutCancel(ctx)
		time.Sleep(s.to.Sub(s.from))
	}
	do(ctx)
	o.machine.wake()
}

func (o onSimMachine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) (results []engine.Result, err error) {
	o.call(ctx, func(ctx context.Context) { results, err = o.Engine.Commit(ctx, by, batches) })
	return results, err
}

func (o onSimMachine) Get(ctx context.Context, keys ...string) (found []engine.Stored, err error) {
	o.call(ctx, func(ctx context.Context) { found, err = o.Engine.Get(ctx, keys...) })
	return found, err
}

func (o onSimMachine) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		var all []engine.Stored
		var err error
		o.call(ctx, func(ctx context.Context) { all, err = collected(o.Engine.Walk(ctx, over)) })
		yieldAll(all, err, yield)
	}
}

func (o onSimMachine) Join(ctx context.Context, name string, lease time.Duration) (id engine.MemberID, now int64, err error) {
	o.call(ctx, func(ctx context.Context) { id, now, err = o.Engine.Join(ctx, name, lease) })
	return id, now, err
}

func (o onSimMachine) Renew(ctx context.Context, id engine.MemberID, report []byte) (members []engine.Membership, now int64, err error) {
	o.call(ctx, func(ctx context.Context) { members, now, err = o.Engine.Renew(ctx, id, report) })
	return members, now, err
}

func (o onSimMachine) Reap(ctx context.Context) (names []string, err error) {
	o.call(ctx, func(ctx context.Context) { names, err = o.Engine.Reap(ctx) })
	return names, err
}

func (o onSimMachine) Claim(ctx context.Context, r engine.ClaimRequest) (got engine.Claims, err error) {
	o.call(ctx, func(ctx context.Context) { got, err = o.Engine.Claim(ctx, r) })
	return got, err
}

func (o onSimMachine) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) (held []bool, now int64, err error) {
	o.call(ctx, func(ctx context.Context) {
		held, now, err = o.Engine.Confirm(ctx, by, claims, within)
		o.machine.begin()
	})
	return held, now, err
}

func (o onSimMachine) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) (err error) {
	o.call(ctx, func(ctx context.Context) { err = o.Engine.Release(ctx, by, claims) })
	return err
}

// An unaware engine is for a node that takes the engine's clock to have stood still during a suspension of its machine,
// until a second later.
type unaware struct {
	engine.Engine
	machine *simMachine
}

func (u unaware) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	id, now, err := u.Engine.Join(ctx, name, lease)
	return id, now - u.machine.slept(), err
}

func (u unaware) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	members, now, err := u.Engine.Renew(ctx, id, report)
	return members, now - u.machine.slept(), err
}

func (u unaware) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	got, err := u.Engine.Claim(ctx, r)
	got.Now -= u.machine.slept()
	return got, err
}

func (u unaware) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	held, now, err := u.Engine.Confirm(ctx, by, claims, within)
	return held, now - u.machine.slept(), err
}
