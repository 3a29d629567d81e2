// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A model is the simplest form of a wheel: a map of tasks that is searched completely at every step. A walk applies the
// same operations to a wheel and to its model, and draws them from a script. After each step it compares everything
// observable, and checks the wheel's internal structure.
//
// One worker runs all jobs, so their order is deterministic. A gate can hold up the worker in the middle of a job, so
// that due runs wait. The clock is fake: it moves tick by tick, or leaps.
type model struct {
	tick, now uint64
	tasks     map[string]*modelTask // live tasks; the names of timers are not valid keys
	offset    int64                 // the wall clock minus the monotonic clock
	queue     []*modelTask          // waiting runs
	atWork    *modelTask            // the run that the gate holds up
	gate      bool                  // whether the gate is closed and holds up any job that begins
	leap      bool                  // whether the clock leaps; jobs then do not touch other tasks
	started   bool
	stopped   bool
	max       int
	stats     Stats
	runs      []string                 // runs since the last comparison, in order
	hint      func(n int) (key string) // key of the wheel's n-th run, as the order within a tick is unspecified
}

type modelTask struct {
	key      string
	interval uint64
	due      uint64 // when the next period is due
	times    int
	does     behaviour

	waiting bool
	since   uint64 // when the waiting run was due
	fired   uint64 // tick at which the waiting run was dispatched
	ended   bool   // whether the last run is waiting, so that there is no next period
	paused  bool
	left    uint64 // time until the next run, if the task is paused
	wall    int64  // when the first run is due by the wall clock; 0 if the task does not follow it
}

// A behaviour is something that a job does in addition to being counted.
type behaviour struct {
	kind  int
	other string
	delay time.Duration
}

const (
	nothing = iota
	panics
	exits
	addsAgain
	removes
	moves
	sets
	pauses
	behaviours
)

func (m *model) up(due uint64) uint64 { return (due-1)/m.tick + 1 } // nothing is due at instant 0

// sum returns the instant d later, but stays below the end of time.
func sum(instant, d uint64) uint64 {
	if instant > math.MaxUint64-1-d {
		return math.MaxUint64 - 1
	}
	return instant + d
}

// settle runs every due task that can run.
func (m *model) settle() {
	for m.started && !m.stopped {
		var due []*modelTask
		for _, t := range m.tasks {
			if !t.ended && !t.paused && m.up(t.due) <= m.now/m.tick {
				due = append(due, t)
			}
		}
		slices.SortFunc(due, func(a, b *modelTask) int { return cmp.Compare(m.up(a.due), m.up(b.due)) })
		for _, t := range due {
			m.fire(t)
		}
		if len(m.queue) == 0 || m.atWork != nil {
			return
		}
		// First in, first out; among tasks of one tick, the one that the wheel has begun.
		i := slices.IndexFunc(m.queue, func(t *modelTask) bool {
			return t.fired == m.queue[0].fired && t.key == m.hint(len(m.runs))
		})
		t := m.queue[max(i, 0)]
		m.queue = slices.Delete(m.queue, max(i, 0), max(i, 0)+1)
		m.begin(t)
	}
}

func (m *model) fire(t *modelTask) {
	m.stats.Due++
	t.wall = 0
	if t.waiting {
		m.stats.Missed++
	} else {
		t.waiting, t.since, t.fired = true, t.due, m.up(t.due)
		m.queue = append(m.queue, t)
		if t.times == 1 {
			t.ended = true
			return
		}
	}
	interval := max(t.interval, m.tick)
	for t.due = sum(t.due, interval); m.up(t.due) <= m.now/m.tick; t.due = sum(t.due, interval) {
		m.stats.Due++
		m.stats.Missed++
	}
}

func (m *model) begin(t *modelTask) {
	t.waiting = false
	m.stats.Started++
	if t.times != Forever {
		t.times--
	}
	m.runs = append(m.runs, fmt.Sprintf("%s, %d left, at %d", t.key, t.times, m.now))
	if t.times == 0 {
		m.stats.Finished++
		delete(m.tasks, t.key)
	}
	if m.gate {
		m.atWork = t
		return
	}
	m.end(t)
}

func (m *model) end(t *modelTask) {
	m.atWork = nil
	switch b := t.does; b.kind {
	case panics, exits:
		m.stats.Panicked++
	case addsAgain:
		if !t.timer() {
			_ = m.add(t.key, uint64(b.delay), uint64(b.delay), 1, behaviour{}, false)
		}
	case removes:
		if !m.leap {
			_ = m.remove(b.other)
		}
	case moves:
		if !m.leap {
			_ = m.move(b.other, b.delay)
		}
	case sets:
		if !m.leap {
			_ = m.set(b.other, uint64(b.delay), uint64(b.delay), 2, behaviour{})
		}
	case pauses:
		if !m.leap {
			_ = m.pause(b.other)
		}
	}
}

func (m *model) add(key string, delay, interval uint64, times int, does behaviour, unbounded bool) error {
	switch {
	case m.stopped:
		return ErrStopped
	case m.tasks[key] != nil:
		return ErrDuplicateTaskKey
	case !unbounded && len(m.tasks) >= m.max:
		return ErrFull
	}
	m.tasks[key] = &modelTask{key: key, interval: interval, due: sum(m.now, delay), times: times, does: does}
	return nil
}

// at makes a task due by the wall clock, if it was just added.
func (m *model) at(key string, at time.Time, err error) {
	t := m.tasks[key]
	if err != nil {
		return
	}
	t.wall = at.UnixNano()
	t.due = max(uint64(max(t.wall-m.offset, 0))+m.tick, m.now)
}

func (m *model) set(key string, delay, interval uint64, times int, does behaviour) error {
	if m.stopped {
		return ErrStopped
	}
	replaces := m.remove(key) == nil
	return m.add(key, delay, interval, times, does, replaces)
}

// find returns the task of the key, unless the wheel has stopped.
func (m *model) find(key string) (*modelTask, error) {
	t := m.tasks[key]
	switch {
	case m.stopped:
		return nil, ErrStopped
	case t == nil:
		return nil, ErrTaskKeyNotFound
	}
	return t, nil
}

func (m *model) withdraw(t *modelTask) {
	if t.waiting {
		t.waiting, t.ended = false, false
		m.stats.Withdrawn++
		m.queue = slices.DeleteFunc(m.queue, func(o *modelTask) bool { return o == t })
	}
}

func (m *model) remove(key string) error {
	t := m.tasks[key]
	if t == nil {
		return ErrTaskKeyNotFound
	}
	m.withdraw(t)
	m.stats.Removed++
	delete(m.tasks, key)
	return nil
}

func (m *model) move(key string, d time.Duration) error {
	t, err := m.find(key)
	if err != nil {
		return err
	}
	m.withdraw(t)
	t.due, t.left, t.wall = sum(m.now, uint64(d)), uint64(d), 0
	return nil
}

func (m *model) pause(key string) error {
	t, err := m.find(key)
	if err == nil && !t.paused {
		t.left, t.wall = max(m.next(t), m.now)-m.now, 0
		m.withdraw(t)
		t.paused = true
	}
	return err
}

func (m *model) resume(key string) error {
	t, err := m.find(key)
	if err == nil && t.paused {
		t.paused, t.due = false, sum(m.now, t.left)
	}
	return err
}

// follow makes dated tasks follow the wall clock, as the wheel does when it looks at the clock.
func (m *model) follow() {
	for _, t := range m.tasks {
		due := uint64(max(t.wall-m.offset, 0)) + m.tick
		if t.wall != 0 && !t.waiting && (due > m.now || t.due > m.now) {
			t.due = max(due, m.now)
		}
	}
}

// timer reports whether the task is a timer: the names of timers are longer than a key.
func (t *modelTask) timer() bool { return len(t.key) > 1 }

// next returns when the next run of the task is due, was due, or would be due if it was resumed.
func (m *model) next(t *modelTask) uint64 {
	switch {
	case t.waiting:
		return t.since
	case t.paused:
		return sum(m.now, t.left)
	}
	return t.due
}

// A walk is a wheel and its model, side by side.
type walk struct {
	t      *testing.T
	script []byte
	model  model
	tw     *TimeWheel
	clock  *clock.Fake
	ahead  time.Duration // how far ahead the wall clock was set
	slots  int
	keys   []string
	timers map[string]*Timer
	gate   chan struct{}
	runs   []string // only the one worker appends, and nothing reads runs at the same time
	step   string
}

// draw returns a number below n from the script, or 0 when the script has ended.
func (w *walk) draw(n int) int { return int(w.draw64(int64(n))) }

func (w *walk) draw64(n int64) int64 {
	v := int64(0)
	for limit := n - 1; limit > 0; limit >>= 8 {
		if len(w.script) == 0 {
			break
		}
		v = v<<8 | int64(w.script[0])
		w.script = w.script[1:]
	}
	return v % n
}

// runWalk performs the walk that the script describes, and returns the number of steps.
func runWalk(t *testing.T, script []byte) (steps int) {
	w := &walk{t: t, script: script, timers: make(map[string]*Timer), gate: make(chan struct{})}
	ticks := []uint64{1, 10, 1000, 1 << 20, 1<<20 + 1}
	starts := []uint64{0, 1<<31 - 500, 1<<32 - 500, 1<<53 - 500, 1<<63 - 500, 12345}
	w.slots = []int{1, 2, 3, 5, 8, 64, 100}[w.draw(7)]
	tick := ticks[w.draw(len(ticks))]
	start := starts[w.draw(len(starts))]
	if start < 1<<63-500 && start*tick/tick == start && start*tick < 1<<63 {
		start *= tick // in ticks, if the clock reaches that far
	}
	for i := range 6 {
		w.keys = append(w.keys, string(rune('a'+i)))
	}
	w.clock = clock.NewFake(start)
	w.model = model{tick: tick, now: start + tick, tasks: make(map[string]*modelTask), max: 8, hint: w.begun}
	var err error
	w.tw, err = New(time.Duration(tick), w.slots,
		WithLayout(Layout(w.draw(2))), WithClock(w.clock), WithPoolSize(1), WithMaxPending(w.model.max),
		WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	w.tw.loop.dates.every = 1 // so that the loop looks at the wall clock whenever it wakes up
	w.setWall(0)
	defer w.finish()
	if w.draw(4) > 0 {
		w.begin()
	}
	for len(w.script) > 0 && !t.Failed() {
		w.do()
		w.compare()
		steps++
	}
	return steps
}

func (w *walk) begin() {
	w.tw.Start()
	w.model.started = w.model.started || !w.model.stopped
	if !w.model.stopped {
		w.model.follow()
	}
}

// setWall sets the wall clock.
func (w *walk) setWall(ahead time.Duration) {
	w.ahead = ahead
	w.clock.SetWall(ahead)
	w.model.offset = w.clock.Time(0).UnixNano()
}

// begun returns the key of the n-th run of the wheel since the last comparison, or "" if there was none.
func (w *walk) begun(n int) string {
	if n >= len(w.runs) {
		return ""
	}
	key, _, _ := strings.Cut(w.runs[n], ",")
	return key
}

// finish lets every job end. The bubble around the walk fails if a goroutine is left.
func (w *walk) finish() {
	close(w.gate)
	w.tw.Stop()
}

func (w *walk) open() {
	w.model.gate = false
	if w.model.atWork != nil {
		w.gate <- struct{}{}
		w.model.end(w.model.atWork)
	}
}

func (w *walk) delay() time.Duration {
	tick, slots := int64(w.model.tick), int64(w.slots)
	switch w.draw(8) {
	case 0:
		return time.Duration(1 + w.draw64(tick)) // within a tick
	case 1:
		turns := slots*(1+w.draw64(3)) + w.draw64(3) - 1
		return time.Duration(tick * max(1, turns)) // about a whole number of circles
	case 2:
		return time.Duration(1 + w.draw64(tick*slots*5000)) // thousands of circles
	case 3:
		return time.Duration(math.MaxInt64 - w.draw64(2)) // almost forever
	default:
		return time.Duration(1 + w.draw64(tick*slots*3))
	}
}

// job returns a job with the given behaviour, whose runs are counted.
func (w *walk) job(name string, does behaviour) Job {
	return func(task *Task) {
		w.runs = append(w.runs, fmt.Sprintf("%s, %d left, at %d", name, task.Times, w.tw.loop.now()))
		if w.model.gate {
			<-w.gate
		}
		leap := w.model.leap
		switch does.kind {
		case panics:
			panic("told to")
		case exits:
			runtime.Goexit()
		case addsAgain:
			if task.Key != "" {
				_ = w.tw.AddTask(&Task{Key: task.Key, Interval: does.delay, Job: w.job(name, behaviour{})})
			}
		case removes:
			if !leap {
				_ = w.tw.RemoveTask(does.other)
			}
		case moves:
			if !leap {
				_ = w.tw.Reschedule(does.other, does.delay)
			}
		case sets:
			if !leap {
				_ = w.tw.SetTask(&Task{
					Key: does.other, Interval: does.delay, Times: 2, Job: w.job(does.other, behaviour{}),
				})
			}
		case pauses:
			if !leap {
				_ = w.tw.Pause(does.other)
			}
		}
	}
}

// do draws one step and applies it to both the wheel and the model.
func (w *walk) do() {
	m, key := &w.model, w.keys[w.draw(len(w.keys))]
	switch w.draw(20) {
	case 0, 1, 2, 3: // AddTask
		task, does := w.task(key)
		w.step = fmt.Sprintf("add %+v %+v", *task, does)
		err := m.add(key, first(task), uint64(task.Interval), max(task.Times, -1), does, false)
		if at := w.date(task); at.IsZero() {
			w.same(w.tw.AddTask(task), err)
		} else {
			m.at(key, at, err)
			w.same(w.tw.AddAt(at, task), err)
		}
	case 4: // SetTask
		task, does := w.task(key)
		w.step = fmt.Sprintf("set %+v %+v", *task, does)
		err := m.set(key, first(task), uint64(task.Interval), max(task.Times, -1), does)
		if at := w.date(task); at.IsZero() {
			w.same(w.tw.SetTask(task), err)
		} else {
			m.at(key, at, err)
			w.same(w.tw.SetAt(at, task), err)
		}
	case 5:
		if w.step = "remove " + key; w.draw(2) == 0 {
			w.same(w.tw.RemoveTask(key), m.remove(key))
			return
		}
		w.removeWait(key)
	case 6, 7:
		d := w.delay()
		if w.draw(8) == 0 {
			d = 0
		}
		w.step = fmt.Sprintf("move %s to %d", key, d)
		w.same(w.tw.Reschedule(key, d), m.move(key, d))
	case 8:
		w.doTimer("timer " + key)
	case 9:
		if w.draw(4) == 0 {
			w.drain()
			return
		}
		w.step = "trim"
		w.tw.index.trim()
	case 10:
		w.step = "gate"
		if m.gate = !m.gate; !m.gate {
			w.open()
		}
	case 11:
		w.step = "release"
		if m.atWork != nil {
			w.gate <- struct{}{}
			m.end(m.atWork)
		}
	case 12:
		w.step = "start" // many ticks may be overdue, as after a leap
		m.leap = true
		w.begin()
		w.advance(0)
		m.leap = false
	case 13: // one leap of any length
		d := w.delay() / 2
		w.step = fmt.Sprintf("leap %d", d)
		if m.now+uint64(d) > 1<<63+1<<62 || d > time.Duration(m.tick)*100_000 {
			return // beyond the clock, or too far for the model
		}
		m.leap = true
		w.advance(uint64(d))
		m.leap = false
	case 14:
		if w.draw(32) == 0 {
			w.step = "stop"
			w.tw.Stop()
			m.stopped = true
		}
	case 15:
		w.step = "pause " + key
		w.same(w.tw.Pause(key), m.pause(key))
	case 16:
		w.step = "resume " + key
		w.same(w.tw.Resume(key), m.resume(key))
	case 17: // by whole ticks: the wheel notices no smaller change
		n := time.Duration(1 + w.draw(3*w.slots))
		if w.draw(2) == 0 {
			n = -n
		}
		w.step = fmt.Sprintf("set the wall clock by %d ticks", n)
		w.setWall(w.ahead + n*time.Duration(m.tick))
		w.advance(1)
	case 18:
		if w.draw(8) == 0 {
			w.prefix(key)
		}
	default: // tick by tick
		n := 1 + w.draw(3*w.slots)
		w.step = fmt.Sprintf("%d ticks", n)
		w.advance(m.tick - m.now%m.tick)
		for range n {
			w.advance(m.tick)
		}
		w.advance(uint64(w.draw(int(m.tick))))
	}
}

// advance moves both clocks in one step, when all is quiet: see rig.advance.
func (w *walk) advance(d uint64) {
	synctest.Wait()
	w.clock.Advance(time.Duration(d))
	synctest.Wait()
	w.model.now += d
	if w.model.started && !w.model.stopped {
		w.model.follow()
	}
	w.model.settle()
}

// removeWait does not wait: a run of the key can be in progress only because the gate holds it up.
func (w *walk) removeWait(key string) {
	m := &w.model
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	running, err := w.tw.RemoveWait(ctx, key)
	want := m.remove(key)
	atWork := m.atWork != nil && m.atWork.key == key
	if atWork {
		want = context.Canceled
	}
	if w.same(err, want); running != atWork {
		w.t.Errorf("%s, and wait: running is %v", w.step, running)
	}
}

// prefix applies an operation to the tasks with a prefix, which matches either one key or all keys.
func (w *walk) prefix(prefix string) {
	m, moves, d := &w.model, w.draw(2) == 0, w.delay()
	if w.draw(2) == 0 {
		prefix = ""
	}
	var n, want int
	var err, wantErr error
	if w.step = "remove all of " + prefix; moves {
		w.step = fmt.Sprintf("move all of %s to %d", prefix, d)
		n, err = w.tw.ReschedulePrefix(context.Background(), prefix, d)
	} else {
		n, err = w.tw.RemovePrefix(context.Background(), prefix)
	}
	for _, key := range w.keys {
		if m.tasks[key] == nil || !strings.HasPrefix(key, prefix) {
			continue
		}
		do := m.remove
		if moves {
			do = func(key string) error { return m.move(key, d) }
		}
		if wantErr = do(key); wantErr != nil {
			break
		}
		want++
	}
	if w.same(err, wantErr); n != want {
		w.t.Errorf("%s: it was %d, want %d", w.step, n, want)
	}
}

func (w *walk) task(key string) (*Task, behaviour) {
	does := behaviour{kind: w.draw(behaviours), other: w.keys[w.draw(len(w.keys))], delay: w.delay()}
	task := &Task{Key: key, Interval: w.delay(), Times: []int{1, 1, 2, 5, Forever}[w.draw(5)]}
	if w.draw(3) == 0 {
		task.Delay = w.delay()
	}
	task.Job = w.job(key, does)
	return task, does
}

// date draws a wall time at which the task is due, or none.
func (w *walk) date(task *Task) time.Time {
	d := min(w.delay(), time.Duration(w.model.tick)*1000) - time.Duration(w.model.tick)*10
	at := w.clock.Time(w.clock.Now()).Add(d)
	if w.draw(4) > 0 || task.Delay > 0 || at.Year() > 2200 { // beyond 2261, on an old clock
		return time.Time{}
	}
	w.step += fmt.Sprint(" at ", at)
	return at
}

func first(task *Task) uint64 { return uint64(cmp.Or(task.Delay, task.Interval)) }

func (w *walk) doTimer(name string) {
	m, d := &w.model, w.delay()
	timer := w.timers[name]
	switch _, live := m.tasks[name]; {
	case timer == nil:
		w.step = fmt.Sprintf("%s after %d", name, d)
		w.timers[name] = w.tw.AfterFunc(d, func() { w.job(name, behaviour{})(&Task{}) })
		_ = m.add(name, uint64(d), 1, 1, behaviour{}, true)
	case w.draw(2) == 0:
		w.step = name + " stop"
		if got := timer.Stop(); got != live {
			w.t.Errorf("%s: Stop is %v", name, got)
		}
		_ = m.remove(name)
	default:
		w.step = fmt.Sprintf("%s reset %d", name, d)
		if got := timer.Reset(d); got != live {
			w.t.Errorf("%s: Reset is %v", name, got)
		}
		if live {
			m.withdraw(m.tasks[name])
			m.tasks[name].due = sum(m.now, uint64(d))
		} else {
			_ = m.add(name, uint64(d), 1, 1, behaviour{}, true)
		}
	}
}

func (w *walk) drain() {
	w.step = "drain"
	m := &w.model
	byNext := func(a, b *modelTask) int { return cmp.Compare(m.next(a), m.next(b)) }
	want := slices.SortedFunc(maps.Values(m.tasks), byNext)
	var got []*Task
	n, err := w.tw.Drain(func(task *Task) { got = append(got, task) })
	if n != len(want) || len(got) != n || err != nil {
		w.t.Fatalf("drain took %d tasks and returned %d, %v, want %d", len(got), n, err, len(want))
	}
	next := make([]uint64, len(want)) // before they are removed
	for i, t := range want {
		next[i] = m.next(t)
	}
	for i, t := range want {
		key, delay := t.key, time.Duration(1)
		if t.timer() {
			key = ""
		}
		if m.next(t) > m.now {
			delay = time.Duration(min(m.next(t)-m.now, math.MaxInt64))
		}
		tied := i > 0 && next[i-1] == next[i] || i+1 < len(want) && next[i+1] == next[i]
		if g := got[i]; g.Delay != delay || !tied && (g.Key != key || g.Times != t.times || g.Job == nil) {
			w.t.Errorf("drained %q, %d times in %d, want %q, %d times in %d",
				g.Key, g.Times, g.Delay, key, t.times, delay)
		}
		_ = m.remove(t.key)
	}
}

func (w *walk) same(got, want error) {
	w.t.Helper()
	if !errors.Is(got, want) {
		w.t.Errorf("%s: error %v, want %v", w.step, got, want)
	}
}

// compare compares everything observable.
func (w *walk) compare() {
	synctest.Wait()
	w.model.settle()
	m := &w.model
	if !slices.Equal(w.runs, m.runs) {
		w.t.Fatalf("after %s: ran %q, want %q", w.step, w.runs, m.runs)
	}
	w.runs, m.runs = nil, nil

	want := m.stats
	want.Pending, want.Waiting = len(m.tasks), len(m.queue)
	if m.atWork != nil {
		want.Running = 1
	}
	want.Workers = 1
	for _, t := range m.tasks {
		if t.paused {
			want.Paused++
		}
	}
	if len(m.queue) > 0 {
		want.OldestWait = w.tw.Stats().OldestWait // see below
	}
	want.Added = want.Finished + want.Removed + uint64(want.Pending)
	if got := w.tw.Stats(); got != want {
		w.t.Fatalf("after %s: stats\n%+v, want\n%+v", w.step, got, want)
	}
	if got := w.tw.Len(); got != len(m.tasks) {
		w.t.Fatalf("after %s: Len is %d, want %d", w.step, got, len(m.tasks))
	}

	infos := make(map[string]Info)
	for info := range w.tw.All() {
		infos[info.Key] = info
	}
	if many := w.tw.GetMany(w.keys...); len(many) != len(infos) {
		w.t.Fatalf("after %s: GetMany has %d tasks, and All %d", w.step, len(many), len(infos))
	}
	for _, key := range w.keys {
		w.compareTask(key, m.tasks[key], infos)
		if n := len(slices.Collect(w.tw.AllPrefix(key))); (n == 1) != (m.tasks[key] != nil) || n > 1 {
			w.t.Fatalf("after %s: AllPrefix(%s) has %d tasks", w.step, key, n)
		}
	}
	if len(infos) > 0 {
		w.t.Fatalf("after %s: All yields %v besides", w.step, infos)
	}
	w.compareView()
	if err := w.tw.Check(); err != nil {
		w.t.Fatalf("after %s: %v", w.step, err)
	}
	synctest.Wait() // the loop goes to sleep again before the clock moves
}

func (w *walk) compareView() {
	m := &w.model
	placed, turn := 0, m.now/m.tick+uint64(w.slots) // the last tick of a turn
	var want []uint64
	for _, t := range m.tasks {
		if t.paused {
			continue
		}
		if !t.waiting && m.up(t.due) <= turn && t.due <= turn*m.tick {
			want = append(want, t.due)
		}
		if !t.waiting || t.times != 1 {
			placed++
		}
	}
	slices.Sort(want)
	var next []uint64
	for _, t := range m.queue {
		next = append(next, t.since)
	}
	next = append(next, want...)

	n := 0
	for _, s := range w.tw.Occupancy(w.slots) {
		n += s.Tasks
	}
	if n != placed {
		w.t.Fatalf("after %s: %d tasks are in the slots, want %d", w.step, n, placed)
	}
	hand := w.tw.Hand()
	if now := int(m.now / m.tick % uint64(w.slots)); w.tw.IsRunning() && hand.Slot != now {
		w.t.Fatalf("after %s: the hand is at %d, want %d", w.step, hand.Slot, now)
	}
	if !w.tw.IsRunning() {
		return // the circle is relative to the last tick that has passed
	}
	for _, n := range []int{1, 3, 100} {
		upcoming := w.tw.Upcoming(n)
		if len(upcoming) != min(n, len(next)) {
			w.t.Fatalf("after %s: %d tasks of %d come next, want %d: %+v", w.step, len(upcoming), len(next), n, upcoming)
		}
		for i, info := range upcoming {
			if info.Waiting != (i < len(m.queue)) || i < len(m.queue) && n < 100 {
				continue // tasks of one tick wait in any order
			}
			if at := w.clock.Time(next[i] - m.tick); !info.Waiting && n == 100 && !info.Next.Equal(at) {
				w.t.Fatalf("after %s: number %d of %d is %+v, want one due at %v", w.step, i, n, info, at)
			}
			if got, ok := w.tw.Get(info.Key); info.Key != "" && (!ok || got != info) {
				w.t.Fatalf("after %s: number %d of %d is %+v, and Get has %+v", w.step, i, n, info, got)
			}
		}
		for i := range upcoming {
			if upcoming[i].Waiting != (i < len(m.queue)) {
				w.t.Fatalf("after %s: number %d of %d is %+v, and %d wait", w.step, i, n, upcoming[i], len(m.queue))
			}
		}
	}
	if got, want := len(w.tw.LongestRuns(10)), w.tw.Stats().Running; got != want {
		w.t.Fatalf("after %s: %d runs are running, want %d", w.step, got, want)
	}
}

func (w *walk) compareTask(key string, t *modelTask, infos map[string]Info) {
	m := &w.model
	info, ok := w.tw.Get(key)
	if exist := w.tw.Exist(key); exist != (t != nil) || ok != exist {
		w.t.Fatalf("after %s: Exist(%s) is %v, Get says %v", w.step, key, exist, ok)
	}
	times := w.tw.GetTaskTimes(key)
	if t == nil {
		if times != 0 {
			w.t.Fatalf("after %s: GetTaskTimes(%s) of no task is %d", w.step, key, times)
		}
		return
	}
	want := Info{
		Key: key, Interval: time.Duration(t.interval), Times: t.times, Waiting: t.waiting,
		Next: w.clock.Time(m.next(t) - m.tick), Paused: t.paused,
	}
	if !t.waiting && !t.paused {
		at, now, n := m.up(t.due), m.now/m.tick, uint64(w.slots)
		want.Slot = int(at % n)
		if at > now {
			want.Circle = int(min((at-now-1)/n, math.MaxInt))
		}
	}
	if !reflect.DeepEqual(info, want) || times != t.times || !reflect.DeepEqual(infos[key], want) {
		w.t.Fatalf("after %s: Get(%s), All, GetTaskTimes are\n%+v\n%+v\n%d, want\n%+v\nand the first",
			w.step, key, info, infos[key], times, want)
	}
	delete(infos, key)
}

func TestWheel_randomWalk_agreesWithModel(t *testing.T) {
	testkit.NotForRaces(t)
	walks := 1000
	if testing.Short() {
		walks = 200
		if testkit.Race {
			walks = 20
		}
	}
	steps := 0
	for seed := range walks {
		script := make([]byte, 2000)
		rng := rand.New(rand.NewPCG(uint64(seed), 581295))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { steps += runWalk(t, script) })
		})
		if !ok {
			return
		}
	}
	if steps < 50*walks {
		t.Errorf("%d walks made %d steps: too many end early", walks, steps)
	}
}

func FuzzWheel_agreesWithModel(f *testing.F) {
	f.Add([]byte("keyed tasks on a round-counting timing wheel"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4000 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { runWalk(t, script) })
	})
}
