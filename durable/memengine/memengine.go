// SPDX-License-Identifier: MIT

// Package memengine provides an in-memory [engine.Engine] for tests. Several schedulers in one process can share an
// engine, as the nodes of a cluster share a database. Its contents do not outlive the process, and it starts no
// goroutines. It uses time.Now as its clock, so it works inside a testing/synctest bubble.
//
// A test can simulate failures. [Engine.Expire] expires leases, [Engine.Step] moves the clock, and [Engine.Restart]
// restarts the engine. [Engine.Begin] begins a transaction, which locks tasks and can commit late. A [Link] connects a
// node to an engine, and can delay calls, make them fail or lose their responses.
package memengine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/google/btree"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// An Engine is an in-memory engine.Engine. Use [New] to create one.
type Engine struct {
	mu       sync.Mutex // protects the fields below and the fields of each Tx
	tasks    map[string]*engine.Stored
	order    *tree // all tasks, by due time and key
	free     *tree // free tasks, by due time and key
	turns    *tree // free tasks, by group, due time and key
	keys     *tree // all tasks, by key
	failing  *tree // failing tasks, by key
	notes    *tree // notes, by name
	members  map[engine.MemberID]*member
	revision int64
	offset   time.Duration  // offset of the engine's clock from time.Now
	up       time.Time      // time of the last Restart; zero if there was none
	locks    map[string]*Tx // locked keys, and the transaction that has locked each
}

type tree = btree.BTreeG[*engine.Stored]

// A member is a node. It holds the tasks whose Owner is the member's ID.
type member struct {
	name   string
	lease  time.Duration
	until  int64 // when the lease expires
	claims map[string]bool
	report []byte
}

// New returns an empty engine, which counts as having been up for a long time.
func New() *Engine {
	return &Engine{
		tasks:   make(map[string]*engine.Stored),
		order:   btree.NewG(32, before),
		free:    btree.NewG(32, before),
		turns:   btree.NewG(32, byGroup),
		keys:    btree.NewG(32, byKey),
		failing: btree.NewG(32, byKey),
		notes:   btree.NewG(32, byKey),
		members: make(map[engine.MemberID]*member),
		locks:   make(map[string]*Tx),
	}
}

// A stored task in the maps and trees is never modified. A change replaces it.
func before(a, b *engine.Stored) bool {
	return a.Due < b.Due || a.Due == b.Due && a.Key < b.Key
}

func byGroup(a, b *engine.Stored) bool {
	return a.Group < b.Group || a.Group == b.Group && before(a, b)
}

func byKey(a, b *engine.Stored) bool { return a.Key < b.Key }

// Commit implements engine.Engine, as do the other methods of that interface.
func (e *Engine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	if err := valid.Batches(batches); err != nil {
		return nil, err
	}
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	arrived := e.now()
	if len(batches) == 1 && !batches[0].IsLate(arrived) {
		if err := e.awaitLocks(ctx, nil, batches[0]); err != nil {
			return nil, err
		}
	}
	results := make([]engine.Result, len(batches))
	for i, batch := range batches {
		if batch.IsLate(arrived) {
			results[i].Late = arrived
		} else {
			results[i] = e.commit(by, batch)
		}
	}
	return results, nil
}

func (e *Engine) commit(by engine.MemberID, batch engine.Batch) (r engine.Result) {
	for _, w := range batch {
		if e.locked(w) != nil {
			return engine.Result{Busy: true}
		}
		if !w.Holds(e.present(w)) {
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

// present returns the current task or note that the write applies to, or nil if there is none.
func (e *Engine) present(w engine.Write) *engine.Stored {
	if !w.Note {
		return e.tasks[w.Key]
	}
	note, _ := e.notes.Get(at(0, w.Key))
	return note
}

// locked returns the transaction that has locked the key of the write, or nil.
func (e *Engine) locked(w engine.Write) *Tx {
	if w.Note {
		return nil
	}
	return e.locks[w.Key]
}

func (e *Engine) write(by engine.MemberID, w engine.Write) engine.Written {
	done := engine.Written{Replaced: e.present(w) != nil}
	if w.Note {
		done.Revision = e.writeNote(w)
		return done
	}
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

// writeNote writes or deletes the note. It returns the note's new revision, or 0 if the note is deleted.
func (e *Engine) writeNote(w engine.Write) int64 {
	if w.Data == nil {
		e.notes.Delete(at(0, w.Key))
		return 0
	}
	e.revision++
	note := at(0, w.Key)
	note.Data, note.Revision = slices.Clone(w.Data), e.revision
	e.notes.ReplaceOrInsert(note)
	return note.Revision
}

// put sets the task with the key, or deletes it if next is nil. It assigns a new revision to next and returns that
// revision.
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

// give changes the task's owner and assigns a new revision.
func (e *Engine) give(s *engine.Stored, to engine.MemberID) *engine.Stored {
	next := *s
	next.Owner = to
	e.put(s.Key, &next, e.failing.Has(s))
	return &next
}

func (e *Engine) Get(ctx context.Context, keys ...string) (found []engine.Stored, err error) {
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

// clone returns a copy that the caller may modify.
func clone(s *engine.Stored) engine.Stored {
	own := *s
	own.Data = slices.Clone(s.Data)
	return own
}

// Walk yields the tasks or notes as they are when the walk begins.
func (e *Engine) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		begin, err := e.walk(ctx, over)
		if err != nil {
			yield(engine.Stored{}, err)
			return
		}
		begin(func(s *engine.Stored) bool {
			if err := ctx.Err(); err != nil {
				yield(engine.Stored{}, fmt.Errorf("memengine: %w", err))
				return false
			}
			return yield(clone(s), nil)
		})
	}
}

// walk returns an iterator over the current tasks or notes in the range.
func (e *Engine) walk(ctx context.Context, over engine.Range) (iter.Seq[*engine.Stored], error) {
	if over.Order == engine.Held {
		if _, err := e.lockAs(ctx, over.By); err != nil {
			return nil, err
		}
		defer e.mu.Unlock()
		return slices.Values(e.claimed(over.By)), nil
	}
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if over.Order == engine.ByDue {
		order := e.order.Clone()
		return func(yield func(*engine.Stored) bool) {
			order.AscendGreaterOrEqual(at(over.After.Due, over.After.Key), func(s *engine.Stored) bool {
				return s.Position() == over.After || s.Due <= over.Until && yield(s)
			})
		}, nil
	}
	of := map[engine.Order]*tree{engine.ByKey: e.keys, engine.Failing: e.failing, engine.Notes: e.notes}[over.Order]
	if of == nil {
		return nil, fmt.Errorf("memengine: unknown order %d", over.Order)
	}
	order := of.Clone()
	return func(yield func(*engine.Stored) bool) {
		order.AscendGreaterOrEqual(at(0, over.From), func(s *engine.Stored) bool {
			if over.To != "" && s.Key >= over.To {
				return false
			}
			if over.Bare {
				bare := *s
				bare.Data, s = nil, &bare
			}
			return yield(s)
		})
	}, nil
}

func at(due int64, key string) *engine.Stored {
	return &engine.Stored{Record: engine.Record{Due: due, Key: key}}
}

func (e *Engine) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	if err := e.lock(ctx); err != nil {
		return 0, 0, err
	}
	defer e.mu.Unlock()
	now := e.now()
	id := engine.NewMemberID(now)
	e.members[id] = &member{name: name, lease: lease, until: now + int64(lease), claims: make(map[string]bool)}
	return id, now, nil
}

func (e *Engine) Renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, err error) {
	if err := valid.Report(report); err != nil {
		return nil, 0, err
	}
	if err := e.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer e.mu.Unlock()
	now = e.now()
	if by != 0 {
		m := e.members[by]
		if m == nil {
			return nil, 0, gone(by)
		}
		m.until = now + int64(m.lease)
		if bytes.Compare(report, m.report) > 0 {
			m.report = slices.Clone(report)
		}
	}
	for id, m := range e.members {
		members = append(members, engine.Membership{
			ID: id, Name: m.name, Lease: m.lease, Left: time.Duration(m.until - now), Report: slices.Clone(m.report),
		})
	}
	return members, now, nil
}

func (e *Engine) Leave(ctx context.Context, id engine.MemberID) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	e.end(id)
	return nil
}

// end ends the member if it exists.
func (e *Engine) end(id engine.MemberID) {
	for _, s := range e.claimed(id) {
		e.give(s, 0)
	}
	delete(e.members, id)
}

// claimed returns the tasks that the member holds, in order of due time and key.
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
	for _, id := range slices.Sorted(maps.Keys(e.members)) {
		m := e.members[id]
		m.until = min(m.until, e.now()+int64(m.lease)) // the clock may have been ahead
		if !e.leased(m) && time.Since(e.up) > m.lease {
			e.end(id)
			names = append(names, m.name)
		}
	}
	return names, nil
}

func (e *Engine) Claim(ctx context.Context, r engine.ClaimRequest) (got engine.Claims, err error) {
	m, err := e.lockAs(ctx, r.By)
	if err != nil {
		return got, err
	}
	defer e.mu.Unlock()
	got.Now, got.Next = e.now(), r.Group
	if !e.leased(m) || r.Most <= 0 {
		return got, nil
	}
	found := e.earliest // finds first and claims later, because a tree must not change during iteration
	if r.Fair {
		found = e.turn
	}
	var some []*engine.Stored
	some, got.Next = found(r)
	for _, s := range some {
		got.Tasks = append(got.Tasks, clone(e.give(s, r.By)))
	}
	return got, nil
}

// earliest returns the tasks for a claim that is not fair.
func (e *Engine) earliest(r engine.ClaimRequest) (found []*engine.Stored, next string) {
	if r.After == math.MaxInt64 {
		return nil, ""
	}
	e.free.AscendGreaterOrEqual(at(r.After+1, ""), func(s *engine.Stored) bool {
		if s.Due > r.Until || len(found) >= r.Most {
			return false
		}
		if e.claimable(r, s) {
			found = append(found, s)
		}
		return true
	})
	return found, ""
}

// claimable reports whether the free task matches the request and is not locked.
func (e *Engine) claimable(r engine.ClaimRequest, s *engine.Stored) bool {
	return e.locks[s.Key] == nil && slices.Contains(r.Kinds, s.Kind) && (len(s.Data) == 0 || s.Data[0] <= r.Readable)
}

// turn returns the tasks for a fair claim, and the last group that it has visited.
func (e *Engine) turn(r engine.ClaimRequest) (found []*engine.Stored, next string) {
	next = r.Group
	for ended := false; !ended && len(found) < r.Most; { // the first task of each group
		next = e.groupAfter(next)
		found = append(found, e.firstOf(r, next, 1)...)
		ended = next == ""
	}
	if r.Group != "" || next != "" || len(found) == 0 {
		return found, next
	}
	each := max(r.Most/len(found), 1)
	var more []*engine.Stored
	for _, s := range found {
		more = append(more, e.firstOf(r, s.Group, each)...)
	}
	return more, ""
}

// groupAfter returns the next group that has a free task. It returns the empty group, which has the tasks without a
// group, if there is no other.
func (e *Engine) groupAfter(group string) (next string) {
	e.turns.AscendGreaterOrEqual(&engine.Stored{Group: group + "\x00"}, func(s *engine.Stored) bool {
		next = s.Group
		return false
	})
	return next
}

// firstOf returns up to most claimable tasks in the group, the earliest first.
func (e *Engine) firstOf(r engine.ClaimRequest, group string, most int) (found []*engine.Stored) {
	from := &engine.Stored{Group: group, Record: engine.Record{Due: math.MinInt64}}
	e.turns.AscendGreaterOrEqual(from, func(s *engine.Stored) bool {
		if s.Group != group || s.Due > r.Until || len(found) == most {
			return false
		}
		if e.claimable(r, s) {
			found = append(found, s)
		}
		return true
	})
	return found
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

// held returns the claimed task, or nil if the member does not hold it at that revision.
func (e *Engine) held(by engine.MemberID, c engine.Claim) *engine.Stored {
	if s := e.tasks[c.Key]; s != nil && s.Owner == by && s.Revision == c.Revision {
		return s
	}
	return nil
}

// replace replaces a task with one that has the same key, due time, owner and revision.
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

// lock locks the engine for a call. If ctx is done, it returns an error instead.
func (e *Engine) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memengine: %w", err)
	}
	e.mu.Lock()
	return nil
}

// lockAs locks the engine for a call by the member. If the member is gone, it returns an error instead.
func (e *Engine) lockAs(ctx context.Context, id engine.MemberID) (*member, error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	if m := e.members[id]; m != nil {
		return m, nil
	}
	e.mu.Unlock()
	return nil, gone(id)
}

func gone(id engine.MemberID) error {
	return fmt.Errorf("memengine: member %d: %w", id, engine.ErrMemberGone)
}

func (e *Engine) now() int64 { return time.Now().Add(e.offset).UnixNano() }

// leased reports whether the member's lease has not expired.
func (e *Engine) leased(m *member) bool { return e.now() < m.until }

// Expire makes the leases of all members with that name expire now. A member can still renew its lease until it is
// reaped.
func (e *Engine) Expire(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members {
		if m.name == name {
			m.until = min(m.until, e.now())
		}
	}
}

// Step moves the engine's clock forward by d, or back if d is negative.
func (e *Engine) Step(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offset += d
}

// Restart simulates a crash and an immediate restart of the engine. Committed tasks and members are preserved, but no
// member is reaped until its lease has passed once more. Open transactions are rolled back, and start counts are lost.
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
