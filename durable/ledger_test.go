// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memengine"
)

// A ledger is the account of a simulation, kept outside the nodes. It stands between the links of the nodes and
// the engine and sees every effect in the order in which it takes place. It notes every verb, every call of a
// handler, and what breaks a promise:
//
//	D1  a handler is called before its run is due by the engine's clock, or a task is due before its delay
//	    is over
//	D2  a start is decided after a removal, a replacement or a move of the run has returned, or a handler is
//	    called long after the decision
//	D3  a task is left over at the end, though nodes are alive
//	D4  a start is decided after the member's lease; the fences of a key's starts do not rise; a write takes
//	    effect at a revision that is not the task's last one; two runs overlap although the earlier one's
//	    lease lasts; a member is reaped before the engine has been up for its lease
//	D5  a token runs again after it has been completed, or a task ends or is parked without a run that has
//	    ended so
//	D6  a verb that has returned nil has had no effect, or a task was added that was refused
type ledger struct {
	engine durable.Engine
	lease  time.Duration

	mu       sync.Mutex // protects below
	broken   []string
	step     int                                 // of what has happened
	until    map[durable.MemberID]time.Time      // when the leases run out, by the ledger's own books
	restart  time.Time                           // of the engine
	states   map[durable.Claim]durable.Token     // which run a revision is of
	last     map[string]int64                    // the last revision of each key that was seen
	put      map[durable.Token]int               // the step in which a run came to be, and
	dead     map[durable.Token]int               // from which on it must not be decided to start
	done     map[durable.Token]bool              // runs that were completed
	effects  map[string]effect                   // of the adds, by their payloads
	deleted  map[string]int                      // the step of the last removal of a key
	decided  map[durable.Claim]decision          // the last decision to start
	fences   map[string]int64                    // the greatest fence of the starts of a key
	ended    map[durable.Claim]bool              // calls that have ended well
	running  map[durable.Token]map[*running]bool // calls that have not ended
	attempts int                                 // of each run, before its task is parked
	calls    int
}

type decision struct {
	step int
	by   durable.MemberID
	at   time.Time
}

type effect struct {
	step int
	due  int64
}

type running struct{ by durable.MemberID }

func newLedger(engine durable.Engine, lease time.Duration, attempts int) *ledger {
	return &ledger{
		engine: engine, lease: lease, attempts: attempts,
		until: map[durable.MemberID]time.Time{}, states: map[durable.Claim]durable.Token{}, last: map[string]int64{},
		put: map[durable.Token]int{}, dead: map[durable.Token]int{}, done: map[durable.Token]bool{},
		effects: map[string]effect{}, deleted: map[string]int{}, decided: map[durable.Claim]decision{},
		fences: map[string]int64{}, ended: map[durable.Claim]bool{}, running: map[durable.Token]map[*running]bool{},
	}
}

// breaks notes that a promise is broken.
func (l *ledger) breaks(promise string, format string, args ...any) {
	l.broken = append(l.broken, promise+": "+fmt.Sprintf(format, args...))
}

// exceeded notes that more runs were running on a node than its limit.
func (l *ledger) exceeded(running int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks("limit", "%d runs at the same time", running)
}

func (l *ledger) next() int { l.step++; return l.step }

func token(s durable.Record) (durable.Token, durable.Info) {
	i, err := s.Info()
	if err != nil {
		panic(err)
	}
	return durable.Token{Key: i.Key, Generation: i.Generation, Seq: i.Seq}, i
}

// seen notes the state of a task.
func (l *ledger) seen(r durable.Record, revision int64) {
	t, _ := token(r)
	l.states[durable.Claim{Key: r.Key, Revision: revision}] = t
	l.last[r.Key] = max(l.last[r.Key], revision)
}

func (l *ledger) Commit(ctx context.Context, by durable.MemberID, batches []durable.Batch,
) ([]durable.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	results, err := l.engine.Commit(ctx, by, batches)
	if err != nil {
		return nil, err
	}
	l.next()
	for i, batch := range batches {
		if len(results[i].Unmet) > 0 || results[i].Busy {
			continue
		}
		for j, w := range batch {
			l.wrote(w, results[i].Written[j])
		}
	}
	return results, nil
}

// wrote notes the effect of a write.
func (l *ledger) wrote(w durable.Write, written durable.Written) {
	old := durable.Claim{Key: w.Key, Revision: w.Revision}
	if last := l.last[w.Key]; w.If == durable.IfUnchanged && w.Revision < last {
		l.breaks("D4", "a write of %s takes effect at revision %d, and its last one is %d", w.Key, w.Revision, last)
	}
	if w.Data == nil {
		l.deleted[w.Key] = l.step
		if w.If == durable.IfUnchanged {
			if !l.ended[old] {
				l.breaks("D5", "%v ends without a run that has ended well", l.states[old])
			}
			l.done[l.states[old]] = true
		}
		return
	}
	l.seen(w.Record, written.Revision)
	t, info := token(w.Record)
	if _, there := l.put[t]; !there {
		l.put[t] = l.step
	}
	if w.If != durable.IfUnchanged {
		l.effects[string(info.Payload)] = effect{l.step, w.Due}
	}
	if info.Parked && info.Attempts < l.attempts {
		l.breaks("D5", "%v is parked after %d attempts", t, info.Attempts)
	}
}

func (l *ledger) Confirm(ctx context.Context, by durable.MemberID, claims []durable.Claim,
) ([]bool, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, now, err := l.engine.Confirm(ctx, by, claims)
	if err != nil {
		return nil, 0, err
	}
	l.next()
	for i, c := range claims {
		c.Starts = 0 // as in the keys of the maps
		if !held[i] {
			continue
		}
		t := l.states[c]
		l.decided[c] = decision{l.step, by, time.Now()}
		if dead, is := l.dead[t]; is {
			l.breaks("D2", "the start of %v is decided in step %d, and it was removed in %d", t, l.step, dead)
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

// call notes that a handler is called. It returns the function to call at its end.
func (l *ledger) call(run durable.Run) (end func(err error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
	l.calls++
	c := durable.Claim{Key: run.Key, Revision: run.Fence}
	d, ok := l.decided[c]
	if !ok {
		l.breaks("D2", "a run of %v is called at fence %d without a decision", run.Token, run.Fence)
	}
	const most = 100 * time.Millisecond
	if late := time.Since(d.at); ok && late > most {
		l.breaks("D2", "a run of %v is called %v after the decision", run.Token, late)
	}
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
	r := &running{d.by}
	l.running[run.Token][r] = true
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next()
		delete(l.running[run.Token], r)
		l.ended[c] = l.ended[c] || err == nil
	}
}

// A verb is one that is called: "add", "set", "remove" or "move".
type verb struct {
	what   string
	tasks  []durable.Task // or only their keys; their payloads are unique
	called int
	at     time.Time
}

// verb notes that a verb is called.
func (l *ledger) verb(what string, tasks ...durable.Task) verb {
	l.mu.Lock()
	defer l.mu.Unlock()
	return verb{what, tasks, l.next(), time.Now()}
}

// returned notes that the verb has returned an error, or nothing.
func (l *ledger) returned(v verb, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.next()
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
			} else if early := v.at.Add(task.Delay).UnixNano() - effect.due; early > 0 {
				l.breaks("D1", "%s is due %v before its delay is over", task.Key, time.Duration(early))
			}
		}
		if v.what == "add" {
			continue
		}
		for t, put := range l.put {
			if _, is := l.dead[t]; t.Key == task.Key && put < v.called && !is {
				l.dead[t] = now
			}
		}
	}
}

func (l *ledger) Claim(ctx context.Context, by durable.MemberID, kinds []string, after, until int64, most int,
) ([]durable.Stored, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, now, err := l.engine.Claim(ctx, by, kinds, after, until, most)
	for _, s := range got {
		l.seen(s.Record, s.Revision)
	}
	return got, now, err
}

func (l *ledger) LeaveOut(by durable.MemberID, version byte) { l.engine.LeaveOut(by, version) }

func (l *ledger) Claimed(ctx context.Context, by durable.MemberID) ([]durable.Stored, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine.Claimed(ctx, by)
}

func (l *ledger) Join(ctx context.Context, name string, lease time.Duration) (durable.MemberID, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, now, err := l.engine.Join(ctx, name, lease)
	if err == nil {
		l.until[id] = time.Now().Add(lease)
	}
	return id, now, err
}

func (l *ledger) Renew(ctx context.Context, id durable.MemberID, report []byte) (int64, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, members, err := l.engine.Renew(ctx, id, report)
	if err == nil {
		l.until[id] = time.Now().Add(l.lease)
	}
	return now, members, err
}

func (l *ledger) Leave(ctx context.Context, id durable.MemberID) error {
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

func (l *ledger) Release(ctx context.Context, by durable.MemberID, claims []durable.Claim) error {
	return l.engine.Release(ctx, by, claims)
}

func (l *ledger) Get(ctx context.Context, key string) (durable.Stored, bool, error) {
	return l.engine.Get(ctx, key)
}
func (l *ledger) Census(ctx context.Context) ([]durable.KindCensus, error) {
	return l.engine.Census(ctx)
}
func (l *ledger) Members(ctx context.Context) ([]durable.Membership, error) {
	return l.engine.Members(ctx)
}
func (l *ledger) ByKey(ctx context.Context, from string) iter.Seq2[durable.Stored, error] {
	return l.engine.ByKey(ctx, from)
}
func (l *ledger) Failing(ctx context.Context, from string) iter.Seq2[durable.Stored, error] {
	return l.engine.Failing(ctx, from)
}
func (l *ledger) Due(ctx context.Context, after durable.Position, until int64,
) iter.Seq2[durable.Stored, error] {
	return l.engine.Due(ctx, after, until)
}

// commit commits a user's transaction with one write.
func (l *ledger) commit(tx *memengine.Tx, w durable.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := tx.Commit(); err != nil {
		return // a restart has rolled it back
	}
	l.next()
	t, info := token(w.Record)
	l.put[t] = l.step
	l.effects[string(info.Payload)] = effect{l.step, w.Due}
}
