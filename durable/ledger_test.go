// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A ledger records a simulation from outside the nodes. It sits between the links of the nodes and the engine, and sees
// every effect in the order in which it happens. It records every verb, every call of a handler, and every broken
// promise:
//
//	D1  a handler is called before its run or its attempt is due by the engine's clock; a task is due before
//	    its delay is over, before what [durable.RetryAfter] asks for, off the grid of its interval or calendar,
//	    or, when it is resumed, at another time than before
//	D2  a start is decided after a removal, a replacement or a move of the run has returned, or after a pause
//	    of the task and before its resumption is called; or a handler is called long after the decision
//	D3  a task is left over at the end, though nodes are alive, or it is gone and has not ended
//	D4  a start is decided after the member's lease, or a handler is called after it and long after the decision; the fences of a key's starts do not rise; a write takes
//	    effect at a revision that is not the task's last one; two runs overlap although the earlier one's
//	    lease lasts; a member is reaped before the engine has been up for its lease
//	D5  a token runs again after it has been completed; a task ends, is due for its next run or is parked
//	    without a run that has ended so, in the time that its kind allows; a run that its handler has parked is
//	    to be tried again; a task with further runs is parked without its handler; a run is given up before its
//	    last attempt has failed, or counts neither for Times nor as given up; the attempt of a snoozed run counts as failed; the context of a run is not done when
//	    that time is over
//	D6  a verb that has returned nil has had no effect, or a task was added that was refused
//	D11 a handler is called more than two seconds after its kind was paused, or on the node of the pause after
//	    that has returned
//
// Besides the numbered promises it records others. They have names:
//
//	limit    more runs of a kind are running than its limit allows, or more start within some time than its rate
//	         allows
//	burst    a burst of SetTask postpones a run for too long
//	expires  a handler is called too late for its task, a task expires before that, or Stats counts one that has
//	         not expired
//	drain    a handler is called on a node more than two seconds after it was drained (D12)
//	set      an older version of a set wins, its tasks are not the declared ones at the end, or one that has
//	         stayed the same was added again
//	history  at the end the history of a node does not have every attempt that has ended on it once, or says of
//	         one that its task was parked or its run given up, and that was not stored
//
// Its time is the engine's. If the machine of a node was suspended, and only an answer from the engine can show it,
// then a handler may be called for a run that was decided within 100 ms before, not counting the suspension, and a delay may be too
// short by [engine.MaxStale] and the time of a call.
type ledger struct {
	engine   engine.Engine
	lease    time.Duration
	attempts int                      // for each run, before it is given up or its task is parked
	bounds   map[string]time.Duration // of the runs of each kind that has one
	limits   map[string]int           // for the runs of each kind that has one, on each node
	shared   map[string]int           // the same, on all nodes
	paces    map[string]*pace         // for the runs of each kind that has a rate, on all nodes
	machines []*simMachine            // of the nodes, or nil

	mu      sync.Mutex // protects below
	broken  []string
	step    int                                 // of the events so far
	until   map[engine.MemberID]time.Time       // when the leases expire, by the ledger's own records
	restart time.Time                           // of the engine
	states  map[engine.Claim]state              // the state of a revision
	last    map[string]int64                    // the last seen revision of each key
	there   map[string]state                    // the states of the tasks, whatever their revisions
	put     map[durable.Token]int               // the step in which a run was created, and
	dead    map[durable.Token]instant           // from when on no start of it may be decided, and no run begin
	stopped map[stopped]instant                 // the same for the runs of a paused task
	paused  map[string]pause                    // the last pause or resumption of each key
	resumes map[string]int                      // resumptions of each key that may still take effect, and
	resumed map[string]int                      // the step in which the last other one returned
	done    map[durable.Token]bool              // completed runs
	parked  map[durable.Token]bool              // parked runs
	givenUp map[durable.Token]bool              // runs that were given up
	effects map[string]effect                   // the effects of the adds, by their payloads
	deleted map[string]int                      // the step of the last removal of a key
	decided map[engine.Claim]decision           // the last decision to start
	fences  map[string]int64                    // the greatest fence of the decided starts of a key
	begun   map[string]int64                    // the greatest fence of the runs of a key that have begun
	ended   map[engine.Claim]ended              // the ends of calls
	running map[durable.Token]map[*running]bool // calls that have not ended and count
	calls   map[*running]bool                   // counting calls, and others
	counts  map[string]int                      // of the events so far

	reports   map[engine.MemberID][]byte    // the last report of each member
	reported  map[engine.MemberID]time.Time // when each member first renewed its lease, not drained
	kinds     map[string]time.Time          // since when each kind is paused, or all kinds under allKinds
	pausedOn  map[onNode]int                // the step from which on a node must not call a kind
	restarts  map[string]int                // as resumes and resumed, of each kind and drained node
	restarted map[string]int
	maxDelays map[string]time.Duration // for the tasks that have one, by their payloads, minus their delays
	deadlines map[durable.Token]int64  // the latest due time of a run that SetTask may postpone
	started   map[durable.Token]bool   // runs with a decided start
	shifts    map[string]time.Duration // the delays of the runs of a calendar
	late      map[durable.Token]int64  // when it is too late to start a run that can expire
	drained   map[string]time.Time     // since when each node must start nothing, by its name
	declared  int64                    // the highest version of the set that was declared, and
	deployed  int64                    // the highest one whose declaration was called
	past      map[pastRun]int          // the attempts that have ended
}

// setPrefix begins the keys of the declared tasks, and sameKey is that of a task that all versions declare alike.
const (
	setPrefix = "set/"
	sameKey   = setPrefix + "same"
)

// A pastRun is an attempt that has ended. The attempts of a snoozed run have the same number.
type pastRun struct {
	durable.Token
	node    string
	attempt int
	snoozed bool
}

// allKinds is the name of no kind.
const allKinds = ""

type onNode struct {
	node int
	kind string
}

// A state describes a revision of a task.
type state struct {
	durable.Token
	due   int64
	times int // remaining runs

	givenUp int // runs given up in a row
}

// A stopped task identifies one of the tasks of a key.
type stopped struct {
	key        string
	generation uint64
}

// A pause records whether the task of a key is paused, since which step, and when the task was due before the pause, or
// None if it was moved since.
type pause struct {
	is   bool
	step int
	due  int64
}

// An ended records how a call has returned.
type ended struct {
	at   time.Time
	due  time.Time // of the run, not of the attempt
	well bool
	done bool          // by Done, which also counts after the bound
	park bool          // it must not be tried again
	wait time.Duration // the delay before the next try, or 0

	snooze  bool // the attempt does not count
	attempt int
}

type decision struct {
	step   int
	by     engine.MemberID
	at     time.Time
	within time.Duration // in which the run may begin
}

// An instant is a step and its time. What happens at the same time may have begun before.
type instant struct {
	step int
	at   time.Time
}

type effect struct {
	step  int
	due   int64
	stale int64 // how much its delay may be too short
}

type running struct {
	by   engine.MemberID
	node int
	kind string
	at   time.Time
}

func newLedger(e engine.Engine, lease time.Duration, attempts int) *ledger {
	return &ledger{
		engine: e, lease: lease, attempts: attempts, bounds: map[string]time.Duration{},
		limits: map[string]int{}, shared: map[string]int{}, paces: map[string]*pace{}, calls: map[*running]bool{},
		reports: map[engine.MemberID][]byte{}, reported: map[engine.MemberID]time.Time{}, kinds: map[string]time.Time{}, pausedOn: map[onNode]int{},
		restarts: map[string]int{}, restarted: map[string]int{}, maxDelays: map[string]time.Duration{},
		deadlines: map[durable.Token]int64{}, started: map[durable.Token]bool{}, shifts: map[string]time.Duration{},
		until: map[engine.MemberID]time.Time{}, states: map[engine.Claim]state{}, last: map[string]int64{},
		there: map[string]state{}, put: map[durable.Token]int{}, dead: map[durable.Token]instant{},
		stopped: map[stopped]instant{}, paused: map[string]pause{}, resumes: map[string]int{},
		resumed: map[string]int{}, done: map[durable.Token]bool{}, parked: map[durable.Token]bool{},
		givenUp: map[durable.Token]bool{},
		effects: map[string]effect{}, deleted: map[string]int{}, decided: map[engine.Claim]decision{},
		fences: map[string]int64{}, begun: map[string]int64{}, ended: map[engine.Claim]ended{}, running: map[durable.Token]map[*running]bool{},
		counts: map[string]int{}, late: map[durable.Token]int64{}, drained: map[string]time.Time{},
		past: map[pastRun]int{},
	}
}

// agrees fails the test if a promise was broken, and sums up the events.
func (l *ledger) agrees(t *testing.T, counts map[string]int) {
	t.Helper()
	for what, n := range l.counts {
		counts[what] += n
	}
	if len(l.broken) > 0 {
		t.Error(strings.Join(l.broken[:min(len(l.broken), 10)], "\n"))
	}
}

// breaks records a broken promise.
func (l *ledger) breaks(promise string, format string, args ...any) {
	l.broken = append(l.broken, promise+": "+fmt.Sprintf(format, args...))
}

func (l *ledger) next() int { l.step++; return l.step }

func token(s engine.Record) (durable.Token, durable.Info) {
	i, err := durable.InfoOf(s)
	if err != nil {
		panic(err)
	}
	return i.Token, i
}

// seen records the state of a task.
func (l *ledger) seen(r engine.Record, revision int64) {
	t, info := token(r)
	s := state{t, r.Due, info.Times, info.GivenUp}
	l.states[engine.Claim{Key: r.Key, Revision: revision}] = s
	if revision > l.last[r.Key] {
		l.last[r.Key], l.there[r.Key] = revision, s
	}
}

func (l *ledger) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	results, err := l.engine.Commit(ctx, by, batches)
	if err != nil {
		return nil, err
	}
	l.next()
	for i, batch := range batches {
		if len(results[i].Written) == 0 {
			continue
		}
		for j, w := range batch {
			switch {
			case !w.Note:
				l.wrote(w, results[i].Written[j], by)
			case w.Key == pausesNote:
				l.wrotePauses(w.Data)
			}
		}
	}
	return results, nil
}

// wrotePauses records the paused kinds.
func (l *ledger) wrotePauses(settings []byte) {
	var now struct {
		All   bool
		Kinds [][]byte
	}
	if err := json.Unmarshal(settings, &now); err != nil {
		panic(err)
	}
	was := l.kinds
	l.kinds = map[string]time.Time{}
	if now.All {
		now.Kinds = append(now.Kinds, []byte(allKinds))
	}
	for _, kind := range now.Kinds {
		l.kinds[string(kind)] = time.Now()
		if since, is := was[string(kind)]; is {
			l.kinds[string(kind)] = since
		}
	}
}

// wrote records the effect of a write. Only Schedule writes the tasks of a set for no member.
func (l *ledger) wrote(w engine.Write, written engine.Written, by engine.MemberID) {
	old := engine.Claim{Key: w.Key, Revision: w.Revision}
	if last := l.last[w.Key]; w.If == engine.IfUnchanged && w.Revision < last {
		l.breaks("D4", "a write of %s takes effect at revision %d, and its last one is %d", w.Key, w.Revision, last)
	}
	was, declared := l.there[w.Key], by == 0 && strings.HasPrefix(w.Key, setPrefix)
	if w.Data == nil {
		delete(l.there, w.Key)
		l.deleted[w.Key] = l.step
		l.pause(w.Key, false, engine.None)
		if w.If == engine.IfUnchanged {
			t := l.states[old].Token
			if !l.ended[old].well && !declared && !l.expired(t) {
				l.breaks("D5", "%v ends without a run that has ended well", t)
			}
			l.done[t] = true
		}
		return
	}
	l.seen(w.Record, written.Revision)
	t, info := token(w.Record)
	l.new(t, w.Record, info)
	set := w.If != engine.IfUnchanged || t.Generation != was.Generation
	if set {
		l.effects[string(info.Payload)] = effect{l.step, w.Due, l.stale()}
		l.burst(t, was.Token, string(info.Payload), w.Due)
	}
	if info.State == durable.Parked {
		l.counts["parked"]++
		if info.Attempts < l.attempts && !l.ended[old].park && !l.parked[t] {
			l.breaks("D5", "%v is parked after %d attempts", t, info.Attempts)
		}
		if (info.Times > 1 || info.Times == durable.Forever) && !l.ended[old].park && !l.parked[t] {
			l.breaks("D5", "%v is parked, and has further runs", t)
		}
		l.parked[t] = true
	}
	if !set && info.GivenUp > was.givenUp {
		l.gaveUp(info, was, l.ended[old])
	}
	if !set && !declared {
		l.changed(w, info, was, l.ended[old])
	}
	if declared { // it repeats a run whose start the engine has lost
		maps.DeleteFunc(l.running[t], func(r *running, _ bool) bool { return r.at.Before(l.restart) })
	}
	if is := info.State == durable.Paused; is && !set && !l.paused[w.Key].is {
		l.pause(w.Key, true, was.due)
		delete(l.running, t) // a call in progress no longer counts
	} else if is || l.paused[w.Key].is {
		l.pause(w.Key, is, engine.None)
	}
}

// gaveUp checks that a run may be given up, and how the task continues. was is its state before that.
func (l *ledger) gaveUp(info durable.Info, was state, call ended) {
	t := was.Token
	l.counts["given up"]++
	l.givenUp[t] = true
	if info.GivenUp > was.givenUp+1 || info.Times != was.times-1 && info.Times != durable.Forever ||
		info.Generation != t.Generation || info.Seq != t.Seq+1 || info.Attempts > 0 || info.Failure == "" || info.State == durable.Parked {
		l.breaks("D5", "%v, of %d runs, is given up, and then the task is %v", t, was.times, info)
	}
	switch {
	case call.well || call.park:
		l.breaks("D5", "%v is given up, and its handler has returned nil or parked it", t)
	case !call.at.IsZero() && call.attempt < l.attempts, was.givenUp == 0 && len(info.Failed) < l.attempts:
		l.breaks("D5", "%v is given up after %d attempts", t, len(info.Failed))
	case info.GivenUp > 1:
		l.counts["given up again"]++
	}
}

// stored checks what the history says of a run that was not tried again.
func (l *ledger) stored(r durable.PastRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Parked && !l.parked[r.Token] || r.GivenUp && !l.givenUp[r.Token] {
		l.breaks("history", "it has %v, and that was not stored", r)
	}
}

// new records a run when it is created.
func (l *ledger) new(t durable.Token, r engine.Record, info durable.Info) {
	if _, there := l.put[t]; there {
		return
	}
	l.put[t] = l.step
	if info.Expires == 0 {
		return
	}
	stored, err := task.Decode(r)
	if err != nil {
		panic(err)
	}
	l.late[t] = stored.Grid + int64(max(info.Expires, time.Second)) // see Task
}

// expired reports whether a run that is removed can expire, and checks that it is too late to start it.
func (l *ledger) expired(t durable.Token) bool {
	late, can := l.late[t]
	if !can {
		return false
	}
	l.counts["expired"]++
	// A node may believe that it is later, by the duration of a call.
	if early := time.Until(time.Unix(0, late)); early > 2*l.lease {
		l.breaks("expires", "%v expires %v too early", t, early)
	}
	return true
}

// burst records that a task has replaced was, which may be no task.
func (l *ledger) burst(t, was durable.Token, payload string, due int64) {
	more, is := l.maxDelays[payload]
	if !is {
		return
	}
	deadline := due + int64(more)
	if first, is := l.deadlines[was]; is && !l.started[was] {
		l.counts["runs that are put off"]++
		// A node may believe that it is later, by the duration of a call.
		if late := time.Duration(due - max(first, time.Now().Add(2*l.lease).UnixNano())); late > 0 {
			l.breaks("burst", "%v is put off by %v too much", t, late)
		}
		deadline = min(deadline, first)
	}
	l.deadlines[t] = deadline
}

// pause records whether the task of the key is paused from now on.
func (l *ledger) pause(key string, is bool, due int64) {
	old := l.paused[key]
	if is == old.is {
		old.due = due
		l.paused[key] = old
		return
	}
	l.paused[key] = pause{is, l.step, due}
}

// changed checks how a task has changed after a run or by a resumption. was is its previous state, and call the end of
// its run, if it has ended.
func (l *ledger) changed(w engine.Write, info durable.Info, was state, call ended) {
	t, paused := was.Token, info.State == durable.Paused
	same := info.Generation == was.Generation && info.Seq == was.Seq
	p := l.paused[w.Key]
	switch {
	case p.is && !paused && same && p.due != engine.None && w.Due != p.due:
		l.breaks("D1", "%v is resumed to be due %v from when it was due before", t, time.Duration(w.Due-p.due))
	case p.is || paused || call.at.IsZero():
	case same && call.park && info.State != durable.Parked:
		l.breaks("D5", "%v was parked by its handler, and is to be tried again", t)
	case same && call.snooze && info.Attempts != call.attempt-1:
		l.breaks("D5", "attempt %d of %v was snoozed, and %d have failed", call.attempt, t, info.Attempts)
	case same && call.wait > 0 && info.State != durable.Parked:
		if early := call.at.Add(call.wait).UnixNano() - w.Due; early > l.stale() {
			l.breaks("D1", "%v is to be tried again %v before its handler has asked for", t, time.Duration(early))
		}
	case !same && (info.Times == was.times-1 || info.Times == durable.Forever):
		if !call.well && info.GivenUp == was.givenUp {
			l.breaks("D5", "the next run of %s follows, and %v has not ended well", w.Key, t)
		}
		if call.well && info.GivenUp > 0 {
			l.breaks("D5", "%v has ended well, and %d runs before it count as given up", t, info.GivenUp)
		}
		l.gridded(w, info, call.due)
	}
}

// gridded checks the next run of a task whose last run was due at the given time.
func (l *ledger) gridded(w engine.Write, info durable.Info, was time.Time) {
	next := time.Unix(0, w.Due)
	latest := time.Now() // a node may believe that it is later, by what a call takes
	if latest = latest.Add(4 * l.lease); latest.Before(was) {
		latest = was
	}
	var on bool
	if info.Cron == "" {
		on = next.Sub(was)%info.Interval == 0
		latest = latest.Add(info.Interval)
	} else { // every minute, delayed by a part of its jitter
		shift := next.Sub(next.Truncate(time.Minute))
		if _, known := l.shifts[info.Key]; !known {
			l.shifts[info.Key] = shift
		}
		on, latest = shift == l.shifts[info.Key] && shift <= jitter(info.Key), latest.Add(time.Minute)
		l.counts["next runs of calendars"]++
	}
	if !on || !next.After(was) || next.After(latest) {
		l.breaks("D1", "the run of %s after that at %v is due at %v, off its grid", info.Key, was, next)
	}
}

func (l *ledger) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) ([]bool, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, now, err := l.engine.Confirm(ctx, by, claims, within)
	if err != nil {
		return nil, 0, err
	}
	l.next()
	for i, c := range claims {
		c.Starts = 0 // as in the keys of the maps
		if !held[i] {
			continue
		}
		t := l.states[c].Token
		l.started[t] = true
		l.decided[c] = decision{l.step, by, time.Now(), within}
		if since, is := l.stopped[stopped{t.Key, t.Generation}]; is {
			l.breaks("D2", "the start of %v is decided in step %d, and it was paused in %d", t, l.step, since.step)
		}
		if dead, is := l.dead[t]; is {
			l.breaks("D2", "the start of %v is decided in step %d, and it was removed in %d", t, l.step, dead.step)
		}
		if l.done[t] {
			l.breaks("D5", "the start of %v is decided, and it was completed", t)
		}
		if c.Revision < l.fences[c.Key] {
			l.breaks("D4", "the start of %v is decided at fence %d after one at %d", t, c.Revision, l.fences[c.Key])
		}
		l.fences[c.Key] = max(l.fences[c.Key], c.Revision)
		if !time.Now().Before(l.until[by]) {
			l.breaks("D4", "the start of %v is decided %v after the lease of member %d", t, time.Since(l.until[by]), by)
		}
	}
	return held, now, nil
}

// call records that a handler is called on a node. It returns the function to call when the handler ends.
func (l *ledger) call(ctx context.Context, node int, run durable.Run) (end func(ended)) {
	began := time.Now() // another call may hold the lock while it waits for the lock of a transaction
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
	l.counts["calls"]++
	c := engine.Claim{Key: run.Key, Revision: run.Fence}
	d, ok := l.decided[c]
	if !ok {
		l.breaks("D2", "a run of %v is called at fence %d without a decision", run.Token, run.Fence)
	}
	asleep := l.unseen(node, d.at)
	switch late := began.Sub(d.at) - asleep; {
	case !ok || late <= d.within:
	case !began.Before(l.until[d.by]):
		l.breaks("D4", "a run of %v is called %v after the decision, and the lease of member %d is over", run.Token, late, d.by)
	default:
		l.breaks("D2", "a run of %v is called %v after the decision, at %v; the machine was suspended %v", run.Token, late, began,
			l.suspensions(node))
	}
	if asleep > 0 { // the node may enter this run, whatever has happened meanwhile
		l.counts["runs entered after a suspension"]++
		defer func(broken int) { l.broken = l.broken[:broken] }(len(l.broken))
	}
	if dead, is := l.dead[run.Token]; is && began.After(dead.at) {
		l.breaks("D2", "a run of %v begins %v after it was removed", run.Token, began.Sub(dead.at))
	}
	if since, is := l.stopped[stopped{run.Key, run.Generation}]; is && began.After(since.at) {
		l.breaks("D2", "a run of %v begins %v after it was paused", run.Token, began.Sub(since.at))
	}
	if run.Fence < l.begun[run.Key] {
		l.breaks("D4", "a run of %v begins with the fence %d after one with %d", run.Token, run.Fence, l.begun[run.Key])
	}
	l.begun[run.Key] = max(l.begun[run.Key], run.Fence)
	if early := time.Until(run.Due); early > 0 && run.Attempt == 1 {
		l.breaks("D1", "a run of %v is called %v before it is due", run.Token, early)
	}
	for other := range l.running[run.Token] {
		if time.Now().Before(l.until[other.by]) {
			l.breaks("D4", "two runs of %v overlap, and the lease of the earlier one, of member %d, lasts", run.Token,
				other.by)
		}
	}
	if l.running[run.Token] == nil {
		l.running[run.Token] = map[*running]bool{}
	}
	if late, is := l.late[run.Token]; is && began.UnixNano() > late {
		l.breaks("expires", "a run of %v is called %v too late", run.Token, began.Sub(time.Unix(0, late)))
	}
	r := &running{d.by, node, run.Kind, began}
	l.startsWhilePaused(r)
	if since, is := l.drained[fmt.Sprint(node)]; is && began.Sub(since) > 2*time.Second {
		l.breaks("drain", "a run of %v is called on node %d %v after a drain", run.Token, node, began.Sub(since))
	}
	l.calls[r] = true
	l.withinLimits(r)
	if p := l.paces[run.Kind]; p != nil && !p.start(began) {
		l.breaks("limit", "the runs of the kind %s start faster than %d at once and one in %v", run.Kind, p.burst,
			p.each)
	}
	if l.paused[run.Key].step < d.step { // or it no longer counts
		l.running[run.Token][r] = true
	}
	return func(e ended) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next()
		delete(l.running[run.Token], r)
		delete(l.calls, r)
		e.at, e.due, e.attempt = time.Now(), run.Due, run.Attempt
		if e.snooze {
			l.counts["snoozed"]++
		}
		l.past[pastRun{run.Token, fmt.Sprint(node), run.Attempt, e.snooze}]++
		if bound, is := l.bounds[run.Kind]; is && e.at.Sub(began) > bound {
			l.counts["calls that took too long"]++
			e.well = e.done
			if ctx.Err() == nil {
				l.breaks("D5", "the context of %v is not done after %v", run.Token, e.at.Sub(began))
			}
		}
		if !l.ended[c].well {
			l.ended[c] = e
		}
	}
}

// suspended counts a suspension.
func (l *ledger) suspended(paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts["suspended"]++
	if paused {
		l.counts["suspended, unseen by the wall clock"]++
	}
}

// suspensions describes the suspensions of the machine of a node.
func (l *ledger) suspensions(node int) string {
	if l.machines == nil {
		return "never"
	}
	return l.machines[node].String()
}

// unseen returns how long the machine of a node has been suspended since the given time, so that only an answer from
// the engine shows it.
func (l *ledger) unseen(node int, since time.Time) time.Duration {
	if l.machines == nil {
		return 0
	}
	return l.machines[node].unseen(since)
}

// startsWhilePaused checks whether the kind of a call is paused.
func (l *ledger) startsWhilePaused(r *running) {
	for _, kind := range []string{r.kind, allKinds} {
		if since, is := l.kinds[kind]; is && time.Since(since) > 2*time.Second {
			l.breaks("D11", "a run of the kind %s is called %v after a pause", r.kind, time.Since(since))
		}
		if step, is := l.pausedOn[onNode{r.node, kind}]; is {
			l.breaks("D11", "a run of the kind %s is called on node %d in step %d, and it has paused it in step %d",
				r.kind, r.node, l.step, step)
		}
	}
}

// withinLimits checks the number of running runs of the call's kind. For the limit of all nodes, runs of a node with an
// expired lease do not count. Nor do runs that began before the last node takes part, which it does when its report is
// one lease old.
func (l *ledger) withinLimits(r *running) {
	var last time.Time
	for _, at := range l.reported {
		if at = at.Add(l.lease); at.Before(time.Now()) && at.After(last) {
			last = at
		}
	}
	onNode, onAll := 0, 0
	for other := range l.calls {
		if other.kind != r.kind {
			continue
		}
		if other.node == r.node {
			onNode++
		}
		if other == r || other.at.After(last) && time.Now().Before(l.until[other.by]) {
			onAll++
		}
	}
	if most, is := l.limits[r.kind]; is && onNode > most {
		l.breaks("limit", "%d runs of the kind %s are running on node %d", onNode, r.kind, r.node)
	}
	if most, is := l.shared[r.kind]; is && onAll > most {
		l.breaks("limit", "%d runs of the kind %s are running on all nodes", onAll, r.kind)
	}
}

// A pace is a rate of starts: a number of runs may start at once, and then one per interval.
type pace struct {
	each  time.Duration
	burst int
	empty time.Time // when all allowed starts had been used, if none has started since
}

// start records a start, and reports whether no span of time up to now has more starts than the rate allows for it and
// one more tick.
func (p *pace) start(at time.Time) bool {
	if full := at.Add(-time.Duration(p.burst)*p.each - tick); p.empty.Before(full) {
		p.empty = full
	}
	p.empty = p.empty.Add(p.each)
	return !p.empty.After(at)
}

// A verb is a call: "add", "set", "remove", "move", "pause" or "resume"; "remove prefix" or "move prefix", with the
// prefix instead of a key; "pause kind" or "resume kind", with the kind; "drain" or "undrain", with the node's name.
type verb struct {
	what   string
	tasks  []durable.Task // or only their keys; the payloads are unique
	called int
	at     time.Time
}

// verb records the call of a verb.
func (l *ledger) verb(what string, tasks ...durable.Task) verb {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := verb{what, tasks, l.next(), time.Now()}
	for _, task := range tasks {
		if task.MaxDelay > 0 {
			l.maxDelays[string(task.Payload)] = task.MaxDelay - task.Delay
		}
	}
	if what == "resume kind" {
		kind := tasks[0].Kind
		for on := range l.pausedOn {
			if on.kind == kind {
				delete(l.pausedOn, on)
			}
		}
		l.restarts[kind]++
	}
	if what == "undrain" {
		delete(l.drained, tasks[0].Key)
		l.restarts[tasks[0].Key]++
	}
	if what == "resume" {
		key := tasks[0].Key
		for task := range l.stopped {
			if task.key == key {
				delete(l.stopped, task)
			}
		}
		l.resumes[key]++
	}
	return v
}

// returned records that the verb has returned, with an error or nil.
func (l *ledger) returned(v verb, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.next()
	if err == nil {
		l.counts[v.what]++
	}
	if key := v.tasks[0].Key; v.what == "pause" || v.what == "resume" {
		l.pausedOrResumed(v, key, err)
		return
	}
	prefix := strings.HasSuffix(v.what, " prefix")
	for _, task := range v.tasks {
		effect, took := l.effects[string(task.Payload)]
		switch {
		case errors.Is(err, durable.ErrDuplicateTaskKey):
			if took {
				l.breaks("D6", "the add of %s was refused, and has taken effect in step %d", task.Key, effect.step)
			}
			continue
		case err != nil:
			continue
		case v.what == "remove" && l.deleted[task.Key] < v.called:
			l.breaks("D6", "the removal of %s has returned, and has had no effect", task.Key)
		case v.what == "add" || v.what == "set":
			if !took {
				l.breaks("D6", "the %s of %s has returned, and has had no effect", v.what, task.Key)
			} else if early := least(v.at, task).UnixNano() - effect.due; early > effect.stale {
				l.breaks("D1", "%s is due %v before its delay is over", task.Key, time.Duration(early))
			}
		}
		if v.what == "add" {
			continue
		}
		for t, put := range l.put {
			if t.Key != task.Key && !(prefix && strings.HasPrefix(t.Key, task.Key)) || put >= v.called {
				continue
			}
			removed := v.what == "set" && l.deleted[t.Key] > put // perhaps by another verb: that one waits
			if _, is := l.dead[t]; !is && !removed {
				l.dead[t] = instant{now, time.Now()}
			}
			if is := l.there[t.Key]; v.what == "remove prefix" && is.Generation == t.Generation {
				l.breaks("D6", "%v was there before the removal of %s, which has returned, and is there", t, task.Key)
			}
		}
	}
}

// stale returns by how much a delay may be too short, because a node has not noticed a suspension: see engine.MaxStale.
func (l *ledger) stale() (most int64) {
	for node := range l.machines {
		most = max(most, int64(l.unseen(node, time.Time{})))
	}
	return min(most, int64(engine.MaxStale+simLease*3/2)) // and a call may have taken that long before
}

// least returns the earliest due time of the task if it is added at that time or later.
func least(at time.Time, task durable.Task) time.Time {
	switch {
	case task.MaxDelay > 0: // a burst may be over
		return at
	case !task.At.IsZero():
		return task.At
	case task.Delay == 0 && task.Cron != "":
		at = at.Add(-task.Jitter) // and it is delayed by a part of that
		next, err := durable.Next(task.Cron, at, 1)
		if err != nil {
			panic(err)
		}
		return next[0]
	case task.Delay == 0:
		return at.Add(task.Interval)
	}
	return at.Add(task.Delay)
}

// pausedOrResumed records that a pause or a resumption has returned.
func (l *ledger) pausedOrResumed(v verb, key string, err error) {
	known := err == nil || errors.Is(err, durable.ErrTaskKeyNotFound)
	if v.what == "resume" && known {
		l.resumes[key]--
		l.resumed[key] = l.step
	}
	if err != nil {
		return
	}
	if p := l.paused[key]; p.is == (v.what == "resume") && p.step < v.called {
		l.breaks("D6", "the %s of %s has returned, and has had no effect", v.what, key)
	}
	if v.what == "resume" || l.resumes[key] > 0 || l.resumed[key] > v.called {
		return // the paused task may have been resumed
	}
	for t, put := range l.put {
		if t.Key == key && put < v.called {
			l.stopped[stopped{key, t.Generation}] = instant{l.step, time.Now()}
		}
	}
}

// kindPaused records that a pause or a resumption of a kind has returned on a node.
func (l *ledger) kindPaused(v verb, node int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
	kind := v.tasks[0].Kind
	if v.what == "resume kind" && err == nil {
		l.restarts[kind]--
		l.restarted[kind] = l.step
	}
	if err != nil {
		return
	}
	l.counts[v.what]++
	if v.what == "pause kind" && l.restarts[kind] == 0 && l.restarted[kind] < v.called {
		l.pausedOn[onNode{node, kind}] = l.step
	}
}

// drainReturned records that Drain or Undrain has returned.
func (l *ledger) drainReturned(v verb, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
	if err != nil {
		return
	}
	l.counts[v.what]++
	node := v.tasks[0].Key
	if v.what == "undrain" {
		l.restarts[node]--
		l.restarted[node] = l.step
	} else if _, is := l.drained[node]; !is && l.restarts[node] == 0 && l.restarted[node] < v.called {
		l.drained[node] = time.Now()
	}
}

// declares records that a version of the set is declared, and returns the function to call when Schedule returns nil.
func (l *ledger) declares(version int64) (returned func(durable.SetResult)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	least := l.declared
	l.deployed = max(l.deployed, version)
	return func(r durable.SetResult) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.counts["schedule"]++
		if version < least && r.Newer < least {
			l.breaks("set", "version %d is declared after version %d: %+v", version, least, r)
		}
		if r.Newer == 0 {
			l.declared = max(l.declared, version)
		} else {
			l.counts["older sets"]++
		}
	}
}

// lost records the tasks that the engine has lost.
func (l *ledger) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.there {
		if _, ok, err := one(l.engine, key); err != nil || !ok {
			l.breaks("D3", "%s is gone, and has not ended (%v)", key, err)
		}
	}
}

func (l *ledger) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, err := l.engine.Claim(ctx, r)
	for _, s := range got.Tasks {
		l.seen(s.Record, s.Revision)
	}
	return got, err
}

func (l *ledger) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, now, err := l.engine.Join(ctx, name, lease)
	if err == nil {
		l.until[id] = time.Now().Add(lease)
	}
	return id, now, err
}

func (l *ledger) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	members, now, err := l.engine.Renew(ctx, id, report)
	if err == nil && id != 0 {
		newer := bytes.Compare(report, l.reports[id]) > 0 // otherwise it came late, and replaces nothing
		if newer {
			l.reports[id] = bytes.Clone(report)
		}
		switch {
		case !newer:
		case bytes.Contains(report, []byte(`"drained":true`)):
			delete(l.reported, id) // it takes no part, until it is undrained
		case l.reported[id].IsZero():
			l.reported[id] = time.Now()
		}
		l.until[id] = time.Now().Add(l.lease)
	}
	return members, now, err
}

func (l *ledger) Leave(ctx context.Context, id engine.MemberID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[id] = time.Time{}
	return l.engine.Leave(ctx, id)
}

func (l *ledger) Reap(ctx context.Context) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names, err := l.engine.Reap(ctx)
	if len(names) > 0 && time.Since(l.restart) < l.lease {
		l.breaks("D4", "%v are reaped %v after the engine's start", names, time.Since(l.restart))
	}
	return names, err
}

func (l *ledger) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	return l.engine.Release(ctx, by, claims)
}

func (l *ledger) Get(ctx context.Context, keys ...string) ([]engine.Stored, error) {
	return l.engine.Get(ctx, keys...)
}

func (l *ledger) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order != engine.Held {
		return l.engine.Walk(ctx, over)
	}
	return func(yield func(engine.Stored, error) bool) {
		l.mu.Lock()
		all, err := collected(l.engine.Walk(ctx, over))
		l.mu.Unlock()
		yieldAll(all, err, yield)
	}
}

func (l *ledger) Count(ctx context.Context) ([]engine.KindCount, error) {
	return engine.Count(ctx, l.engine)
}

// commit commits a user's transaction with one write.
func (l *ledger) commit(tx *enginetest.Transaction, w engine.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := tx.Commit(); err != nil {
		return // a restart has rolled it back
	}
	l.next()
	t, info := token(w.Record)
	l.new(t, w.Record, info)
	l.there[w.Key] = state{t, w.Due, info.Times, info.GivenUp}
	l.effects[string(info.Payload)] = effect{l.step, w.Due, l.stale()}
}
