// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// A catchingUp is what [Scheduler.CatchUp] has counted last. As with a census, a count that took longer than
// briefCount is used for countShare times as long.
type catchingUp struct {
	mu    sync.Mutex // protects below
	last  CatchUp
	begun time.Time
	took  time.Duration
	total uint64 // of the rate, when it was begun
}

func (s *Scheduler) catchUp(ctx context.Context) (CatchUp, error) {
	c := &s.behind
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took <= briefCount || time.Since(c.begun) >= countShare*c.took {
		if err := s.countOverdue(ctx, c); err != nil {
			return CatchUp{}, err
		}
	}
	now := c.last
	now.Kinds = slices.Clone(now.Kinds)
	total, perSecond := s.below.overdueStarts()
	now.Left = max(now.Left-int(total-c.total), 0)
	if now.Left > 0 && !now.Cut && perSecond > 0 {
		left := float64(now.Left) / perSecond * float64(time.Second)
		now.Done = time.Unix(0, s.below.now()).Add(time.Duration(left))
	}
	return now, nil
}

// countOverdue counts the overdue tasks that are not running and whose kind has a handler here for their payload
// and is not paused.
func (s *Scheduler) countOverdue(ctx context.Context, c *catchingUp) error {
	var is CatchUp
	begun := time.Now()
	total, _ := s.below.overdueStarts()
	over := stretch{after: Position{Due: None}, until: s.below.overdueUntil()}
	kinds := make(map[string]*KindCatchUp)
	end, err := s.look(ctx, &over, Query{}, s.below.now(), lookFor, func(v view) bool {
		if v.running || s.kinds.of(v.rec) == nil {
			return true
		}
		kind := kinds[v.rec.kind]
		if kind == nil {
			kind = &KindCatchUp{Kind: v.rec.kind, Oldest: time.Unix(0, v.rec.due)}
			kinds[v.rec.kind] = kind
		}
		kind.Left++
		return true
	})
	if err != nil {
		return err
	}
	is.Cut = !end.whole
	for _, kind := range kinds {
		is.Kinds = append(is.Kinds, *kind)
		if is.Left += kind.Left; is.Oldest.IsZero() || kind.Oldest.Before(is.Oldest) {
			is.Oldest = kind.Oldest
		}
	}
	slices.SortFunc(is.Kinds, func(a, b KindCatchUp) int { return cmp.Compare(a.Kind, b.Kind) })
	c.last, c.begun, c.took, c.total = is, begun, time.Since(begun), total
	return nil
}

// A rate counts events, and how many there were in each of the last seconds.
type rate struct {
	mu     sync.Mutex // protects below
	total  uint64
	second int64 // the one that counts[second % len(counts)] is of; the others are of those before
	counts [11]int
}

func (r *rate) note(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	r.moveLocked(now.Unix())
	r.counts[r.second%int64(len(r.counts))]++
}

// moveLocked makes the present second, now, the last one.
func (r *rate) moveLocked(now int64) {
	if now-r.second > int64(len(r.counts)) || now < r.second {
		r.second = now - int64(len(r.counts)) // all that was counted is too old, or a clock was set back
	}
	for r.second < now {
		r.second++
		r.counts[r.second%int64(len(r.counts))] = 0
	}
}

// read returns how many events there were in all, and in a second, of the last ten seconds that are over.
func (r *rate) read() (total uint64, perSecond float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moveLocked(time.Now().Unix())
	n := 0
	for i, count := range r.counts {
		if int64(i) != r.second%int64(len(r.counts)) {
			n += count
		}
	}
	return r.total, float64(n) / float64(len(r.counts)-1)
}
