// SPDX-License-Identifier: MIT

// Package memengine is a [engine.Engine] in memory, for tests: several schedulers of one process share it as
// the nodes of a cluster share a database. It keeps nothing beyond the process and starts no goroutine. Its
// time is time.Now, so it works inside a testing/synctest bubble.
//
// A test can cause trouble: [Engine.Expire] ends a lease, [Engine.Step] sets the clock, [Engine.Restart]
// restarts the engine, [Engine.Begin] begins a transaction that locks tasks and commits them late. A [Link]
// stands between a node and an engine, and delays calls, fails them or loses their answers.
package memengine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/google/btree"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// An Engine is a engine.Engine in memory. Use [New].
type Engine struct {
	mu       sync.Mutex // protects below, and the fields of each Tx
	tasks    map[string]*engine.Stored
	order    *tree // all tasks, by due time and key
	free     *tree // the tasks without an owner, as well,
	turns    *tree // and those by group, due time and key
	keys     *tree // all tasks, by key
	failing  *tree // those that are failing, by key
	members  map[engine.MemberID]*member
	last     engine.MemberID
	revision int64
	offset   time.Duration  // of the engine's clock from time.Now
	up       time.Time      // when it was restarted; zero if never
	locks    map[string]*Tx // which transaction has locked a key

	settings         []byte
	settingsRevision int64
	questions        map[int64]*asked
}

type tree = btree.BTreeG[*engine.Stored]

// A member is a node. Its claims are those of the tasks whose Owner it is.
type member struct {
	name   string
	lease  time.Duration
	until  int64 // when the lease runs out
	claims map[string]bool
	report []byte
	below  int // the versions of records that it may claim
}

// New returns an empty engine. It counts as having been up for a long time.
func New() *Engine {
	return &Engine{
		tasks:   make(map[string]*engine.Stored),
		order:   btree.NewG(32, before),
		free:    btree.NewG(32, before),
		turns:   btree.NewG(32, byGroup),
		keys:    btree.NewG(32, byKey),
		failing: btree.NewG(32, byKey),
		members: make(map[engine.MemberID]*member), questions: make(map[int64]*asked),
		locks: make(map[string]*Tx),
	}
}

// A stored task in the maps and trees never changes: a change replaces it.
func before(a, b *engine.Stored) bool {
	return a.Due < b.Due || a.Due == b.Due && a.Key < b.Key
}

func byGroup(a, b *engine.Stored) bool {
	return a.Group < b.Group || a.Group == b.Group && before(a, b)
}

func byKey(a, b *engine.Stored) bool { return a.Key < b.Key }

// Commit is that of engine.Engine, and so are the other methods of its names.
func (e *Engine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	if err := valid.Batches(batches); err != nil {
		return nil, err
	}
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if len(batches) == 1 {
		if err := e.awaitLocks(ctx, nil, batches[0]); err != nil {
			return nil, err
		}
	}
	results := make([]engine.Result, len(batches))
	for i, batch := range batches {
		results[i] = e.commit(by, batch)
	}
	return results, nil
}

func (e *Engine) commit(by engine.MemberID, batch engine.Batch) (r engine.Result) {
	for _, w := range batch {
		if e.locks[w.Key] != nil {
			return engine.Result{Busy: true}
		}
		if !holds(w, e.tasks[w.Key]) {
			r.Unmet = append(r.Unmet, w.Key)
		}
	}
	if r.Unmet != nil {
		return r
	}
	for _, w := range batch {
		r.Written = append(r.Written, e.write(by, w))
	}
	return r
}

// holds reports whether the condition of the write holds if the key has that task, or none.
func holds(w engine.Write, s *engine.Stored) bool {
	switch w.If {
	case engine.IfAbsent:
		return s == nil
	case engine.IfPresent:
		return s != nil
	case engine.IfUnchanged:
		return s != nil && s.Revision == w.Revision
	case engine.IfUnstarted:
		return s != nil && s.Revision == w.Revision && s.Starts == 0
	}
	return true
}

func (e *Engine) write(by engine.MemberID, w engine.Write) engine.Written {
	done := engine.Written{Replaced: e.tasks[w.Key] != nil}
	if w.Data == nil {
		e.put(w.Key, nil, false)
		return done
	}
	next := engine.Stored{Record: w.Record, Kind: w.Kind, Group: w.Group}
	next.Data = slices.Clone(w.Data)
	if m := e.members[by]; w.Hold && m != nil && e.leased(m) {
		next.Owner = by
	}
	next.Revision = e.put(w.Key, &next, w.Failing)
	done.Revision, done.Held = next.Revision, next.Owner != 0
	return done
}

// put makes next the task of the key, or deletes it if next is nil. It gives next its revision, and returns
// that.
func (e *Engine) put(key string, next *engine.Stored, failing bool) int64 {
	if old := e.tasks[key]; old != nil {
		e.order.Delete(old)
		e.keys.Delete(old)
		e.failing.Delete(old)
		if old.Owner == 0 {
			e.free.Delete(old)
			e.turns.Delete(old)
		} else if m := e.members[old.Owner]; m != nil {
			delete(m.claims, key)
		}
	}
	if next == nil {
		delete(e.tasks, key)
		return 0
	}
	e.revision++
	next.Revision = e.revision
	e.tasks[key] = next
	e.order.ReplaceOrInsert(next)
	e.keys.ReplaceOrInsert(next)
	if failing {
		e.failing.ReplaceOrInsert(next)
	}
	if next.Owner == 0 {
		e.free.ReplaceOrInsert(next)
		e.turns.ReplaceOrInsert(next)
	} else {
		e.members[next.Owner].claims[key] = true
	}
	return next.Revision
}

// give changes the owner of the task, which raises its revision.
func (e *Engine) give(s *engine.Stored, to engine.MemberID) *engine.Stored {
	next := *s
	next.Owner = to
	e.put(s.Key, &next, e.failing.Has(s))
	return &next
}

func (e *Engine) Get(ctx context.Context, key string) (s engine.Stored, ok bool, err error) {
	if err := e.lock(ctx); err != nil {
		return s, false, err
	}
	defer e.mu.Unlock()
	if found := e.tasks[key]; found != nil {
		return clone(found), true, nil
	}
	return s, false, nil
}

func (e *Engine) GetMany(ctx context.Context, keys []string) (found []engine.Stored, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if s := e.tasks[key]; s != nil && !seen[key] {
			seen[key] = true
			found = append(found, clone(s))
		}
	}
	return found, nil
}

// clone returns a copy that the caller may change.
func clone(s *engine.Stored) engine.Stored {
	own := *s
	own.Data = slices.Clone(s.Data)
	return own
}

// Due walks over the tasks as they are when the walk begins.
func (e *Engine) Due(ctx context.Context, after engine.Position, until int64,
) iter.Seq2[engine.Stored, error] {
	return e.walk(ctx, e.order, at(after.Due, after.Key), func(s *engine.Stored) (in, more bool) {
		return s.Position() != after, s.Due <= until
	})
}

// walk yields the tasks of an order from one on that are in, while there are more, as they are when the walk
// begins.
func (e *Engine) walk(ctx context.Context, order *tree, from *engine.Stored,
	is func(*engine.Stored) (in, more bool),
) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		if err := e.lock(ctx); err != nil {
			yield(engine.Stored{}, err)
			return
		}
		now := order.Clone()
		e.mu.Unlock()
		now.AscendGreaterOrEqual(from, func(s *engine.Stored) bool {
			if err := ctx.Err(); err != nil {
				yield(engine.Stored{}, fmt.Errorf("memengine: %w", err))
				return false
			}
			in, more := is(s)
			return !in || more && yield(clone(s), nil)
		})
	}
}

func all(*engine.Stored) (in, more bool) { return true, true }

// ByKey walks over the tasks as they are when the walk begins, and so does Failing.
func (e *Engine) ByKey(ctx context.Context, from string) iter.Seq2[engine.Stored, error] {
	return e.walk(ctx, e.keys, at(0, from), all)
}

func (e *Engine) Failing(ctx context.Context, from string) iter.Seq2[engine.Stored, error] {
	return e.walk(ctx, e.failing, at(0, from), all)
}

func at(due int64, key string) *engine.Stored {
	return &engine.Stored{Record: engine.Record{Due: due, Key: key}}
}

func (e *Engine) Census(ctx context.Context) ([]engine.KindCount, error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	of := make(map[string]*engine.KindCount)
	for _, s := range e.tasks {
		k := of[s.Kind]
		if k == nil {
			k = &engine.KindCount{Kind: s.Kind}
			of[s.Kind] = k
		}
		k.Tasks++
		switch {
		case s.Due == math.MaxInt64-1:
			k.Paused++
			continue
		case s.Due == math.MaxInt64:
			k.Parked++
		}
		if e.failing.Has(s) {
			k.Failing++
		}
	}
	kinds := make([]engine.KindCount, 0, len(of))
	for _, k := range of {
		kinds = append(kinds, *k)
	}
	return kinds, nil
}

func (e *Engine) Now(ctx context.Context) (int64, error) {
	if err := e.lock(ctx); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	return e.now(), nil
}

func (e *Engine) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	if err := e.lock(ctx); err != nil {
		return 0, 0, err
	}
	defer e.mu.Unlock()
	e.last++
	now := e.now()
	e.members[e.last] = &member{name: name, lease: lease, until: now + int64(lease), claims: make(map[string]bool),
		below: math.MaxInt}
	return e.last, now, nil
}

func (e *Engine) Renew(ctx context.Context, id engine.MemberID, report []byte,
) (now int64, members int, err error) {
	if err := valid.Report(report); err != nil {
		return 0, 0, err
	}
	m, err := e.lockAs(ctx, id)
	if err != nil {
		return 0, 0, err
	}
	defer e.mu.Unlock()
	now = e.now()
	m.until = now + int64(m.lease)
	if bytes.Compare(report, m.report) > 0 {
		m.report = slices.Clone(report)
	}
	for _, m := range e.members {
		if e.leased(m) {
			members++
		}
	}
	return now, members, nil
}

func (e *Engine) Members(ctx context.Context) (all []engine.Membership, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	for id, m := range e.members {
		all = append(all, engine.Membership{
			ID: id, Name: m.name, Lease: m.lease, Left: time.Duration(m.until - e.now()), Held: len(m.claims),
			Report: slices.Clone(m.report),
		})
	}
	return all, nil
}

func (e *Engine) Leave(ctx context.Context, id engine.MemberID) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	e.end(id)
	return nil
}

// end ends the member, if it is one.
func (e *Engine) end(id engine.MemberID) {
	for _, s := range e.claimed(id) {
		e.give(s, 0)
	}
	delete(e.members, id)
}

// claimed returns what the member holds, in order of due time and key.
func (e *Engine) claimed(id engine.MemberID) []*engine.Stored {
	m := e.members[id]
	if m == nil {
		return nil
	}
	all := make([]*engine.Stored, 0, len(m.claims))
	for key := range m.claims {
		all = append(all, e.tasks[key])
	}
	slices.SortFunc(all, func(a, b *engine.Stored) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), strings.Compare(a.Key, b.Key))
	})
	return all
}

func (e *Engine) Reap(ctx context.Context) (names []string, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	for id := range e.last {
		id++ // they are numbered from 1
		if m := e.members[id]; m != nil && !e.leased(m) && time.Since(e.up) > m.lease {
			e.end(id)
			names = append(names, m.name)
		}
	}
	return names, nil
}

func (e *Engine) Claim(ctx context.Context, by engine.MemberID, kinds []string, after, until int64, most int,
) (got []engine.Stored, now int64, err error) {
	m, err := e.lockAs(ctx, by)
	if err != nil {
		return nil, 0, err
	}
	defer e.mu.Unlock()
	now = e.now()
	if !e.leased(m) || after == math.MaxInt64 {
		return nil, now, nil
	}
	var found []*engine.Stored // the tree must not change while it is walked
	e.free.AscendGreaterOrEqual(at(after+1, ""), func(s *engine.Stored) bool {
		if s.Due > until || len(found) >= most {
			return false
		}
		if e.claimable(m, kinds, s) {
			found = append(found, s)
		}
		return true
	})
	return e.giveAll(found, by), now, nil
}

// claimable reports whether the member may claim the task, which is free, for these kinds.
func (e *Engine) claimable(m *member, kinds []string, s *engine.Stored) bool {
	return e.locks[s.Key] == nil && slices.Contains(kinds, s.Kind) && (len(s.Data) == 0 || int(s.Data[0]) < m.below)
}

func (e *Engine) giveAll(found []*engine.Stored, to engine.MemberID) (got []engine.Stored) {
	for _, s := range found {
		got = append(got, clone(e.give(s, to)))
	}
	return got
}

func (e *Engine) ClaimTurns(ctx context.Context, by engine.MemberID, kinds []string, group string, until int64,
	most int,
) (got []engine.Stored, next string, now int64, err error) {
	m, err := e.lockAs(ctx, by)
	if err != nil {
		return nil, "", 0, err
	}
	defer e.mu.Unlock()
	now = e.now()
	if !e.leased(m) || most <= 0 {
		return nil, group, now, nil
	}
	var firsts []*engine.Stored // of each group
	next = group
	for ended := false; !ended && len(firsts) < most; {
		next = e.groupAfter(next)
		firsts = append(firsts, e.firstOf(m, kinds, next, until, 1)...)
		ended = next == ""
	}
	if group == "" && next == "" && len(firsts) > 0 {
		each := max(most/len(firsts), 1)
		var more []*engine.Stored
		for _, s := range firsts {
			more = append(more, e.firstOf(m, kinds, s.Group, until, each)...)
		}
		firsts = more
	}
	return e.giveAll(firsts, by), next, now, nil
}

// groupAfter returns the next group that has a free task, or that of the tasks without one, which is empty.
func (e *Engine) groupAfter(group string) (next string) {
	e.turns.AscendGreaterOrEqual(&engine.Stored{Group: group + "\x00"}, func(s *engine.Stored) bool {
		next = s.Group
		return false
	})
	return next
}

// firstOf returns the earliest tasks of the group that the member may claim, at most that many.
func (e *Engine) firstOf(m *member, kinds []string, group string, until int64, most int) (found []*engine.Stored) {
	from := &engine.Stored{Group: group, Record: engine.Record{Due: math.MinInt64}}
	e.turns.AscendGreaterOrEqual(from, func(s *engine.Stored) bool {
		if s.Group != group || s.Due > until || len(found) == most {
			return false
		}
		if e.claimable(m, kinds, s) {
			found = append(found, s)
		}
		return true
	})
	return found
}

func (e *Engine) LeaveOut(by engine.MemberID, version byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.members[by]; m != nil {
		m.below = min(m.below, int(version))
	}
}

func (e *Engine) Claimed(ctx context.Context, by engine.MemberID) (held []engine.Stored, err error) {
	if _, err := e.lockAs(ctx, by); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	for _, s := range e.claimed(by) {
		held = append(held, clone(s))
	}
	return held, nil
}

func (e *Engine) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim,
) (held []bool, now int64, err error) {
	m, err := e.lockAs(ctx, by)
	if err != nil {
		return nil, 0, err
	}
	defer e.mu.Unlock()
	held = make([]bool, len(claims))
	for i, c := range claims {
		if s := e.held(by, c); s != nil && e.leased(m) && e.locks[c.Key] == nil {
			next := *s
			next.Starts, next.Started = c.Starts+1, e.now()
			e.replace(&next)
			held[i] = true
		}
	}
	return held, e.now(), nil
}

// held returns the task of the claim, or nil if the member does not hold it at that revision.
func (e *Engine) held(by engine.MemberID, c engine.Claim) *engine.Stored {
	if s := e.tasks[c.Key]; s != nil && s.Owner == by && s.Revision == c.Revision {
		return s
	}
	return nil
}

// replace replaces a task with one of the same key, due time, owner and revision.
func (e *Engine) replace(next *engine.Stored) {
	e.tasks[next.Key] = next
	e.order.ReplaceOrInsert(next)
	e.keys.ReplaceOrInsert(next)
	if e.failing.Has(next) {
		e.failing.ReplaceOrInsert(next)
	}
	if next.Owner == 0 {
		e.free.ReplaceOrInsert(next)
		e.turns.ReplaceOrInsert(next)
	}
}

func (e *Engine) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	if _, err := e.lockAs(ctx, by); err != nil {
		return err
	}
	defer e.mu.Unlock()
	for _, c := range claims {
		if s := e.held(by, c); s != nil && s.Starts == c.Starts && e.locks[c.Key] == nil {
			e.give(s, 0)
		}
	}
	return nil
}

func (e *Engine) Settings(ctx context.Context) (settings []byte, revision int64, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer e.mu.Unlock()
	return slices.Clone(e.settings), e.settingsRevision, nil
}

func (e *Engine) SetSettings(ctx context.Context, settings []byte, revision int64) (done bool, err error) {
	if err := valid.Settings(settings); err != nil {
		return false, err
	}
	if err := e.lock(ctx); err != nil {
		return false, err
	}
	defer e.mu.Unlock()
	if revision != e.settingsRevision {
		return false, nil
	}
	e.settings, e.settingsRevision = slices.Clone(settings), revision+1
	return true, nil
}

// lock locks the engine for a call, unless its context is done.
func (e *Engine) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memengine: %w", err)
	}
	e.mu.Lock()
	return nil
}

// lockAs locks the engine for a call of the member.
func (e *Engine) lockAs(ctx context.Context, id engine.MemberID) (*member, error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	if m := e.members[id]; m != nil {
		return m, nil
	}
	e.mu.Unlock()
	return nil, fmt.Errorf("memengine: member %d: %w", id, engine.ErrMemberGone)
}

func (e *Engine) now() int64 { return time.Now().Add(e.offset).UnixNano() }

// leased reports whether the member's lease has not run out.
func (e *Engine) leased(m *member) bool { return e.now() < m.until }

// Expire makes the leases of all members with that name run out now. A member can still renew its lease until
// it is reaped.
func (e *Engine) Expire(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members {
		if m.name == name {
			m.until = min(m.until, e.now())
		}
	}
}

// Step sets the engine's clock forwards by d, or back if d is negative.
func (e *Engine) Step(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offset += d
}

// Restart is a crash of the engine, and its start right after it. What was committed stays, and so do the
// members, none of which is reaped until its lease has passed. Open transactions are rolled back, and the
// counts of starts are lost.
func (e *Engine) Restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up = time.Now()
	for _, tx := range e.locks {
		tx.end()
	}
	for _, s := range e.tasks {
		next := *s
		next.Starts, next.Started = 0, 0
		e.replace(&next)
	}
}
