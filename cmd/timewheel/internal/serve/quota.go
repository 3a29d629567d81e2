// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A Quota bounds the tasks of a token. A bound that is missing is none.
type Quota struct {
	Adds  *int     `json:"adds"`               // tasks added or replaced in Per
	Bytes *int     `json:"bytes"`              // of these tasks
	Per   Duration `json:"per" positive:"yes"` // 1s
	Tasks *int     `json:"tasks"`              // of the token's kinds, and of all callers
}

// The bounds of a quota, as the metric names them.
const (
	quotaAdds  = "adds"
	quotaBytes = "bytes"
	quotaTasks = "tasks"
)

const (
	mostPer    = 24 * time.Hour
	fullWait   = 10 * time.Second // Retry-After while there are too many tasks
	countEvery = time.Second      // how often the tasks of a database are counted
)

func (k *checker) quota(field string, q *Quota) {
	if q == nil {
		return
	}
	some := false
	for _, one := range []struct {
		name string
		most *int
	}{{quotaAdds, q.Adds}, {quotaBytes, q.Bytes}, {quotaTasks, q.Tasks}} {
		if some = some || one.most != nil; one.most != nil && *one.most < 1 {
			k.wrong(field+"."+one.name, "%d is not positive", *one.most)
		}
	}
	if !some && k.knows(field) {
		k.wrong(field, "none of %s, %s and %s is given", quotaAdds, quotaBytes, quotaTasks)
	}
	if q.Per = cmp.Or(q.Per, Duration(time.Second)); time.Duration(q.Per) > mostPer {
		k.wrong(field+".per", "%v is more than %v", time.Duration(q.Per), mostPer)
	}
}

// A usage is what a caller has used of its quota. A reload does not change it.
type usage struct {
	mu          sync.Mutex
	adds, bytes bucket
	inProgress  int // tasks that are being added
}

// A bucket holds the used part of an amount for each period. It comes back evenly.
type bucket struct {
	used float64
	at   time.Time // of used
}

// missing returns how long it takes until n, which is at most the amount, can be used.
func (b *bucket) missing(n, amount int, per time.Duration, now time.Time) time.Duration {
	most := float64(amount)
	back := most * now.Sub(b.at).Seconds() / per.Seconds()
	b.used, b.at = min(max(b.used-back, 0), most), now
	return time.Duration(max(b.used-most+float64(n), 0) / most * float64(per))
}

// sizeOf returns the bytes of a task that count.
func sizeOf(t *durable.Task) int {
	return len(t.Key) + len(t.Payload) + len(t.Group) + len(t.Cron) + len(t.Trace) + len(t.Meta)
}

// use uses up the quota of the caller for n tasks that are to be added. It returns an error, and uses up nothing, if a bound
// would be exceeded. Call done when the tasks have been added, or have not.
func (a *api) use(ctx context.Context, c *caller, n, size int) (done func(), err error) {
	q, u := c.quota, c.used
	if q == nil || n == 0 {
		return func() {}, nil
	}
	per := time.Duration(q.Per)
	for _, one := range []struct {
		bound   string
		n       int
		most    *int
		allowed string
	}{
		{quotaAdds, n, q.Adds, fmt.Sprintf("tasks in %v", per)},
		{quotaBytes, size, q.Bytes, fmt.Sprintf("bytes in %v", per)},
		{quotaTasks, n, q.Tasks, "tasks at the same time"},
	} {
		if one.most != nil && one.n > *one.most {
			a.refused.WithLabelValues(c.name, one.bound).Inc()
			return nil, problemf(http.StatusRequestEntityTooLarge, "the request alone is more than the token's quota of %d %s",
				*one.most, one.allowed)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if q.Adds != nil {
		if wait := u.adds.missing(n, *q.Adds, per, now); wait > 0 {
			return nil, a.overQuota(c, quotaAdds, wait, "the token's quota of %d tasks in %v is used up", *q.Adds, per)
		}
	}
	if q.Bytes != nil {
		if wait := u.bytes.missing(size, *q.Bytes, per, now); wait > 0 {
			return nil, a.overQuota(c, quotaBytes, wait, "the token's quota of %d bytes in %v is used up", *q.Bytes, per)
		}
	}
	if q.Tasks != nil {
		counted, err := a.waiting.of(ctx, a.kindsOf(c))
		if err != nil {
			return nil, asUnchanged(err)
		}
		if counted+u.inProgress > *q.Tasks-n {
			return nil, a.overQuota(c, quotaTasks, fullWait, "the tasks of the token's kinds have reached its quota of %d", *q.Tasks)
		}
	}
	u.adds.used += float64(n)
	u.bytes.used += float64(size)
	u.inProgress += n
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.inProgress -= n
	}, nil
}

// overQuota returns the problem of a request that a quota allows later.
func (a *api) overQuota(c *caller, bound string, wait time.Duration, format string, args ...any) error {
	a.refused.WithLabelValues(c.name, bound).Inc()
	p := problemf(http.StatusTooManyRequests, format, args...)
	p.retryAfter = max(int64(math.Ceil(wait.Seconds())), 1)
	p.Detail += fmt.Sprintf("; try again in %d s", p.retryAfter)
	return p
}

// A waiting counts tasks for all callers. A scheduler with an engine of its own keeps the counts up to date, but has to
// ask a database.
type waiting struct {
	s *durable.Scheduler

	mu    sync.Mutex // protects below
	owned bool
	at    time.Time // when the tasks were last counted
	count durable.Counts
	err   error
}

// of returns the number of tasks of the kinds. It waits for a count for a short time.
func (w *waiting) of(ctx context.Context, kinds []string) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.IsZero() {
		w.owned = w.s.Stats().Node == nil
	}
	if now := time.Now(); w.owned || now.Sub(w.at) >= countEvery {
		w.at = now
		w.count, w.err = w.s.Counts(context.WithoutCancel(ctx)) // which is for other callers, too
	}
	for _, k := range w.count.Kinds {
		if slices.Contains(kinds, k.Kind) {
			n += k.Tasks
		}
	}
	return n, w.err
}
