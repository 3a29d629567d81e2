// SPDX-License-Identifier: MIT

package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/need"
)

const (
	// settingsEvery is how often a node reads the settings, and how long a read may take, unless reads take longer.
	settingsEvery = 500 * time.Millisecond

	// timeEvery is how often a node on its own engine reads the latest time with them.
	timeEvery = 30 * time.Second

	// settingsFor is how long settings are valid. After this time the node starts no run until it has read the settings
	// again. So by the end of this time, every node has either seen a new pause or stopped starting runs.
	settingsFor = 2 * time.Second

	// pausesNote is the name of the note that stores the settings.
	pausesNote = "pauses"
)

// keepSettings reads the settings and the other nodes' questions, unless a look has brought them. It returns how long to
// wait before the next call.
func (n *Node) keepSettings() time.Duration {
	read := n.askNews
	if got := n.news.Swap(nil); got != nil {
		read = func() ([]engine.Stored, error) { return n.readNews(got.all, got.asked) }
	}
	questions, err := read()
	n.releasePaused()
	if err == nil {
		n.answer(questions)
	}
	for _, i := range n.answering {
		if !i.last {
			return askEvery
		}
	}
	if n.alone { // they change only here, and only the time is stored with them
		return timeEvery
	}
	if err == nil && n.isIdle() {
		return restEvery + restLate // a look brings them sooner
	}
	return settingsEvery
}

// askNews reads the settings and the other nodes' questions from the engine. If a look is late, because the membership
// goroutine waits for some other call, the node claims.
func (n *Node) askNews() (questions []engine.Stored, err error) {
	ctx, cancel := context.WithTimeout(n.life, n.reading.allow(settingsEvery, settingsFor))
	defer cancel()
	asked := n.own()
	if asked-n.looked.Load() > int64(restEvery+restLate/2) && n.looks.CompareAndSwap(true, false) {
		call(n.wake)
	}
	n.count.needs.Asked(need.Settings, asked)
	questions, err = n.readNews(n.engine.Walk(ctx, engine.Range{Order: engine.Notes, From: pausesNote}), asked)
	n.count.needs.Answered(need.Settings, n.own(), err)
	switch took := time.Duration(n.own() - asked); {
	case err == nil && n.hasSlept(asked):
	case err == nil:
		n.reading.add(took)
	case errors.Is(err, context.DeadlineExceeded):
		n.reading.late++
		fallthrough
	default:
		n.trouble(err)
	}
	return questions, err
}

// readSettings reads the settings and applies them on this node.
func (n *Node) readSettings(ctx context.Context) (s Settings, revision int64, err error) {
	asked := n.own()
	note, err := n.note(ctx, pausesNote)
	if err != nil {
		return s, 0, err
	}
	return n.learn(note, asked)
}

// learn applies settings that were requested at asked, by the node's own clock. While the settings cannot be decoded,
// all kinds are paused on this node.
func (n *Node) learn(note engine.Stored, asked int64) (s Settings, revision int64, err error) {
	revision = note.Revision
	s, err = decodeSettings(note.Data)
	n.mu.Lock()
	puzzled := err != nil && !n.puzzled
	n.puzzled = err != nil
	n.mu.Unlock()
	if err != nil {
		n.mu.Lock()
		tuning := n.tuning
		n.mu.Unlock()
		n.adopt(Settings{Pauses: Pauses{All: true}, Tuning: tuning}, revision, asked)
		if puzzled {
			n.report.note(func(n *notices) { n.settings = err })
		}
		return s, 0, err
	}
	n.adopt(s, revision, asked)
	return s, revision, nil
}

// misread reports whether the error means that the settings were received but cannot be decoded.
func misread(err error) bool { return errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) }

// adopt applies settings that were requested at asked, by the node's own clock, unless the node already has later ones.
func (n *Node) adopt(s Settings, revision, asked int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Settings with a lower revision are older, or come from an engine that was restored from a copy.
	if revision < n.settings && asked <= n.adopted {
		return
	}
	if !n.isSettledLocked() {
		call(n.wake) // it may claim again
	}
	now := n.own()
	if 0 < revision && revision < n.settings {
		n.report.note(func(n *notices) { n.restored = true })
	}
	n.settings, n.adopted = revision, now
	if asked >= n.settled && (n.term == nil || asked >= n.term.began) {
		n.settled, n.settledAt = asked, n.clock.Earliest(asked)
	}
	n.backLocked()
	if !n.tuning.equal(s.Tuning) {
		n.tuneLocked(s.Tuning)
	}
	n.tuning.By = s.Tuning.By
	was, drained := n.kinds.pause(s.Pauses, n.clock.Earliest(now)), s.Drained[n.cfg.Name] != 0
	if !was.equal(s.Pauses) || drained != n.drained {
		n.unreported = n.unreported || drained != n.drained
		n.attend()
		if n.drained && !drained {
			n.undrained = n.clock.Earliest(now)
		}
		n.drained = drained
		n.returnedLocked()
		call(n.wake)
		call(n.reread) // to release held tasks of paused kinds
	}
}

// isSettled reports whether the node knows the current pauses.
func (n *Node) isSettled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isSettledLocked()
}

// isSettledLocked reports whether the node knows the current pauses. It counts by the node's own clock and by the
// engine's, whichever has advanced further. The node's own clock does not count a suspension of less than clock.Slack.
// The pauses of the node's own engine are changed by the node alone, so they do not age.
func (n *Node) isSettledLocked() bool {
	if n.alone {
		return n.settled != engine.None
	}
	own := n.own()
	return n.settled != engine.None && max(own-n.settled, n.clock.Latest(own)-n.settledAt) <= int64(settingsFor)
}

// releasePaused releases held tasks of paused kinds whose runs have not begun.
func (n *Node) releasePaused() {
	n.mu.Lock()
	t := n.term
	var some []*live
	if p := n.kinds.Pauses(); p.All || len(p.Kinds) > 0 {
		some = n.heldLocked(func(l *live) bool { return p.Has(l.Rec.Kind) })
	}
	n.mu.Unlock()
	n.giveUp(t, some)
}

// Paused reads the pauses from the engine.
func (n *Node) Paused(ctx context.Context) (Pauses, error) {
	s, _, err := n.readSettings(ctx)
	return s.Pauses, n.settingsError(ctx, err)
}

// Tuned reads the numbers that operators have set from the engine.
func (n *Node) Tuned(ctx context.Context) (Tuning, error) {
	s, _, err := n.readSettings(ctx)
	return s.Tuning, n.settingsError(ctx, err)
}

// tuneLocked sets the numbers on this node.
func (n *Node) tuneLocked(t Tuning) {
	n.tuning = t
	pool := cmp.Or(t.PoolSize, n.cfg.PoolSize)
	_ = n.wheel.ResizePool(pool) // which is positive, and the wheel has a pool
	n.backlog.Resize(pool, n.queueOf(pool))
	n.backlog.SetRate(cmp.Or(t.CatchUp, n.cfg.CatchUp))
	for _, k := range n.kinds.AllLimited() {
		n.tuneKindLocked(k)
	}
	n.unreported = true
	call(n.look)
	call(n.wake)
	call(n.hire)
}

// tuneKindLocked sets the numbers of a kind's limits.
func (n *Node) tuneKindLocked(k *Kind) {
	if k.Limiter != nil {
		l := n.tuning.Limits[k.Name]
		k.Limiter.SetBounds(l.Here, l.Cluster)
	}
}

// settingsError returns the error of a verb that failed to read the settings.
func (n *Node) settingsError(ctx context.Context, err error) error {
	if err == nil || misread(err) {
		return err
	}
	return n.unavailable(ctx, err)
}

// Change changes the settings in the engine and then on this node. It writes the settings even if nothing changes, so
// that an earlier change whose caller has given up cannot take effect later.
func (n *Node) Change(ctx context.Context, change func(*Settings)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := n.enter(); err != nil {
		return err
	}
	defer n.verbs.Leave()
	for {
		was, revision, err := n.readSettings(ctx)
		if err != nil {
			return n.settingsError(ctx, err)
		}
		next := was
		change(&next)
		data, err := next.encode()
		if err != nil {
			return err
		}
		asked := n.own()
		results, err := n.engine.Commit(ctx, 0, []engine.Batch{{putNote(pausesNote, data, revision)}})
		if err != nil {
			return n.afterChange(ctx, change, revision, n.unavailable(ctx, err))
		}
		if len(results[0].Unmet) == 0 {
			n.adopt(next, results[0].Written[0].Revision, asked)
			return nil
		}
	}
}

// afterChange checks whether a change whose answer was lost took effect. It returns nil if the settings were written
// after the revision since and contain the change. Otherwise it returns the change's error. The change is not repeated,
// because another node may have undone it since then.
func (n *Node) afterChange(ctx context.Context, change func(*Settings), since int64, err error) error {
	if !isUnknown(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readBackFor)
	defer cancel()
	for {
		is, revision, failed := n.readSettings(ctx)
		if failed == nil {
			next := is
			if change(&next); next.equal(is) && revision > since {
				return nil
			}
			return unknown(err)
		}
		if clock.PauseFor(ctx, notDoneEvery) != nil {
			return unknown(err)
		}
	}
}
