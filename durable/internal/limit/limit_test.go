// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A bench has a backlog whose workers are passive: the test does their work.
type bench struct {
	*Backlog
	kinds            map[string]*Kind
	paused           bool
	running, waiting int
	asked            []request
	woken            chan struct{}
	ran              []string
}

type request struct {
	after   time.Duration
	work    func()
	stopped bool
}

func (r *request) Stop() bool {
	was := r.stopped
	r.stopped = true
	return !was
}

func (b *bench) After(d time.Duration, work func()) Timer {
	b.asked = append(b.asked, request{after: d, work: work})
	return &b.asked[len(b.asked)-1]
}

func (b *bench) Load() (running, waiting int) { return b.running, b.waiting }
func (b *bench) Kind(name string) *Kind       { return b.kinds[name] }
func (b *bench) Runs(r *task.Record) bool     { return b.kinds[r.Kind] != nil && !b.paused }

func (b *bench) Limiter(r *task.Record) *Limiter {
	if k := b.kinds[r.Kind]; k != nil {
		return k.Limiter
	}
	return nil
}

// newBench returns a bench with 8 workers, one of which is the test.
func newBench() *bench {
	b := &bench{kinds: make(map[string]*Kind), running: 1, woken: make(chan struct{}, 1)}
	b.Backlog = NewBacklog(Config{
		Kinds: b, Workers: b, Size: 8, Tick: time.Millisecond, Rate: 1000, Queue: 80, Wake: b.woken,
	})
	return b
}

// kind adds a kind with the given bounds.
func (b *bench) kind(name string, here, cluster Bound, p Part) *Kind {
	k := &Kind{Here: here, Cluster: cluster}
	b.kinds[name] = k
	if k.IsBounded() {
		k.Limiter = NewLimiter(k, b.Backlog, p)
	}
	return k
}

// wakes reports whether room has become free since the last call.
func (b *bench) wakes() bool {
	select {
	case <-b.woken:
		return true
	default:
		return false
	}
}

// A job is a task that records its run.
type job struct {
	Task
	on   *bench
	gone bool
	do   func() // called in the run
}

func (b *bench) job(kind, group string, due int64) *job {
	j := &job{on: b}
	j.Task = Task{Rec: &task.Record{Token: task.Token{Key: fmt.Sprint(group, due)}, Kind: kind, Group: group, Due: due}, Runner: j}
	return j
}

func (j *job) Waits() bool { return !j.gone }

func (j *job) Run() (called bool) {
	if j.gone = true; j.on.paused {
		return false
	}
	if l := j.on.Limiter(j.Rec); l != nil && !l.Begin(&j.Task) {
		j.gone = false
		return false
	}
	j.on.ran = append(j.on.ran, j.Rec.Key)
	if j.do != nil {
		j.do()
	}
	return true
}

func (b *bench) want(t *testing.T, keys ...string) {
	t.Helper()
	if !slices.Equal(b.ran, keys) {
		t.Errorf("these have run: %v, want %v", b.ran, keys)
	}
}

// Due runs beyond the bound are queued without a worker. The worker of the previous run does them, the groups in turn,
// except removed ones.
func TestLimiter_queuesWhatHasNoRoom(t *testing.T) {
	b := newBench()
	l := b.kind("k", Bound{Concurrency: 1}, Bound{}, Undivided).Limiter
	removed := b.job("k", "b", 4)
	first := b.job("k", "a", 1)
	first.do = func() {
		for _, j := range []*job{b.job("k", "a", 2), b.job("k", "a", 3), removed, b.job("k", "b", 5)} {
			b.Do(&j.Task)
		}
		removed.gone = true
		l.Remove(&removed.Task)
		if n := l.Waiting(); n != 3 || !l.IsFull() {
			t.Errorf("%d tasks wait", n)
		}
		b.want(t, "a1")
	}
	b.Do(&first.Task)
	b.want(t, "a1", "a2", "b5", "a3")
	if l.bytes != 0 || l.IsFull() || len(b.asked) != 0 {
		t.Errorf("tasks of %d bytes are held, and %d workers were asked for", l.bytes, len(b.asked))
	}
}

// If the part of the bound shrinks while runs are about to begin, as many of them begin as it has room for. The others leave
// their places.
func TestLimiter_partThatShrinks_whileRunsAreAboutToBegin(t *testing.T) {
	b := newBench()
	l := b.kind("k", Bound{}, Bound{Concurrency: 2}, Undivided).Limiter
	first, second := b.job("k", "a", 1), b.job("k", "a", 2)
	l.mu.Lock()
	l.startLocked(&first.Task)
	l.startLocked(&second.Task)
	l.mu.Unlock()
	l.SetPart(Part{0, 2})
	first.do = func() { l.run(&second.Task) }
	l.run(&first.Task)
	b.want(t, "a1")
	if l.running != 0 || l.begun != 0 {
		t.Errorf("%d have a place, and %d have begun", l.running, l.begun)
	}
	b.Do(&second.Task)
	b.want(t, "a1", "a2")
}

// If other runs wait for a worker, the next run of the kind gets in line behind them.
func TestLimiter_givesWay(t *testing.T) {
	b := newBench()
	b.kind("k", Bound{Concurrency: 1}, Bound{}, Undivided)
	first := b.job("k", "a", 1)
	first.do = func() {
		b.Do(&b.job("k", "a", 2).Task)
		b.running, b.waiting = 8, 1
	}
	b.Do(&first.Task)
	b.want(t, "a1")
	if len(b.asked) != 1 || b.asked[0].after != 0 {
		t.Fatalf("these workers were asked for: %v", b.asked)
	}
	b.asked[0].work()
	b.want(t, "a1", "a2")
}

// A handler that ends its goroutine leaves the queue to another worker.
func TestLimiter_goroutineThatEnds_isReplaced(t *testing.T) {
	b := newBench()
	b.kind("k", Bound{Concurrency: 1}, Bound{}, Undivided)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first := b.job("k", "a", 1)
		first.do = func() {
			b.Do(&b.job("k", "a", 2).Task)
			runtime.Goexit()
		}
		b.Do(&first.Task)
	}()
	<-ended
	if len(b.asked) != 1 {
		t.Fatalf("%d workers were asked for", len(b.asked))
	}
	b.asked[0].work()
	b.want(t, "a1", "a2")
}

// A run waits for its token, and a run that is not made takes none.
func TestLimiter_rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.kind("k", Bound{Rate: 1, Per: time.Second, Burst: 1}, Bound{}, Undivided)
		b.paused = true
		b.Do(&b.job("k", "a", 1).Task)
		b.paused = false
		b.Do(&b.job("k", "a", 2).Task)
		b.Do(&b.job("k", "a", 3).Task)
		b.want(t, "a2")
		if len(b.asked) != 1 || b.asked[0].after <= 900*time.Millisecond || b.asked[0].after > time.Second {
			t.Fatalf("these workers were asked for: %v", b.asked)
		}
		time.Sleep(b.asked[0].after)
		b.asked[0].work()
		b.want(t, "a2", "a3")
	})
}

// A limiter of a node holds slightly more tasks than may run. When its share shrinks it gives back the task that is due
// last.
func TestLimiter_holdsWhatMayRun(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		room  int
	}{
		"not known":  {0, 4},
		"slow":       {time.Second, 4},
		"quick":      {20 * time.Millisecond, 4 + moreIfQuick},
		"very quick": {time.Millisecond, 4 + 4*50},
	} {
		b := newBench()
		k := b.kind("k", Bound{}, Bound{Concurrency: 4}, Undivided)
		if c.takes > 0 {
			k.Took(c.takes)
		}
		if n, _ := k.Limiter.Room(); n != c.room {
			t.Errorf("%s: there is room for %d tasks, want %d", name, n, c.room)
		}
		for due := range int64(4) {
			k.Limiter.Hold(&b.job("k", "a", due).Task)
		}
		k.Limiter.SetPart(Part{})
		switch out := k.Limiter.Excess(); {
		case k.Limiter.HasPart():
			t.Errorf("%s: there is a part", name)
		case out == nil || out.Rec.Due != 3:
			t.Errorf("%s: the task that was due last is held", name)
		}
	}
}

// A limiter that is not drained reports when it becomes drained.
func TestLimiter_wakesWhenHalfHasBegun(t *testing.T) {
	b := newBench()
	l := b.kind("k", Bound{Concurrency: 4}, Bound{}, Undivided).Limiter
	var some []*job
	for due := range int64(4) {
		some = append(some, b.job("k", "a", due))
		l.Hold(&some[due].Task)
	}
	if room, _ := l.Room(); l.IsDrained() || room != 0 {
		t.Error("a full limiter has room")
	}
	if b.Do(&some[0].Task); b.wakes() {
		t.Error("it wakes when one of four has begun")
	}
	if b.Do(&some[1].Task); !b.wakes() || !l.IsDrained() {
		t.Error("it does not wake when two of four have begun")
	}
}

// Overdue tasks run on spare workers, their kinds in turn, and leave some workers free unless their runs are quick.
func TestBacklog_leavesWorkersFree(t *testing.T) {
	for name, c := range map[string]struct {
		quick            bool
		running, waiting int
		want             int // requested workers
	}{
		"idle":               {false, 0, 0, 4}, // half
		"some are busy":      {false, 5, 0, 2}, // one remains
		"all are busy":       {false, 8, 0, 0},
		"others wait":        {false, 5, 2, 0},
		"quick":              {true, 0, 0, 8},
		"quick, all but one": {true, 7, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			k := b.kind("k", Bound{}, Bound{}, Undivided)
			if c.quick {
				k.Took(time.Millisecond)
			}
			for due := range int64(20) {
				b.Add(&b.job("k", "a", due).Task)
			}
			b.Start()
			time.Sleep(50 * time.Millisecond)
			b.running, b.waiting = c.running, c.waiting
			if again := b.Hire(); len(b.asked) != c.want || again != HireEvery {
				t.Errorf("%s: %d workers were asked for, want %d", name, len(b.asked), c.want)
			}
		})
	}
}

// A worker takes overdue tasks until the rate or a due run stops it, the oldest of each kind in turn.
func TestBacklog_rateAndTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.kind("k", Bound{}, Bound{}, Undivided).Took(1)
		b.kind("l", Bound{}, Bound{}, Undivided).Took(1)
		for due := range int64(5) {
			b.Add(&b.job("k", "k", due).Task)
			b.Add(&b.job("l", "l", 10-due).Task)
		}
		moved := b.job("k", "k", 0)
		b.Share(10) // of 1,000 within a second
		b.Start()
		b.Remove(&moved.Task) // another task at that position
		time.Sleep(20 * time.Millisecond)
		b.begin()
		b.want(t, "k0", "l6", "k1")
		time.Sleep(time.Second) // of which a burst may be caught up
		b.waiting = 1
		b.begin()
		b.want(t, "k0", "l6", "k1")
		b.waiting = 0
		b.begin()
		b.want(t, "k0", "l6", "k1", "l7", "k2", "l8", "k3", "l9", "k4", "l10")
		if wrong := b.Check(nil, nil); wrong != nil || b.Len() != 0 {
			t.Errorf("%d tasks are left; %v", b.Len(), wrong)
		}
	})
}

// A kind not known to be quick has at most its share of the queue, and takes no room from the others.
func TestBacklog_shareOfASlowKind(t *testing.T) {
	b := newBench()
	b.kind("k", Bound{}, Bound{}, Undivided)
	var some []*job
	for due := int64(0); b.Takes("k"); due++ {
		some = append(some, b.job("k", "a", due))
		b.Add(&some[due].Task)
	}
	if room, _ := b.Room(); len(some) != 10 || room != 80 || b.Len() != 10 || !b.Has("k") {
		t.Errorf("of 80 tasks the kind has %d, and there is room for %d others", len(some), room)
	}
	for _, j := range some[:4] {
		b.Remove(&j.Task)
	}
	if b.wakes() || b.Takes("k") {
		t.Error("the kind may have more before half of its share has begun")
	}
	if b.Remove(&some[4].Task); !b.wakes() || !b.Takes("k") {
		t.Error("the kind may not have more when half of its share has begun")
	}
}

// The oldest task is one that could run if there were a worker.
func TestBacklog_oldest(t *testing.T) {
	b := newBench()
	b.kind("free", Bound{}, Bound{}, Undivided)
	b.kind("limited", Bound{}, Bound{Concurrency: 1}, Part{})
	b.Add(&b.job("unknown", "a", 1).Task)
	b.Add(&b.job("limited", "a", 2).Task)
	since := map[string]int64{}
	oldest := func() (int64, bool) { return b.Oldest(func(kind string) int64 { return since[kind] }) }
	if at, ok := oldest(); ok {
		t.Errorf("the oldest task has waited since %d, and none can run", at)
	}
	b.Add(&b.job("free", "a", 4).Task)
	b.Add(&b.job("free", "a", 3).Task)
	if at, ok := oldest(); !ok || at != 3 {
		t.Errorf("the oldest task has waited since %d, want 3", at)
	}
	since["free"] = 9
	if at, ok := oldest(); !ok || at != 9 {
		t.Errorf("the oldest task of a kind that was resumed at 9 has waited since %d", at)
	}
	b.kind("other", Bound{}, Bound{}, Undivided)
	b.Add(&b.job("other", "a", 5).Task)
	if at, ok := oldest(); !ok || at != 5 {
		t.Errorf("next to a task due at 5 the oldest has waited since %d", at)
	}
}

// Nothing runs after Stop.
func TestBacklog_stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.kind("k", Bound{}, Bound{}, Undivided)
		b.kind("limited", Bound{Concurrency: 1}, Bound{}, Undivided)
		b.Start()
		time.Sleep(time.Second)
		b.Add(&b.job("k", "a", 1).Task)
		b.Stop()
		b.begin()
		b.Do(&b.job("limited", "a", 1).Task)
		if b.want(t); b.Hire() < time.Hour || len(b.asked) != 0 {
			t.Error("workers are asked for after Stop")
		}
	})
}

// A worker that ends its run takes overdue tasks of kinds not known to be quick only while other workers stay free. A
// kind that hangs has at most half of the workers. Quick kinds need no free worker.
func TestBacklog_workersOfSlowKinds(t *testing.T) {
	for name, c := range map[string]struct {
		size, running, nested int
		quick                 bool
		want                  int // begun runs
	}{
		"one is left free":        {size: 8, running: 7, want: 1},
		"none would be left free": {size: 8, running: 8, want: 0},
		"the only worker":         {size: 1, running: 1, want: 1},
		"quick":                   {size: 8, running: 8, quick: true, want: 20},
		"half of them hang":       {size: 8, running: 1, nested: 10, want: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			b.Resize(c.size, b.Queue)
			k := b.kind("k", Bound{}, Bound{}, Undivided)
			if c.quick {
				k.Took(1)
			}
			for due := range int64(20) {
				j := b.job("k", "a", due)
				j.do = func() {
					if !c.quick && len(b.ran) <= c.nested {
						b.begin() // while this run hangs
					}
					b.waiting = 1 // this worker takes a due run
					if c.quick {
						b.waiting = 0
					}
					time.Sleep(2 * LookEvery)
				}
				b.Add(&j.Task)
			}
			b.Start()
			time.Sleep(50 * time.Millisecond)
			b.running = c.running
			b.begin()
			if len(b.ran) != c.want {
				t.Errorf("%s: %d runs have begun, want %d", name, len(b.ran), c.want)
			}
		})
	}
}

// The rate may be below one run in the time that can be caught up. Then a run begins each time that the rate allows
// one. A run that is not made does not use up the rate.
func TestBacklog_lowRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.SetRate(1)
		b.kind("k", Bound{}, Bound{}, Undivided).Took(1)
		for due := range int64(4) {
			b.Add(&b.job("k", "a", due).Task)
		}
		b.Start()
		time.Sleep(time.Second)
		b.paused = true
		b.begin() // all are passed over, and set aside by the runner
		b.paused = false
		if b.Len() != 0 {
			t.Errorf("%d tasks are left", b.Len())
		}
		b.Add(&b.job("k", "a", 4).Task)
		b.Add(&b.job("k", "a", 5).Task)
		b.begin()
		b.want(t, "a4")
		time.Sleep(time.Second)
		b.begin()
		b.want(t, "a4", "a5")
	})
}

// The groups of a kind with a limit also take turns in the backlog.
func TestBacklog_groupsOfALimitedKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.kind("k", Bound{Concurrency: 8}, Bound{}, Undivided).Took(1)
		for _, j := range []*job{b.job("k", "a", 1), b.job("k", "a", 2), b.job("k", "b", 3)} {
			b.Add(&j.Task)
		}
		b.Start()
		time.Sleep(time.Second)
		b.begin()
		b.want(t, "a1", "b3", "a2")
	})
}

// A kind that has its share may turn out to be quick when its first run ends.
func TestBacklog_aShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k := b.kind("k", Bound{}, Bound{}, Undivided)
		for due := int64(0); b.Takes("k"); due++ {
			b.Add(&b.job("k", "a", due).Task)
		}
		if k.Took(time.Millisecond); !b.Takes("k") {
			t.Error("a quick kind has no more than a share")
		}
	})
}

// The smaller of two bounds counts.
func TestLimiter_bounds(t *testing.T) {
	b := newBench()
	for name, k := range map[string]*Kind{
		"here":    b.kind("k", Bound{Concurrency: 2}, Bound{Concurrency: 9}, Part{0, 2}),
		"cluster": b.kind("k", Bound{Concurrency: 9}, Bound{Concurrency: 4}, Part{0, 2}),
	} {
		if n, _ := k.Limiter.Room(); n != 2 {
			t.Errorf("%s: there is room for %d tasks, want 2", name, n)
		}
	}
}
