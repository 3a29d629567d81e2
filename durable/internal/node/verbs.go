// SPDX-License-Identifier: MIT

package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Do applies a verb.
func (n *Node) Do(ctx context.Context, v *Verb) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := n.enter(); err != nil {
		return err
	}
	defer n.verbs.Leave()
	for {
		now, err := n.sureNow(ctx)
		if err != nil {
			return err
		}
		v.timed(now)
		n.settleEnds(ctx, v.keys)
		if err := n.try(ctx, v); !errors.Is(err, errOld) {
			return err
		}
	}
}

// sureNow is now for a verb. If the machine may have been suspended, it asks the engine for its time first.
func (n *Node) sureNow(ctx context.Context) (int64, error) {
	now := n.Now()
	for n.clock.IsUnsure() { // reading the clock may have shown it
		if err := n.askTime(ctx); err != nil {
			return 0, n.unavailable(ctx, err)
		}
		now = n.Now()
	}
	return now, nil
}

func (n *Node) try(ctx context.Context, v *Verb) error {
	switch v.What {
	case ToAdd:
		return n.add(ctx, v)
	case ToSet:
		return n.set(ctx, v)
	case ToMove, ToPause, ToResume, toRight:
		return n.move(ctx, v)
	}
	return n.remove(ctx, v)
}

func (n *Node) remove(ctx context.Context, v *Verb) error {
	for found := v.Found; ; {
		w := engine.Write{Record: engine.Record{Key: v.Key}, If: engine.IfPresent}
		if v.Same {
			w.If, w.Revision = engine.IfUnchanged, found.Revision
		}
		r, err := n.send(newChange(ctx, w, nil, v.Size))
		switch {
		case err != nil:
			return unknown(err)
		case len(r.Unmet) == 0:
			n.count.removed.Add(1)
			return nil
		case !v.Same:
			return notFound(v.Key)
		}
		if found, err = n.find(ctx, v); err != nil {
			return err
		}
	}
}

// find returns the task that the verb applies to.
func (n *Node) find(ctx context.Context, v *Verb) (*View, error) {
	stored, ok, err := n.stored(ctx, v.Key)
	if err != nil {
		return nil, n.unavailable(ctx, err)
	}
	if !ok {
		return nil, notFound(v.Key)
	}
	rec, err := task.Decode(stored.Record)
	if err != nil {
		return nil, cmp.Or(n.brokenBy(err), err)
	}
	if !v.fits(rec) {
		return nil, notFound(v.Key)
	}
	return &View{Rec: rec, Revision: stored.Revision}, nil
}

// send submits a change and waits for its result.
func (n *Node) send(c *change) (engine.Result, error) {
	c.answered = make(chan struct{})
	n.hold(c)
	n.writes.Post(c)
	select {
	case <-c.answered:
	case <-c.ctx.Done():
		return engine.Result{}, c.ctx.Err()
	case <-n.broken: // the commit may never return
		select {
		case <-c.answered:
		default:
			return engine.Result{}, n.Err()
		}
	}
	switch {
	case c.err == nil:
		return c.r, nil
	case c.err == errOld:
		return c.r, errOld
	case c.ctx.Err() != nil:
		return c.r, c.ctx.Err()
	case errors.Is(c.err, engine.ErrTooLarge):
		return c.r, fmt.Errorf("%w: %w", ErrInvalidTask, c.err)
	case n.brokenBy(c.err) != nil:
		return c.r, n.Err()
	}
	return c.r, fmt.Errorf("%w: %w", ErrUnavailable, c.err)
}

func (n *Node) add(ctx context.Context, v *Verb) error {
	if v.Twice != nil {
		return n.refuse(ctx, v)
	}
	v.number(n.next(len(v.Records)))
	c := &change{ctx: ctx, recs: v.Records, size: v.Size}
	if !v.Numbered {
		c.asof = v.asof
	}
	c.batch = slices.Grow(c.one.batch[:0], len(v.Records))
	for _, rec := range v.Records {
		c.batch = append(c.batch, rec.Write(engine.IfAbsent, 0))
	}
	r, err := n.send(c)
	if err != nil {
		err = n.readBack(ctx, v.Records, err)
	}
	if err == nil && len(r.Unmet) > 0 {
		err = &DuplicateKeysError{r.Unmet}
	}
	if err == nil {
		n.count.added.Add(uint64(len(v.Records)))
	}
	return err
}

// refuse returns the error for an add in which a key occurs more than once.
func (n *Node) refuse(ctx context.Context, v *Verb) error {
	var taken []string
	for _, rec := range v.Records {
		if !v.Twice[rec.Key] {
			_, ok, err := n.Get(ctx, rec.Key)
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

func (n *Node) set(ctx context.Context, v *Verb) error {
	v.number(n.next(len(v.Records)))
	first, with := v.Records[0], v.Records[1:]
	if first.Deadline != 0 {
		unlock, err := n.bursts.lock(ctx, first.Key)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for {
		rec, w, err := n.replacing(ctx, first.PutOff(n.Now()-v.asof))
		if err != nil {
			return err
		}
		c := newChange(ctx, w, rec, v.Size)
		for _, added := range with {
			if w.If == engine.Always {
				c.batch[0] = rec.Write(engine.Always, 0)
			}
			c.batch, c.recs = append(c.batch, added.Write(engine.IfAbsent, 0)), append(c.recs, added)
		}
		c.asof = v.asof
		r, err := n.send(c)
		if err != nil && ctx.Err() == nil { // the caller is still waiting
			err = n.readBack(ctx, c.recs, err)
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(with, func(added *task.Record) bool { return slices.Contains(r.Unmet, added.Key) }) {
			return &DuplicateKeysError{r.Unmet}
		}
		if len(r.Unmet) > 0 {
			continue
		}
		n.count.added.Add(uint64(len(v.Records)))
		v.Records[0] = rec
		if v.Replaced = len(r.Written) > 0 && r.Written[0].Replaced; v.Replaced {
			n.count.removed.Add(1)
		}
		return nil
	}
}

// replacing returns the task that SetTask stores, and the write that stores it. Only a task with a deadline depends on
// the existing task.
func (n *Node) replacing(ctx context.Context, rec *task.Record) (*task.Record, engine.Write, error) {
	if rec.Deadline == 0 {
		return rec, engine.Write{Record: engine.Record{Key: rec.Key}, If: engine.Always}, nil // encoded by commit
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
	old, _ := task.Decode(stored.Record) // an unreadable task is replaced
	rec = rec.Following(old, stored.Starts > 0, n.Now())
	return rec, rec.Write(on, stored.Revision), nil
}

func (n *Node) move(ctx context.Context, v *Verb) error {
	found := v.Found
	for {
		if found == nil {
			var err error
			if found, err = n.find(ctx, v); err != nil {
				return err
			}
		}
		next := v.change(found.Rec, n.kinds)
		switch {
		case next != found.Rec:
		case found == v.Found: // it was read some time ago
			found = nil
			continue
		default: // another verb has done it, and may be waiting
			return nil
		}
		w := next.Write(engine.IfUnchanged, found.Revision)
		c := newChange(ctx, w, next, v.Size)
		c.asof = v.asof
		r, err := n.send(c)
		if err != nil {
			return n.readBackAs(ctx, v.Key, err, func(now engine.Record) bool {
				return now.Due == w.Due && bytes.Equal(now.Data, w.Data)
			})
		}
		if len(r.Unmet) == 0 {
			return nil
		}
		found = nil
	}
}

// readBack checks whether a verb whose answer was lost took effect. It returns nil if one of the verb's records is in the engine,
// and the error otherwise. It recognizes the records by their generation, which no other task has. It does not write missing
// records, because they may have been written and removed since.
func (n *Node) readBack(ctx context.Context, recs []*task.Record, err error) error {
	const most = 8 // the records were written together, but some may have been removed or have run since
	within, cancel := context.WithTimeout(ctx, readBackFor)
	defer cancel()
	for _, rec := range recs[:min(len(recs), most)] {
		failed := n.readBackAs(within, rec.Key, err, func(now engine.Record) bool {
			found, err := task.Decode(now)
			return err == nil && found.Generation == rec.Generation
		})
		if failed == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return err
	}
	return unknown(err)
}

// readBackAs returns nil if the key's record is the result of the write, and the error otherwise.
func (n *Node) readBackAs(ctx context.Context, key string, err error, is func(engine.Record) bool) error {
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
		if failed == nil || clock.PauseFor(ctx, notDoneEvery) != nil {
			return unknown(err)
		}
	}
}

// isUnknown reports whether a verb that failed with this error may have taken effect.
func isUnknown(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, engine.ErrNotDone)
}

// unknown returns the error of a verb, with a note if the verb may have taken effect.
func unknown(err error) error {
	if !isUnknown(err) {
		return err
	}
	return fmt.Errorf("%w (it may or may not have taken effect)", err)
}

// readBackFor is how long readBackAs keeps checking whether a verb took effect after its answer was lost.
const readBackFor = time.Second

// next returns the first of several consecutive generations, whose number is most. Their low bits are the member's, so two
// nodes rarely use the same one in a microsecond. A commit takes longer, so no two tasks of a key have the same one.
func (n *Node) next(most int) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	low := uint64(0)
	if n.term != nil {
		low = uint64(n.term.id)
	}
	first := max(n.generation+1, task.GenerationAt(n.Now(), low))
	n.generation = first + uint64(most) - 1
	return first
}

// AtOnce is the maximum number of tasks to change concurrently, in shared commits. See [Node.Together].
const AtOnce = 1024

// Together applies a verb to several tasks concurrently. It returns the number of tasks changed, and an error if any
// verb failed. A task that no longer exists is not an error.
func (n *Node) Together(ctx context.Context, page []View, verb func(*View) *Verb) (done int, err error) {
	var mu sync.Mutex // protects done and err
	var all sync.WaitGroup
	for i := range page {
		verb := verb(&page[i])
		if verb == nil || !verb.fits(page[i].Rec) {
			continue
		}
		all.Go(func() {
			failed := n.Do(ctx, verb)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed == nil:
				done++
			case !errors.Is(failed, ErrTaskKeyNotFound):
				err = failed
			}
		})
	}
	all.Wait()
	return done, err
}

// timed computes the times of the verb from the time of the call. If the time turns out to be wrong, because the machine
// was suspended, the verb is timed once more.
func (v *Verb) timed(now int64) {
	v.asof = now
	if v.Numbered {
		for i, rec := range v.Records {
			v.Records[i] = rec.Righted(now)
		}
	}
	if v.Make == nil {
		return
	}
	v.Records = v.Make(now)
	if v.What == ToAdd {
		v.Records, v.Twice = Distinct(v.Records)
	}
}

// number assigns consecutive generations to the records, unless they already have generations.
func (v *Verb) number(first uint64) {
	if v.Numbered {
		return
	}
	for i, rec := range v.Records {
		rec.Generation = first + uint64(i)
	}
}
