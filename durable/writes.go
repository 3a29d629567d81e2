// SPDX-License-Identifier: MIT

package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A change is a batch of writes on its way to the engine.
type change struct {
	ctx   context.Context // of what waits for it
	batch engine.Batch
	recs  []*task.Record // what each write puts, or nil
	size  int            // about how many bytes it writes
	done  func(engine.Result, error)

	before []*live   // what the node held of each key when it was sent; nil for a new key
	under  []*change // earlier ones that wait as well, and whose record this one replaces at once
}

// sets reports whether the change puts the record of one key, whatever was there.
func (c *change) sets() bool {
	return len(c.batch) == 1 && c.batch[0].If == engine.Always && c.batch[0].Data != nil
}

// all returns the change and those under it.
func (c *change) all() []*change { return append(c.under, c) }

// living ends those whose callers have gone. It returns the last of the others, with the rest
// under it, or nil if there is none.
func (c *change) living() (last *change) {
	for _, of := range c.all() {
		if err := of.ctx.Err(); err != nil {
			of.done(engine.Result{}, err)
			continue
		}
		if of.under = nil; last != nil {
			of.under = last.all()
		}
		last = of
	}
	return last
}

// end ends all with what has become of the change. Those under it were done just before it.
func (c *change) end(r engine.Result, err error) {
	for i, of := range c.all() {
		if i == 1 && len(r.Written) > 0 { // the first one was there before the others
			r.Written = []engine.Written{{Revision: r.Written[0].Revision, Held: r.Written[0].Held, Replaced: true}}
		}
		of.done(r, err)
	}
}

const (
	changesMost  = 1024
	changesBytes = 4 << 20
)

// splitChanges takes the changes of a commit. No two of them may have the same key, and none overtakes another
// of the same key. Of those that set a key, one after the other, the last one is made: all of them wait, so none is
// promised yet, and one write does what many would.
func splitChanges(waiting []*change) (group, left []*change) {
	if len(waiting) == 1 {
		return waiting, nil
	}
	const none = -1
	keys := make(map[string]int) // where the change that sets the key is in the group, or none if there is another
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

// commit has the engine make a group of changes, and does to the claims what follows from them.
func (n *node) commit(group []*change) {
	sent := group[:0:0]
	batches := make([]engine.Batch, 0, len(group))
	size := 0
	for _, c := range group {
		if c = c.living(); c == nil {
			continue
		}
		sent = append(sent, c)
		batches = append(batches, c.batch)
		size += c.size
	}
	if len(sent) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(n.sends, commitTimeout+time.Duration(size>>20)*time.Second)
	defer cancel()
	if len(sent) == 1 && sent[0].under == nil { // then nothing else waits for it
		defer context.AfterFunc(sent[0].ctx, cancel)()
	}
	if len(batches) == 1 {
		batches = append(batches, nil) // so that it does not wait for a lock: commitAlone does
	}
	n.deliver(ctx, sent, batches)
}

const (
	// commitTimeout is how long a commit may take, and a second for each MiB more.
	commitTimeout = 10 * time.Second

	// Calls that have certainly had no effect are made again, so often and for so long.
	notDoneEvery = 50 * time.Millisecond
	notDoneFor   = time.Second
)

func (n *node) deliver(ctx context.Context, sent []*change, batches []engine.Batch) {
	t := n.mark(sent)
	by := engine.MemberID(0)
	if t != nil {
		by = t.id
	}
	began := n.own()
	results, err := n.engine.Commit(ctx, by, batches)
	for err != nil && errors.Is(err, engine.ErrNotDone) && n.own()-began < int64(notDoneFor) {
		select {
		case <-time.After(notDoneEvery):
		case <-ctx.Done():
		}
		results, err = n.engine.Commit(ctx, by, batches)
	}
	if err != nil {
		if len(sent) == 1 && sent[0].under == nil && sent[0].ctx.Err() != nil {
			n.unsure() // the caller has gone, and not the engine
		} else {
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
	n.count.commit(changes, time.Duration(n.own()-began))
	for i, c := range sent {
		r := results[i]
		if r.Busy {
			for _, of := range c.all() {
				of.under = nil // each waits for the lock as long as its caller does
				n.writes.aside(func() { n.commitAlone(of) })
			}
			continue
		}
		if len(r.Unmet) == 0 {
			n.settle(t, c, r.Written)
		}
		c.end(r, nil)
	}
}

// commitAlone has the engine make a change that has met a lock. It waits for that as long as the caller does,
// and nothing else waits for it.
func (n *node) commitAlone(c *change) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(n.sends, cancel)()
	n.deliver(ctx, []*change{c}, []engine.Batch{c.batch})
}

// mark notes what the node holds of the keys as the changes are sent. It returns the term.
func (n *node) mark(sent []*change) *term {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range sent {
		for i, w := range c.batch {
			if w.If == engine.IfAbsent {
				continue
			}
			if c.before == nil {
				c.before = make([]*live, len(c.batch))
			}
			c.before[i] = n.held[w.Key]
		}
	}
	return n.term
}

// settle makes the claims in memory fit a change that is done. Only what was there when the change was sent is
// dropped for a removal: what has come since may be of a later task.
func (n *node) settle(t *term, c *change, written []engine.Written) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, w := range c.batch {
		old := n.held[w.Key]
		switch {
		case written[i].Held:
			n.placeLocked(c.recs[i], &claim{term: t, revision: written[i].Revision}, false)
		case old == nil:
		case w.Data == nil && c.before != nil && c.before[i] == old,
			w.Data != nil && old.claim.revision < written[i].Revision:
			n.dropLocked(old)
		}
	}
}

// conclude writes what has become of the task after its run, unless the node does not hold it any more. Nothing
// waits for it: until it is written the task counts as running, and has no other run. completed says that the handler
// has made a completion of the run: then a task that is not held any more was completed by that.
func (n *node) conclude(l *live, next *task.Record, t tally, completed bool) {
	w := completion(next, l.Rec, l.claim.revision)
	c := &change{ctx: n.sends, batch: engine.Batch{w}, recs: []*task.Record{next}, size: l.Rec.Size()}
	c.done = func(r engine.Result, err error) {
		switch {
		case err != nil:
			n.keepUnsent(l, c)
		case len(r.Unmet) > 0:
			n.drop(l)
			if completed {
				n.count.add(t)
			} else {
				n.count.endsRefused.Add(1)
			}
		default:
			n.count.add(t)
			if t.parked > 0 {
				n.report.parked(next)
			}
		}
	}
	n.mu.Lock()
	leased := n.leasedLocked()
	c.batch[0].Hold = next != nil && n.holdsLocked(next)
	n.mu.Unlock()
	if !leased {
		n.keepUnsent(l, c)
		return
	}
	n.writes.post(c)
}

// holdsLocked reports whether the node holds what it writes, because it is due soon and has a handler here.
func (n *node) holdsLocked(rec *task.Record) bool {
	if !n.claimsLocked() || n.kinds.of(rec) == nil || rec.Due > n.clock.earliest(n.own())+int64(lookAhead) {
		return false
	}
	of := n.kinds.Limiter(rec)
	return n.roomLocked() > 0 && (of == nil || of.Room() > 0)
}

// keepUnsent keeps the end of a run until the lease is renewed.
func (n *node) keepUnsent(l *live, c *change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[l.Rec.Key] == l {
		n.unsent = append(n.unsent, c)
	} else {
		n.count.endsRefused.Add(1)
	}
}

// sendUnsent sends the ends of runs that could not be written, if the lease lasts.
func (n *node) sendUnsent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.leasedLocked() {
		return
	}
	for _, c := range n.unsent {
		n.writes.post(c)
	}
	n.unsent = nil
}

// settleUnsent waits until the ends of all runs are written, or the lease has run out, or it takes too long.
func (n *node) settleUnsent() {
	const every = 20 * time.Millisecond
	for {
		n.writes.wait()
		n.mu.Lock()
		over := len(n.unsent) == 0 || !n.leasedLocked() || n.sends.Err() != nil
		n.mu.Unlock()
		if over {
			return
		}
		time.Sleep(every)
	}
}

func (n *node) do(ctx context.Context, v *verb) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !n.verbs.enter() {
		return ErrStopped
	}
	defer n.verbs.leave()
	switch v.what {
	case toAdd:
		return n.add(ctx, v)
	case toSet:
		return n.set(ctx, v)
	case toMove, toPause, toResume:
		return n.move(ctx, v)
	}
	return n.remove(ctx, v)
}

func (n *node) remove(ctx context.Context, v *verb) error {
	for found := v.found; ; {
		w := engine.Write{Record: engine.Record{Key: v.key}, If: engine.IfPresent}
		if v.same {
			w.If, w.Revision = engine.IfUnchanged, found.revision
		}
		r, err := n.send(ctx, v.size, w, nil)
		switch {
		case err != nil:
			return unknown(err)
		case len(r.Unmet) == 0:
			n.count.removed.Add(1)
			return nil
		case !v.same:
			return notFound(v.key)
		}
		if found, err = n.find(ctx, v); err != nil {
			return err
		}
	}
}

// find returns the task that the verb is for.
func (n *node) find(ctx context.Context, v *verb) (*view, error) {
	stored, ok, err := n.stored(ctx, v.key)
	if err != nil {
		return nil, n.unavailable(ctx, err)
	}
	if !ok {
		return nil, notFound(v.key)
	}
	rec, err := task.Decode(stored.Record)
	if err != nil {
		return nil, err
	}
	if !v.fits(rec) {
		return nil, notFound(v.key)
	}
	return &view{rec: rec, revision: stored.Revision}, nil
}

// send makes a change of one write, whose record is rec, or nil, and waits for it.
func (n *node) send(ctx context.Context, size int, w engine.Write, rec *task.Record) (engine.Result, error) {
	return n.sendAll(ctx, size, engine.Batch{w}, []*task.Record{rec})
}

func (n *node) sendAll(ctx context.Context, size int, batch engine.Batch, recs []*task.Record) (engine.Result, error) {
	type outcome struct {
		r   engine.Result
		err error
	}
	answered := make(chan outcome, 1)
	n.mu.Lock()
	for i := range batch {
		alone := len(batch) == 1 // else a limiter might get more than it has room for
		batch[i].Hold = recs[i] != nil && (alone || n.kinds.Limiter(recs[i]) == nil) && n.holdsLocked(recs[i])
	}
	n.mu.Unlock()
	n.writes.post(&change{ctx: ctx, batch: batch, recs: recs, size: size,
		done: func(r engine.Result, err error) { answered <- outcome{r, err} }})
	select {
	case o := <-answered:
		switch {
		case o.err == nil:
			return o.r, nil
		case ctx.Err() != nil:
			return o.r, ctx.Err()
		}
		return o.r, fmt.Errorf("%w: %w", ErrUnavailable, o.err)
	case <-ctx.Done():
		return engine.Result{}, ctx.Err()
	}
}

func (n *node) add(ctx context.Context, v *verb) error {
	if v.twice != nil {
		return n.refuse(ctx, v)
	}
	v.number(n.next(len(v.records)))
	batch := make(engine.Batch, len(v.records))
	for i, rec := range v.records {
		batch[i] = rec.Write(engine.IfAbsent, 0)
	}
	r, err := n.sendAll(ctx, v.size, batch, v.records)
	if err != nil {
		err = n.readBack(ctx, v, err)
	}
	if err == nil && len(r.Unmet) > 0 {
		err = &DuplicateKeysError{r.Unmet}
	}
	if err == nil {
		n.count.added.Add(uint64(len(v.records)))
	}
	return err
}

// refuse returns the error of an add with keys that occur more than once.
func (n *node) refuse(ctx context.Context, v *verb) error {
	var taken []string
	for _, rec := range v.records {
		if !v.twice[rec.Key] {
			_, ok, err := n.get(ctx, rec.Key)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
		}
		taken = append(taken, rec.Key)
	}
	return &DuplicateKeysError{taken}
}

func (n *node) set(ctx context.Context, v *verb) error {
	v.number(n.next(1))
	called := n.now()
	if v.records[0].Deadline != 0 {
		unlock, err := n.bursts.lock(ctx, v.records[0].Key)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for {
		rec, w, err := n.replacing(ctx, v.records[0].PutOff(n.now()-called))
		if err != nil {
			return err
		}
		r, err := n.send(ctx, v.size, w, rec)
		if err != nil {
			err = n.readBack(ctx, v, err)
		}
		if err != nil {
			return err
		}
		if len(r.Unmet) > 0 {
			continue
		}
		n.count.added.Add(1)
		if len(r.Written) > 0 && r.Written[0].Replaced {
			n.count.removed.Add(1)
		}
		return nil
	}
}

// replacing returns the task as SetTask puts it, and the write of it. Only a task with a deadline depends on
// what is there.
func (n *node) replacing(ctx context.Context, rec *task.Record) (*task.Record, engine.Write, error) {
	if rec.Deadline == 0 {
		return rec, rec.Write(engine.Always, 0), nil
	}
	stored, ok, err := n.stored(ctx, rec.Key)
	if err != nil {
		return nil, engine.Write{}, n.unavailable(ctx, err)
	}
	if !ok {
		return rec, rec.Write(engine.IfAbsent, 0), nil
	}
	on := engine.IfUnstarted
	if stored.Starts > 0 {
		on = engine.IfUnchanged
	}
	old, _ := task.Decode(stored.Record) // what cannot be read is replaced
	rec = rec.Following(old, stored.Starts > 0, n.now())
	return rec, rec.Write(on, stored.Revision), nil
}

func (n *node) move(ctx context.Context, v *verb) error {
	found := v.found
	for {
		if found == nil {
			var err error
			if found, err = n.find(ctx, v); err != nil {
				return err
			}
		}
		next := v.change(found.rec)
		if next == found.rec {
			return nil
		}
		w := next.Write(engine.IfUnchanged, found.revision)
		r, err := n.send(ctx, v.size, w, next)
		if err != nil {
			return n.readBackAs(ctx, v.key, err, func(now engine.Record) bool {
				return now.Due == w.Due && bytes.Equal(now.Data, w.Data)
			})
		}
		if len(r.Unmet) == 0 {
			return nil
		}
		found = nil
	}
}

// readBack returns nil if the records of a verb whose answer was lost are there, and else the error. Their
// generation is no other's. Nothing is written again: what is not there may have been there, and
// removed by somebody since.
func (n *node) readBack(ctx context.Context, v *verb, err error) error {
	const most = 8 // they are there together; but some may have been removed, or have run, since
	within, cancel := context.WithTimeout(ctx, readBackFor)
	defer cancel()
	for _, rec := range v.records[:min(len(v.records), most)] {
		found := n.readBackAs(within, rec.Key, err, func(now engine.Record) bool {
			found, err := task.Decode(now)
			return err == nil && found.Generation == rec.Generation
		})
		if found == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return err
	}
	return unknown(err)
}

// readBackAs returns nil if the key has what a write should have put there, and else the error.
func (n *node) readBackAs(ctx context.Context, key string, err error, is func(engine.Record) bool) error {
	if ctx.Err() != nil || !isUnknown(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readBackFor)
	defer cancel()
	for {
		stored, ok, failed := n.stored(ctx, key)
		if failed == nil && ok && is(stored.Record) {
			return nil
		}
		if failed == nil {
			return unknown(err)
		}
		select {
		case <-time.After(notDoneEvery):
		case <-ctx.Done():
			return unknown(err)
		}
	}
}

// isUnknown reports whether a verb with that error may have taken effect.
func isUnknown(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, engine.ErrNotDone)
}

// unknown returns the error of a verb, and says so if the verb may have taken effect.
func unknown(err error) error {
	if !isUnknown(err) {
		return err
	}
	return fmt.Errorf("%w (it is not known whether it took effect)", err)
}

// readBackFor is how long a verb whose answer was lost tries to find out what has become of it.
const readBackFor = time.Second

// next returns the first of a number of generations in a row. The member in their last bits keeps apart what
// nodes add at the same instant.
func (n *node) next(most int) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	low := uint64(0)
	if n.term != nil {
		low = uint64(n.term.id)
	}
	first := max(n.generation+1, generationAt(n.now(), low))
	n.generation = first + uint64(most) - 1
	return first
}
