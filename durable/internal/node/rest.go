// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// A rest is the state of a node whose engine wakes it ([engine.Waker]). Such a node looks for tasks only when there may
// be some. The goroutine that claims owns it.
//
// When a claim has found nothing to do, the node does not rest at once, because a task may have become free that the
// claim did not look at, or has passed. It first asks to be woken, and claims once more from the beginning. If that
// finds nothing either, the node rests until the next task is almost due, or until it is woken: by the engine, or because
// the machine was suspended or its clock set forward.
type rest struct {
	waker engine.Waker // nil if the engine does not wake its node
	asked bool         // the node has asked to be woken, and has found nothing to do just before

	hearing
}

// A hearing is what a node knows of the signals of its engine; see [engine.Listener].
type hearing struct {
	listener  engine.Listener       // nil if the engine has none, or the node is a client
	unheard   atomic.Pointer[error] // why the node hears no signals, or a nil error if it does
	looks     atomic.Bool           // the membership goroutine looks for tasks, and a claim waits until it finds some
	looked    atomic.Int64          // when the node last looked, or found nothing to claim, by its own clock
	lookAgain atomic.Int64          // the node does not look before this time, because a look has failed
	news      atomic.Pointer[news]  // what the last look has read for the goroutine that reads the settings
	signals   chan struct{}         // signals that there may be tasks to claim
	alert     chan struct{}         // signals that the node has claimed tasks, or that tasks of a node were freed
	deaf      time.Duration         // how long no further signal was heeded after the last one; owned by the goroutine that heeds them
}

// A news is the notes that a node has read, and when it asked for them, by its own clock.
type news struct {
	notes []engine.Stored
	asked int64
}

func (w *news) all(yield func(engine.Stored, error) bool) {
	for _, note := range w.notes {
		if !yield(note, nil) {
			return
		}
	}
}

const (
	// A node that hears signals and has nothing to claim asks the engine for all that it needs every restEvery. If there is
	// no answer, its goroutines ask for themselves, restLate later.
	restEvery = time.Second
	restLate  = restEvery / 2

	// A node does not look if a claim from the beginning takes longer than lookFor, because the renewal waits for it.
	lookFor = 25 * time.Millisecond

	// After a signal a node claims, and heeds no other for deafLeast. If it then has claimed nothing, because other nodes
	// were quicker, it heeds none for twice the last time, up to deafMost, or until it is alert. So of many idle nodes few
	// claim for one task.
	deafLeast = 50 * time.Millisecond
	deafMost  = 10 * time.Second
)

var errNoSignals = errors.New("the engine sends no signals")

// listen makes the node hear its engine's signals.
func (n *Node) listen() {
	if l, ok := n.engine.(engine.Listener); ok && !n.client {
		n.listener = l
		n.helper.Go(func() { l.Listen(n.life, n.hear, n.hears) })
		n.deaf = deafLeast
		n.keep(restMost, n.signals, n.heed)
	}
}

// hears records why the node hears no signals, or nil if it hears them.
func (n *Node) hears(not error) {
	n.unheard.Store(&not)
}

// Unheard returns why the node hears no signals, or nil if it does.
func (n *Node) Unheard() error { return *n.unheard.Load() }

// hear is called at a signal. freed says that tasks of a node were freed.
func (n *Node) hear(freed bool) {
	if freed {
		call(n.alert)
	}
	call(n.signals)
}

// heed claims after a signal. It returns how long to wait before the next call.
func (n *Node) heed() time.Duration {
	call(n.wake)
	_ = clock.PauseFor(n.life, deafLeast)
	n.deaf = min(2*n.deaf, deafMost)
	select {
	case <-n.alert:
		n.deaf = deafLeast
	case <-time.After(n.deaf - deafLeast):
	case <-n.life.Done():
	}
	return restMost
}

// isIdle reports whether the node looks, and holds no task.
func (n *Node) isIdle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.held) == 0 && n.looks.Load()
}

// restMost is the longest rest. It bounds the tasks whose due times wake the node.
const restMost = time.Minute

// claim claims tasks, and returns how long to wait before the next call.
func (n *Node) claim() time.Duration {
	r := &n.rest
	r.looks.Store(false)
	pause := claimEvery
	if r.asked {
		pause = n.askToBeWoken()
	}
	again, whole := n.claimAll()
	switch done := whole && again == claimEvery && n.CaughtUp(); {
	case done && n.Unheard() == nil && n.current() != nil:
		looks := n.looksQuickly()
		r.looked.Store(n.own())
		if r.looks.Store(looks); looks {
			return restMost
		}
		return restEvery
	case !done || r.waker == nil:
		r.asked = false
		return again
	}
	if r.asked = !r.asked; !r.asked {
		return pause
	}
	n.mu.Lock()
	n.rewindLocked()
	n.mu.Unlock()
	return limit.HireEvery
}

// looksQuickly reports whether a look delays no renewal. After one that has failed there is none for restMost.
func (n *Node) looksQuickly() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	slowest := n.overdue.took
	for _, k := range n.kinds.AllLimited() {
		slowest = max(slowest, k.claimed.took)
	}
	return slowest <= int64(lookFor) && n.own() >= n.lookAgain.Load()
}

// untilLook returns how long it is until a look is due. If the node does not look, it returns restMost.
func (n *Node) untilLook() time.Duration {
	if !n.looks.Load() {
		return restMost
	}
	return restEvery - time.Duration(n.own()-n.looked.Load())
}

// renewAndLook renews the lease. If a look is due, it also looks for tasks and reads the settings.
func (n *Node) renewAndLook(ctx context.Context, t *term, report []byte) (members []engine.Membership, now int64, err error) {
	if n.untilLook() > 0 {
		return n.engine.Renew(ctx, t.id, report)
	}
	asked := n.own()
	n.looked.Store(asked)
	until := n.clock.Earliest(asked) + int64(lookAhead)
	l, err := n.listener.Look(ctx, t.id, report, engine.LookRequest{Notes: pausesNote, Kinds: n.classes(), Until: until})
	if err == nil {
		n.news.Store(&news{l.Notes, asked})
		call(n.reread)
	} else {
		n.lookAgain.Store(n.own() + int64(restMost))
	}
	if err != nil || l.Due || n.Unheard() != nil {
		n.looks.Store(false)
		call(n.wake)
	}
	return l.Members, l.Now, err
}

// classes returns the kinds that the node claims, as the engine knows them.
func (n *Node) classes() (kinds []string) {
	for _, k := range n.kinds.AllLimited() {
		if !n.kinds.Pauses().Has(k.Name) {
			kinds = append(kinds, k.Policy.Classes(k.Name)...)
		}
	}
	for name, k := range n.kinds.unlimited() {
		kinds = append(kinds, k.Policy.Classes(name)...)
	}
	return kinds
}

// askToBeWoken returns how long the node may rest if it finds nothing to do.
func (n *Node) askToBeWoken() time.Duration {
	ctx, cancel := n.callContext()
	defer cancel()
	now := n.Now()
	after, until := n.clock.Earliest(n.own())+int64(lookAhead), now+int64(lookAhead+restMost)
	due, err := n.waker.Wake(ctx, n.classes(), after, until, n.wake)
	switch {
	case err != nil:
		n.trouble(err)
		return claimEvery
	case due == engine.None:
		return restMost
	}
	return min(time.Duration(due-now)-lookAhead, restMost)
}

// wakeAfterJump wakes the node if more time has passed than the membership goroutine has waited.
func (n *Node) wakeAfterJump() {
	now := n.own()
	if n.alone && now-n.tended > int64(n.cfg.Lease/2) {
		call(n.wake)
	}
	n.tended = now
}

// needsNothing reports whether the membership goroutine has nothing to do but to keep the lease.
func (n *Node) needsNothing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.alone && !n.failing && !n.doubt && n.unsent == nil && n.own() >= n.recheck && !n.leavesLocked()
}

// attend makes the membership goroutine look at a change, if it rests; see needsNothing.
func (n *Node) attend() {
	if n.alone {
		call(n.look)
	}
}
