// SPDX-License-Identifier: MIT

// Package enginetest tests whether an [engine.Engine] satisfies its contract. An engine's own test calls it:
//
//	func TestEngine(t *testing.T) {
//		enginetest.Test(t, func(t *testing.T) enginetest.Subject {
//			return enginetest.Subject{Engine: open(t)} // an engine without tasks and members
//		})
//	}
//
// The tests use the real clock and take seconds in total. No test depends on the speed of the engine.
//
// Tests of schedulers can simulate failures on an engine of any type. A [Link] connects a node to it, and can delay
// calls, make them fail or lose their answers. A [Locks] adds transactions, which lock tasks and can commit late.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Subject is an engine under test, without tasks or members, together with optional functions that act on it from
// outside the contract.
type Subject struct {
	engine.Engine

	// Begin begins a transaction as a user of the engine would. If it is nil, the transaction tests are skipped.
	Begin func(t *testing.T) Tx

	// Restart restarts the engine and preserves its data. If it is nil, the restart test is skipped.
	Restart func(t *testing.T)
}

// A Tx is a transaction of the engine's user. Its writes become visible at Commit, and their keys are locked until the
// transaction ends.
type Tx interface {
	// Write executes the writes, and returns the keys whose conditions do not hold. If there are any, the other writes
	// may have been executed, and the transaction can only be rolled back.
	Write(ctx context.Context, writes ...engine.Write) (unmet []string, err error)
	Commit() error
	Rollback()
}

// Test runs the suite. It calls open for each test.
func Test(t *testing.T, open func(t *testing.T) Subject) {
	for _, c := range []struct {
		name string
		test func(s *subject)
	}{
		{"empty", empty},
		{"calls whose context is done", contextDone},
		{"conditions", conditions},
		{"batches are whole or not", batchesWhole},
		{"what was added, changed and removed", addChangeRemove},
		{"revisions only rise", revisionsRise},
		{"bytes are copied", bytesCopied},
		{"any bytes", anyBytes},
		{"many keys at once", manyKeys},
		{"large records", largeRecords},
		{"100,000 tasks", manyTasks},
		{"one of many commits wins", oneWins},
		{"commits of the same keys", sameKeys},
		{"commit whose answer was lost", lostCommit},
		{"commits that come too late", lateWrites},

		{"due order and bounds", dueOrder},
		{"due walk during changes", dueDuringChanges},
		{"key order", keyOrder},
		{"failing", failing},
		{"census", census},
		{"notes", notes},
		{"conditions of notes", noteConditions},
		{"notes are no tasks", notesAreNoTasks},
		{"notes in batches", notesInBatches},
		{"many notes", manyNotes},
		{"one note of several writers", noteOfSeveral},

		{"the clock", clock},
		{"a lease, to its end and renewed", lease},
		{"a member whose lease ran out", expired},
		{"reap", reap},
		{"reap several", reapSeveral},
		{"leave", leave},
		{"members", members},
		{"a restarted engine reaps late", restart},

		{"hold", hold},
		{"what claim gives", claimGives},
		{"claims of many kinds are of the earliest", claimsEarliest},
		{"claims in turns", claimTurns},
		{"claims in turns are even", claimTurnsEvenly},
		{"claims in turns of several kinds", claimTurnsOfKinds},
		{"claims in turns of several versions", claimTurnsOfVersions},
		{"claims in turns of many groups", claimTurnsOfMany},
		{"claims are exclusive", claimsExclusive},
		{"records of later versions", laterVersions},
		{"claims whose answer was lost", lostClaims},
		{"claim against reap", claimAgainstReap},
		{"confirm", confirm},
		{"starts", starts},
		{"a start against a write of what is unstarted", startAgainstUnstarted},
		{"a start against a write", startAgainstWrite},
		{"confirm sees every removal", confirmSeesRemovals},
		{"a confirmed run that may begin", mayBegin},
		{"release", release},

		{"late commit", inTx(lateCommit)},
		{"commit meets a lock", inTx(commitMeetsLock)},
		{"commit waits for a lock", inTx(commitWaits)},
		{"claim and confirm meet a lock", inTx(claimMeetsLock)},
		{"claims of several kinds meet locks", inTx(claimsMeetLocks)},
		{"completion in a transaction", inTx(completion)},
		{"reap and leave meet a lock", inTx(reapMeetsLock)},
		{"release meets a lock", inTx(releaseMeetsLock)},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
			defer cancel()
			c.test(&subject{Subject: open(t), t: t, ctx: ctx})
		})
	}
}

// A subject is the engine under test in one test. ctx ends a test that hangs.
type subject struct {
	Subject
	t   *testing.T
	ctx context.Context
}

const (
	kind  = "kind"
	long  = time.Hour              // a lease that does not expire during a test
	short = 100 * time.Millisecond // a lease that expires during a test
)

// ahead is a due time for tasks that a test is not about.
const ahead = int64(1) << 61

// put returns a write that puts a record of kind.
func put(key string, due int64, cond engine.Condition) engine.Write {
	data := fmt.Sprintf("data of %.20q at %d", key, due)
	return engine.Write{Record: engine.Record{Key: key, Due: due, Data: []byte(data)}, Kind: kind, If: cond}
}

func add(key string, due int64) engine.Write { return put(key, due, engine.IfAbsent) }

func remove(key string) engine.Write {
	return engine.Write{Record: engine.Record{Key: key}, If: engine.IfPresent}
}

// unchanged returns w with the condition that the task still has the revision.
func unchanged(w engine.Write, revision int64) engine.Write {
	w.If, w.Revision = engine.IfUnchanged, revision
	return w
}

func held(w engine.Write) engine.Write {
	w.Hold = true
	return w
}

// check fails the test if err is not nil.
func (s *subject) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// commits commits the batches. If a batch is busy because another goroutine's commit holds a lock, it commits that
// batch again by itself.
func (s *subject) commits(by engine.MemberID, batches ...engine.Batch) []engine.Result {
	s.t.Helper()
	results, err := s.Commit(s.ctx, by, batches)
	s.check(err)
	if len(results) != len(batches) {
		s.t.Fatalf("%d results of %d batches", len(results), len(batches))
	}
	for i, r := range results {
		switch {
		case r.Busy && len(batches) == 1:
			s.t.Fatal("the result of a commit of one batch is Busy")
		case r.Busy:
			results[i] = s.commits(by, batches[i])[0]
		case len(r.Unmet) > 0 && len(r.Written) > 0:
			s.t.Fatalf("a batch is both unmet and written: %+v", r)
		case r.Late != 0 && (len(r.Unmet) > 0 || len(r.Written) > 0):
			s.t.Fatalf("a batch is both late and done: %+v", r)
		case r.Wait > 0 && (r.Late != 0 || len(r.Unmet) > 0 || len(r.Written) > 0):
			s.t.Fatalf("a batch has to wait and is done: %+v", r)
		case r.Late == 0 && r.Wait == 0 && len(r.Unmet) == 0 && len(r.Written) != len(batches[i]):
			s.t.Fatalf("%d writes of %d", len(r.Written), len(batches[i]))
		}
	}
	return results
}

// commit commits the writes as one batch.
func (s *subject) commit(by engine.MemberID, writes ...engine.Write) engine.Result {
	s.t.Helper()
	return s.commits(by, writes)[0]
}

// write commits a single write. Its condition must hold.
func (s *subject) write(by engine.MemberID, w engine.Write) engine.Written {
	s.t.Helper()
	r := s.commit(by, w)
	if len(r.Unmet) > 0 || r.Wait > 0 {
		s.t.Fatalf("the condition of the write of %.20q does not hold, or it has to wait: %+v", w.Key, r)
	}
	return r.Written[0]
}

// add adds n tasks that are due at the first n instants after base, and returns their keys.
func (s *subject) add(n int, base int64) (keys []string) {
	s.t.Helper()
	var batch engine.Batch
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%06d", i))
		batch = append(batch, add(keys[i], base+1+int64(i)))
	}
	if r := s.commit(0, batch...); len(r.Unmet) > 0 {
		s.t.Fatalf("the keys %.100q are not free", r.Unmet)
	}
	return keys
}

// get returns the task with the key. The task must exist.
func (s *subject) get(key string) engine.Stored {
	s.t.Helper()
	found, err := s.Get(s.ctx, key)
	s.check(err)
	if len(found) != 1 {
		s.t.Fatalf("key %.20q has %d tasks", key, len(found))
	}
	return found[0]
}

func (s *subject) absent(key string) {
	s.t.Helper()
	if found, err := s.Get(s.ctx, key); len(found) > 0 || err != nil {
		s.t.Errorf("Get(%.20q) = %.100v, %v, want none", key, found, err)
	}
}

// is checks that the task with the key matches the write.
func (s *subject) is(key string, want engine.Write) {
	s.t.Helper()
	got := s.get(key)
	if got.Key != want.Key || got.Due != want.Due || got.Kind != want.Kind || !bytes.Equal(got.Data, want.Data) {
		s.t.Errorf("the task is %.20q due %d of kind %.20q with %d bytes, want %.20q due %d of kind %.20q with %d",
			got.Key, got.Due, got.Kind, len(got.Data), want.Key, want.Due, want.Kind, len(want.Data))
	}
}

func (s *subject) len() int {
	s.t.Helper()
	kinds, err := engine.Count(s.ctx, s.Engine)
	s.check(err)
	n := 0
	for _, k := range kinds {
		n += k.Tasks
	}
	return n
}

// due returns the tasks that the engine yields for that range.
func (s *subject) due(after engine.Position, until int64) (all []engine.Stored) {
	s.t.Helper()
	return s.walk(engine.Range{After: after, Until: until})
}

func (s *subject) walk(over engine.Range) (all []engine.Stored) {
	s.t.Helper()
	for found, err := range s.Walk(s.ctx, over) {
		s.check(err)
		all = append(all, found)
	}
	return all
}

// now returns the engine's time.
func (s *subject) now() int64 {
	s.t.Helper()
	_, now, err := s.Renew(s.ctx, 0, nil)
	s.check(err)
	return now
}

// renew renews the member's lease and returns the engine's time.
func (s *subject) renew(id engine.MemberID) int64 {
	s.t.Helper()
	_, now, err := s.Renew(s.ctx, id, nil)
	s.check(err)
	return now
}

// members renews the member's lease and returns all members, including those with expired leases.
func (s *subject) members(id engine.MemberID) []engine.Membership {
	s.t.Helper()
	members, _, err := s.Renew(s.ctx, id, nil)
	s.check(err)
	return members
}

// leased renews the member's lease and returns the number of members with unexpired leases.
func (s *subject) leased(id engine.MemberID) (n int) {
	s.t.Helper()
	for _, m := range s.members(id) {
		if m.Left > 0 {
			n++
		}
	}
	return n
}

func (s *subject) join(name string, lease time.Duration) engine.MemberID {
	s.t.Helper()
	id, _, err := s.Join(s.ctx, name, lease)
	s.check(err)
	if id == 0 {
		s.t.Fatal("the member has the number of none, 0")
	}
	return id
}

// claim claims tasks of kind.
func (s *subject) claim(by engine.MemberID, after, until int64, most int) []engine.Stored {
	s.t.Helper()
	return s.claimOf(by, []string{kind}, after, until, most)
}

// claimOf claims tasks of the given kinds.
func (s *subject) claimOf(by engine.MemberID, kinds []string, after, until int64, most int) []engine.Stored {
	s.t.Helper()
	got, err := s.Claim(s.ctx, request(by, kinds, after, until, most))
	s.check(err)
	return got.Tasks
}

// request returns the claim request of a member that can read all records.
func request(by engine.MemberID, kinds []string, after, until int64, most int) engine.ClaimRequest {
	return engine.ClaimRequest{By: by, Kinds: kinds, After: after, Until: until, Most: most, Readable: math.MaxUint8}
}

// claimAll claims all free tasks.
func (s *subject) claimAll(by engine.MemberID) []engine.Stored {
	s.t.Helper()
	return s.claim(by, -1, math.MaxInt64-1, 1_000_000)
}

func (s *subject) claimed(by engine.MemberID) []engine.Stored {
	s.t.Helper()
	return s.walk(engine.Range{Order: engine.Held, By: by})
}

// first returns the error of the first item of a walk.
func (s *subject) first(ctx context.Context, over engine.Range) error {
	for _, err := range s.Walk(ctx, over) {
		return err
	}
	return nil
}

func (s *subject) confirm(by engine.MemberID, claims ...engine.Claim) []bool {
	s.t.Helper()
	held, _, err := s.Confirm(s.ctx, by, claims, 0) // see mayBegin
	s.check(err)
	if len(held) != len(claims) {
		s.t.Fatalf("%d answers for %d claims", len(held), len(claims))
	}
	return held
}

// confirms confirms the task for the member, and reports whether the task may start.
func (s *subject) confirms(by engine.MemberID, task engine.Stored) bool {
	s.t.Helper()
	return s.confirm(by, claimOf(task))[0]
}

func claimOf(task engine.Stored) engine.Claim {
	return engine.Claim{Key: task.Key, Revision: task.Revision, Starts: task.Starts}
}

func (s *subject) reap() []string {
	s.t.Helper()
	names, err := s.Reap(s.ctx)
	s.check(err)
	return names
}

// reapUntil calls Reap until it has reaped the member with that name.
func (s *subject) reapUntil(name string) {
	s.t.Helper()
	s.until("the member is reaped", func() bool { return slices.Contains(s.reap(), name) })
}

// until waits for the condition to become true.
func (s *subject) until(what string, is func() bool) {
	s.t.Helper()
	for !is() {
		if s.ctx.Err() != nil {
			s.t.Fatalf("it never comes that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// gone checks that every method reports that the member is gone.
func (s *subject) gone(id engine.MemberID) {
	s.t.Helper()
	one := []engine.Claim{{Key: "k", Revision: 1}}
	_, _, renew := s.Renew(s.ctx, id, nil)
	_, claim := s.Claim(s.ctx, request(id, []string{kind}, -1, ahead, 10))
	fair := request(id, []string{kind}, -1, ahead, 10)
	fair.Fair = true
	_, fairly := s.Claim(s.ctx, fair)
	walk := s.first(s.ctx, engine.Range{Order: engine.Held, By: id})
	_, _, confirm := s.Confirm(s.ctx, id, one, time.Second)
	for method, err := range map[string]error{
		"Renew": renew, "Claim": claim, "a fair Claim": fairly, "Walk": walk, "Confirm": confirm,
		"Release": s.Release(s.ctx, id, one),
	} {
		if !errors.Is(err, engine.ErrMemberGone) {
			s.t.Errorf("%s of a member that is gone returns %v", method, err)
		}
	}
	if err := s.Leave(s.ctx, id); err != nil {
		s.t.Errorf("Leave of a member that is gone: %v", err)
	}
}

// all runs the functions concurrently and waits for them. A function that fails the test ends only itself.
func all(fs ...func()) {
	var wait sync.WaitGroup
	for _, f := range fs {
		wait.Go(f)
	}
	wait.Wait()
}

// times returns n functions. Function i calls f(i).
func times(n int, f func(i int)) (fs []func()) {
	for i := range n {
		fs = append(fs, func() { f(i) })
	}
	return fs
}

func keys(tasks []engine.Stored) string {
	var b strings.Builder
	for _, task := range tasks {
		fmt.Fprintf(&b, "%.20q ", task.Key)
	}
	return b.String()
}
