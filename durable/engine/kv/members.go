// SPDX-License-Identifier: MIT

package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// Each member has up to three rows. Its body is written once. Its heartbeat is written by each Renew. Its remains exist
// from the end of the member until all its tasks have been freed.
const (
	bodyPart = "a"
	beatPart = "b"
	leftPart = "z"
)

func partOf(id engine.MemberID, part string) string { return memberRow + ordered(int64(id)) + part }

// A member is a member as read by a call.
type member struct {
	moment
	id      engine.MemberID
	version int64 // version of the body
	name    string
	lease   time.Duration
	beat    int64 // version of the heartbeat
	report  []byte
	left    time.Duration // time until the lease expires
	dead    bool          // the member may be reaped
}

// check returns a check that the member is not gone.
func (m *member) check() engine.Check {
	return engine.Check{Key: partOf(m.id, bodyPart), Version: m.version}
}

func (m *member) leased() bool { return m.left > 0 }

func gone(id engine.MemberID) error {
	return fmt.Errorf("kv: member %d: %w", id, engine.ErrMemberGone)
}

// body returns a new member's body.
func body(id engine.MemberID, name string, lease time.Duration) engine.Entry {
	return engine.Entry{Key: partOf(id, bodyPart), Value: append(varints(int64(lease)), name...)}
}

// beat returns a heartbeat. now is the engine's time, at which the lease begins.
func beat(id engine.MemberID, now int64, report []byte) engine.Entry {
	return engine.Entry{Key: partOf(id, beatPart), Value: append(varints(now), report...)}
}

// membersOf returns the members that the entries describe, and the IDs of members with remains. asked is the time at
// which the Engine last read all members before this call.
func (e *shared) membersOf(at moment, entries []engine.Entry, asked time.Time,
) (members []*member, left []engine.MemberID, err error) {
	for _, entry := range entries {
		n, part := number(entry.Key[1:])
		id, d := engine.MemberID(n), decoder{b: entry.Value}
		switch part {
		case bodyPart:
			m := &member{id: id, version: entry.Version, moment: at}
			m.lease, m.name = time.Duration(d.varint()), string(d.b)
			members = append(members, m)
		case beatPart:
			if len(members) == 0 || members[len(members)-1].id != id {
				continue // the body was deleted during the scan
			}
			m := members[len(members)-1]
			m.beat = entry.Version
			began := d.varint()
			m.report = d.b
			if e.clock != nil && began <= at.now { // otherwise the clock was ahead, or it has advanced since
				m.left = time.Duration(began + int64(m.lease) - at.now)
				m.dead = m.left <= 0 && (at.now-at.up > int64(m.lease) || at.up > at.now)
			} else {
				m.left, m.dead = e.watch(m, asked)
			}
		case leftPart:
			left = append(left, id)
		}
		if err := d.err(entry.Key); err != nil {
			return nil, nil, err
		}
	}
	return members, left, nil
}

// A sighting describes the last heartbeat of a member that an Engine has seen, on a KV without a clock.
type sighting struct {
	version int64
	since   time.Time // when the heartbeat was first read or written
	from    time.Time // since this time, the Engine has read all members again and again, without a long gap
}

// watch returns the time left in the member's lease, and whether the member may be reaped. It derives both from the
// sighting of the member's heartbeat. After a long gap between two reads of all members, the watch on the member starts
// over, because the KV may have been unavailable for renewals. A gap is long if it exceeds half of the member's lease
// and half of the longest lease of the Engine's own members, which determines how often the Engine reads.
func (e *shared) watch(m *member, asked time.Time) (left time.Duration, dead bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.beats[m.id]
	if !ok || s.version < m.beat {
		s = sighting{version: m.beat, since: m.own, from: m.own}
	}
	if asked.Before(s.from) {
		asked = s.from
	}
	if m.own.Sub(asked) > max(m.lease, e.longest)/2 {
		s.from = m.own
	}
	e.beats[m.id] = s
	return m.lease - m.own.Sub(s.since), m.own.Sub(s.from) > m.lease+m.lease/8 && s.version == m.beat
}

// beaten records a heartbeat that this Engine has written. at is the moment before the write.
func (e *shared) beaten(id engine.MemberID, version int64, at moment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock == nil && e.beats[id].version <= version {
		e.beats[id] = sighting{version: version, since: at.own, from: at.own}
	}
}

// member returns the member, or an error if it is gone.
func (e *shared) member(ctx context.Context, id engine.MemberID) (*member, error) {
	at, err := e.moment(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := e.kv.Get(ctx, partOf(id, bodyPart), partOf(id, beatPart))
	if err != nil {
		return nil, err
	}
	members, _, err := e.membersOf(at, entries, at.own)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, gone(id)
	}
	return members[0], nil
}

// all returns all members, with their leases as of that moment, and the IDs of members with remains.
func (e *shared) all(ctx context.Context, at moment) (members []*member, left []engine.MemberID, err error) {
	var entries []engine.Entry
	for entry, err := range e.kv.Scan(ctx, memberRow, end(memberRow)) {
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, entry)
	}
	e.mu.Lock()
	asked := e.asked
	e.asked = at.own
	e.mu.Unlock()
	return e.membersOf(at, entries, asked)
}

// Join repeats itself if a member has the new ID already.
func (e *shared) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	for {
		at, err := e.moment(ctx)
		if err != nil {
			return 0, 0, err
		}
		id := engine.NewMemberID(at.now)
		tx := engine.Tx{
			If:  []engine.Check{{Key: partOf(id, bodyPart)}, {Key: partOf(id, leftPart)}},
			Put: []engine.Entry{body(id, name, lease), beat(id, at.now, nil)},
		}
		done, err := e.kv.Commit(ctx, tx)
		if err != nil {
			return 0, 0, err
		}
		if done[0] {
			e.beaten(id, tx.Put[1].Version, at)
			e.mu.Lock()
			e.longest = max(e.longest, lease)
			e.mu.Unlock()
			return id, at.now, nil
		}
	}
}

// Renew reads the members after writing the heartbeat, and the time before writing it.
func (e *shared) Renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, err error) {
	if err := valid.Report(report); err != nil {
		return nil, 0, err
	}
	var at moment
	if by == 0 {
		at, err = e.moment(ctx)
	} else {
		at, err = e.renew(ctx, by, report)
	}
	if err != nil {
		return nil, 0, err
	}
	all, _, err := e.all(ctx, at)
	if err != nil {
		return nil, 0, unsure(by != 0, err)
	}
	for _, m := range all {
		members = append(members, engine.Membership{ID: m.id, Name: m.name, Lease: m.lease, Left: m.left, Report: m.report})
	}
	return members, at.now, nil
}

// renew extends the member's lease and returns the moment at which the new lease begins.
func (e *shared) renew(ctx context.Context, by engine.MemberID, report []byte) (moment, error) {
	for {
		m, err := e.member(ctx, by)
		if err != nil {
			return moment{}, err
		}
		if bytes.Compare(report, m.report) < 0 {
			report = m.report
		}
		tx := engine.Tx{
			If:  []engine.Check{m.check(), {Key: partOf(by, beatPart), Version: m.beat}},
			Put: []engine.Entry{beat(by, m.now, report)},
		}
		done, err := e.kv.Commit(ctx, tx)
		if err != nil {
			return moment{}, err
		}
		if done[0] {
			e.beaten(by, tx.Put[0].Version, m.moment)
			return m.moment, nil
		}
	}
}

func (e *shared) Leave(ctx context.Context, id engine.MemberID) error {
	for {
		m, err := e.member(ctx, id)
		if errors.Is(err, engine.ErrMemberGone) {
			return nil
		}
		if err != nil {
			return err
		}
		done, err := e.end(ctx, m)
		if err != nil {
			return err
		}
		if done {
			return unsure(true, e.clear(ctx, id))
		}
	}
}

// end ends the member, unless it has been renewed or has ended since it was read.
func (e *shared) end(ctx context.Context, m *member) (bool, error) {
	body, beat := m.check(), engine.Check{Key: partOf(m.id, beatPart), Version: m.beat}
	done, err := e.kv.Commit(ctx, engine.Tx{
		If:     []engine.Check{body, beat},
		Delete: []string{body.Key, beat.Key},
		Put:    []engine.Entry{{Key: partOf(m.id, leftPart)}},
	})
	return err == nil && done[0], err
}

// clear frees the tasks of a member that is gone. The member gets no new tasks, because each claim checks its body.
func (e *shared) clear(ctx context.Context, id engine.MemberID) error {
	prefix := heldBy(id)
	for {
		var keys []string
		for entry, err := range e.kv.Scan(ctx, prefix, end(prefix)) {
			if err != nil {
				return err
			}
			if keys = append(keys, keyOf(entry.Key)); len(keys) == page {
				break
			}
		}
		if len(keys) == 0 {
			break
		}
		tasks, err := e.read(ctx, keys)
		if err != nil {
			return err
		}
		var txs []engine.Tx
		for _, r := range tasks {
			if r.Owner == id {
				tx, _ := e.own(r, 0)
				txs = append(txs, tx)
			}
		}
		if _, err := e.kv.Commit(ctx, txs...); err != nil {
			return err
		}
	}
	e.mu.Lock()
	delete(e.beats, id)
	e.mu.Unlock()
	_, err := e.kv.Commit(ctx, engine.Tx{Delete: []string{partOf(id, leftPart)}})
	return err
}

// Reap returns no error once it has ended a member, because a later Reap finishes the work.
func (e *shared) Reap(ctx context.Context) (names []string, err error) {
	at, err := e.moment(ctx)
	if err != nil {
		return nil, err
	}
	members, left, err := e.all(ctx, at)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if !m.dead {
			continue
		}
		done, err := e.end(ctx, m)
		if err != nil && len(names) == 0 {
			return nil, err
		}
		if done {
			names, left = append(names, m.name), append(left, m.id)
		}
	}
	for _, id := range left {
		if err := e.clear(ctx, id); err != nil && len(names) == 0 {
			return nil, unsure(true, err)
		}
	}
	return names, nil
}

// held walks over the tasks that the member holds.
func (e *shared) held(ctx context.Context, by engine.MemberID) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		if _, err := e.member(ctx, by); err != nil {
			yield(engine.Stored{}, err)
			return
		}
		prefix := heldBy(by)
		e.walk(ctx, e.kv.Scan(ctx, prefix, end(prefix)), func(_ string, r *row) bool { return r.Owner == by })(yield)
	}
}
