// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A change is a batch of writes on its way to the engine.
type change struct {
	ctx   context.Context // context of the waiting caller
	batch engine.Batch
	recs  []*task.Record // the record that each write stores, or nil
	asof  int64          // the time from which the records were computed; 0 if they depend on no time
	size  int            // approximate number of bytes written
	r     engine.Result
	err   error

	answered chan struct{} // closed when r and err are set; for the end of a run, nil unless settleEnds waits for it

	of        *live // the claim of the run that ends; nil for other changes
	completed bool  // as in conclude

	result Result // the end of a run; zero for other changes
	doubt  bool   // an earlier commit of that end may have taken effect

	before []*live   // the claim of each key when the change was sent; nil for a new key
	under  []*change // earlier waiting changes whose records this change replaces
	one    struct {  // memory for a change with one write
		batch  [1]engine.Write
		recs   [1]*task.Record
		before [1]*live
	}
}

// newChange returns a change with one write, which stores the record unless rec is nil.
func newChange(ctx context.Context, w engine.Write, rec *task.Record, size int) *change {
	c := &change{ctx: ctx, size: size}
	c.one.batch[0], c.one.recs[0] = w, rec
	c.batch, c.recs = c.one.batch[:], c.one.recs[:]
	return c
}

// sets reports whether the change stores the record of a single key unconditionally.
func (c *change) sets() bool { return len(c.batch) == 1 && c.batch[0].If == engine.Always }

// encode encodes the record of an unconditional change. These changes are encoded only when they are sent, because only
// the last of several changes to a key is written.
func (c *change) encode() {
	if c.sets() {
		hold := c.batch[0].Hold
		c.batch[0] = c.recs[0].Write(engine.Always, 0)
		c.batch[0].Hold = hold
	}
}

// all returns the changes under c, followed by c.
func (c *change) all() []*change { return append(c.under, c) }

// living ends the changes whose callers have given up. It returns the last remaining change, with the other remaining
// changes under it, or nil if no change remains.
func (c *change) living() (last *change) {
	for _, of := range c.all() {
		if err := of.ctx.Err(); err != nil {
			of.finish(engine.Result{}, err)
			continue
		}
		if of.under = nil; last != nil {
			of.under = last.all()
		}
		last = of
	}
	return last
}

// end ends the change and the changes under it with the result. The changes under it count as made immediately before
// it.
func (c *change) end(r engine.Result, err error) {
	for i, of := range c.all() {
		if of != c {
			of.recs = c.recs // the records to look for if the answer was lost
		}
		if i == 1 && len(r.Written) > 0 { // the first change replaced the record
			first := r.Written[0]
			first.Replaced = true
			r.Written = []engine.Written{first}
		}
		of.finish(r, err)
	}
}

// finish ends this change only.
func (c *change) finish(r engine.Result, err error) {
	c.r, c.err = r, err
	if c.of != nil {
		c.of.by.concluded(c)
		return
	}
	close(c.answered)
}

const (
	changesMost  = 1024
	changesBytes = 4 << 20
)

// splitChanges selects the changes for one commit. No two of them have the same key, and no change overtakes another
// change with the same key. If consecutive changes set the same key, only the last is written. The callers of these
// changes are all still waiting, so one write can serve them all.
func splitChanges(waiting []*change) (group, left []*change) {
	if len(waiting) == 1 {
		return waiting, nil
	}
	const none = -1
	keys := make(map[string]int) // index in group of the change that sets the key, or none if another change uses it
	size := 0
	for i, c := range waiting {
		if len(group) > 0 && (len(group) == changesMost || size+c.size > changesBytes) {
			return group, append(left, waiting[i:]...)
		}
		if c.sets() {
			at, there := keys[c.batch[0].Key]
			if there && at != none {
				c.under, group[at] = group[at].all(), c
				size += c.size
				continue
			}
			if !there {
				keys[c.batch[0].Key] = len(group)
				group = append(group, c)
				size += c.size
				continue
			}
		}
		free := true
		for _, w := range c.batch {
			_, there := keys[w.Key]
			free = free && !there
			keys[w.Key] = none
		}
		if !free {
			left = append(left, c)
			continue
		}
		group = append(group, c)
		size += c.size
	}
	return group, left
}

// commit sends a group of changes to the engine, and updates the claims accordingly.
func (n *Node) commit(group []*change) {
	sent := group[:0:0]
	batches := make([]engine.Batch, 0, len(group))
	size := 0
	for _, c := range group {
		if c = c.living(); c == nil {
			continue
		}
		c.encode()
		sent = append(sent, c)
		batches = append(batches, c.batch)
		size += c.size
	}
	if len(sent) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(n.sends, commitTimeout+time.Duration(size>>20)*time.Second)
	defer cancel()
	if len(sent) == 1 && sent[0].under == nil { // no other change waits for this call
		defer context.AfterFunc(sent[0].ctx, cancel)()
	}
	if len(batches) == 1 {
		batches = append(batches, nil) // keeps this call from waiting for a lock; apart waits instead
	}
	n.deliver(ctx, sent, batches)
}

const (
	// commitTimeout is how long a commit may take, plus a second for each MiB.
	commitTimeout = 10 * time.Second

	// Calls that certainly had no effect are repeated every notDoneEvery for up to notDoneFor.
	notDoneEvery = 50 * time.Millisecond
	notDoneFor   = time.Second

	// A change of a task whose run may begin is sent again every startEvery, because a task that repeats quickly may be
	// about to begin most of the time.
	startEvery = 5 * time.Millisecond
)

func (n *Node) deliver(ctx context.Context, sent []*change, batches []engine.Batch) {
	if err := n.Err(); err != nil {
		for _, c := range sent {
			c.end(engine.Result{}, err)
		}
		return
	}
	sent, batches = n.timely(sent, batches)
	if len(sent) == 0 {
		return
	}
	t := n.mark(sent)
	by := engine.MemberID(0)
	if t != nil {
		by = t.id
	}
	began := n.own()
	asked := began
	results, err := n.submit(ctx, by, batches)
	for errors.Is(err, engine.ErrNotDone) && !errors.Is(err, engine.ErrTooLarge) && n.own()-began < int64(notDoneFor) {
		if clock.PauseFor(ctx, notDoneEvery) != nil {
			break
		}
		if sent, batches = n.timely(sent, batches); len(sent) == 0 {
			return
		}
		asked = n.own()
		results, err = n.submit(ctx, by, batches)
	}
	tooLarge := errors.Is(err, engine.ErrTooLarge)
	if tooLarge && (len(sent) > 1 || sent[0].under != nil) { // at least one of the changes is too large
		for _, c := range sent {
			n.apart(c, 0)
		}
		return
	}
	if err != nil {
		if len(sent) == 1 && sent[0].under == nil && sent[0].ctx.Err() != nil {
			n.unsure() // the caller has given up, and the engine has not failed
		} else if !tooLarge {
			n.trouble(err)
		}
		for _, c := range sent {
			c.end(engine.Result{}, err)
		}
		return
	}
	changes := 0
	for _, r := range results {
		changes += len(r.Written)
	}
	answered := n.own()
	n.count.commit(changes, time.Duration(answered-began))
	n.transit.Store(min(n.transit.Load(), answered-asked))
	for i, c := range sent {
		r := results[i]
		if r.Late != 0 {
			n.late(asked, r.Late)
		}
		if r.Busy || r.Late != 0 || r.Wait > 0 {
			n.apart(c, r.Wait)
			continue
		}
		if len(r.Unmet) == 0 {
			n.settle(t, c, r.Written)
		}
		c.end(r, nil)
	}
}

// apart sends a change and the changes under it one by one. Each change waits for a lock, and for the start of a run, as
// long as its caller does, and does not delay other changes. wait is how long a run may still begin.
func (n *Node) apart(c *change, wait time.Duration) {
	for _, of := range c.all() {
		of.under = nil
		of.encode()
		n.writes.Aside(func() {
			ctx, cancel := context.WithCancel(of.ctx)
			defer cancel()
			defer context.AfterFunc(n.sends, cancel)()
			if err := clock.PauseFor(ctx, min(wait, startEvery)); err != nil {
				of.finish(engine.Result{}, fmt.Errorf("%w: %w", engine.ErrNotDone, err))
				return
			}
			n.deliver(ctx, []*change{of}, []engine.Batch{of.batch})
		})
	}
}

// mark records the node's claims on the keys, and which of their runs have begun or will not begin, when the changes are sent.
// It returns the current term.
func (n *Node) mark(sent []*change) *term {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range sent {
		for i, w := range c.batch {
			if w.If == engine.IfAbsent {
				continue
			}
			if c.before == nil {
				if c.before = c.one.before[:]; len(c.batch) > 1 {
					c.before = make([]*live, len(c.batch))
				}
			}
			l := n.held[w.Key]
			c.before[i] = l
			if l != nil && (l.ran.Load() || l.withdraw()) {
				c.batch[i].Begun = l.claim.revision
			}
		}
	}
	return n.term
}

// settle updates the claims in memory for a change that took effect. A removal drops only a claim that existed when the
// change was sent, because a newer claim may be for a later task.
func (n *Node) settle(t *term, c *change, written []engine.Written) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, w := range c.batch {
		old := n.held[w.Key]
		switch {
		case written[i].Held:
			n.placeLocked(c.recs[i], claim{term: t, revision: written[i].Revision}, false)
		case old == nil:
		case w.Data == nil && c.before != nil && c.before[i] == old,
			w.Data != nil && old.claim.revision < written[i].Revision:
			n.dropLocked(old)
		case w.Data == nil: // it is of a later task, or the end of a run was committed at the same time, just before
			n.doubt = true
			n.attend()
		}
	}
}

const (
	// On a shared engine, while fewer than fewWait changes are waiting, the end of a run waits up to gatherEnds for other
	// ends or for a verb: the engine pays for the commit, not for the change. If the process ends meanwhile, the run is
	// repeated. An end does not wait if the next run of its task is due within twice that time. A look-up of the task, or a
	// verb for it, ends the wait.
	gatherEnds = 50 * time.Millisecond
	fewWait    = 64
)

// conclude writes the result of a run, if the node still holds the task. Nothing waits for the write. Until the
// write is done, the task counts as running, and no other run of the task starts. completed says whether the handler
// used Run.Completion of package durable. If it did, a task that is no longer held was completed by the handler's own write.
func (n *Node) conclude(l *live, r Result, completed bool) {
	c := newChange(n.sends, task.Completion(r.Next, l.Rec, l.claim.revision), r.Next, l.Rec.Size())
	c.of, c.completed, c.result, c.asof = l, completed, r, r.asof
	if r.Also != nil {
		also := r.Also(r.asof)
		also.Generation = n.next(1)
		c.batch, c.recs = append(c.batch, also.Write(engine.Always, 0)), append(c.recs, also)
		c.size += also.Size()
	}
	n.hold(c)
	n.mu.Lock()
	leased := n.leasedLocked()
	if leased {
		l.end = c
		n.ending.Add(1)
	}
	n.mu.Unlock()
	switch {
	case !leased:
		n.keepUnsent(c)
	case r.Next != nil && r.Next.Due-n.Now() < int64(2*gatherEnds):
		n.writes.Post(c)
	default:
		n.writes.Gather(c, gatherEnds)
	}
}

// settleEnds waits until the ends of the tasks' runs that are being written have been answered. A caller may know that a
// run has ended.
func (n *Node) settleEnds(ctx context.Context, keys iter.Seq[string]) {
	if n.ending.Load() == 0 {
		return
	}
	var ends []chan struct{}
	n.mu.Lock()
	for key := range keys {
		if l := n.held[key]; l != nil && l.end != nil {
			if l.end.answered == nil {
				l.end.answered = make(chan struct{})
			}
			ends = append(ends, l.end.answered)
		}
	}
	n.mu.Unlock()
	if ends == nil {
		return
	}
	n.writes.Post()
	for _, end := range ends {
		select {
		case <-end:
		case <-n.broken:
		case <-ctx.Done():
		}
	}
}

// concluded handles the answer to the end of a run.
func (n *Node) concluded(c *change) {
	n.mu.Lock()
	if c.of.end == c { // it was not unsent meanwhile
		c.of.end = nil
		n.ending.Add(-1)
	}
	waited := c.answered
	c.answered = nil
	n.mu.Unlock()
	if waited != nil {
		defer close(waited)
	}
	r := c.result
	switch next := r.Next; {
	case errors.Is(c.err, errOld):
		n.writes.Aside(func() { n.concludeAgain(c) })
	case errors.Is(c.err, engine.ErrTooLarge) && r.Also != nil:
		n.report.Unadded(c.recs[1].Key, c.err)
		r.Also = nil
		n.conclude(c.of, r, c.completed)
	case errors.Is(c.err, engine.ErrTooLarge) && next != nil && (next.Failed != nil || next.Note != ""):
		brief := *next
		brief.Failed, brief.Note = nil, ""
		r.Next = &brief
		n.conclude(c.of, r, c.completed)
	case c.err != nil:
		n.keepUnsent(c)
	case len(c.r.Unmet) > 0:
		n.drop(c.of)
		if c.completed {
			r.Also = nil // the handler's own write adds no other task
			n.accept(r)
		} else {
			n.lose(c)
		}
	default:
		if r.Also != nil && c.r.Written[1].Replaced {
			n.count.removed.Add(1)
		}
		n.accept(r)
	}
}
