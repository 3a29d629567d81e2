// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	ms   = time.Millisecond
	year = 365 * 24 * time.Hour
)

// newWheel returns a wheel that is not started. At the end of the test it is stopped, and its jobs have ended: no time
// passes in a bubble after its test.
func newWheel(t *testing.T, tick time.Duration, slots int, opts ...timewheel.Option) *timewheel.TimeWheel {
	t.Helper()
	tw, err := timewheel.New(tick, slots, append([]timewheel.Option{timewheel.WithLayout(layout)}, opts...)...)
	must(t, err)
	t.Cleanup(func() {
		tw.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		should(t, tw.Shutdown(ctx))
	})
	return tw
}

// startWheel is newWheel and Start.
func startWheel(t *testing.T, tick time.Duration, slots int, opts ...timewheel.Option) *timewheel.TimeWheel {
	t.Helper()
	tw := newWheel(t, tick, slots, opts...)
	tw.Start()
	return tw
}

// must ends the test if err is not nil. Call it only on the test's goroutine.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// should fails the test if err is not nil.
func should(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// once returns a task with one run.
func once(key string, delay time.Duration, job timewheel.Job) *timewheel.Task {
	return &timewheel.Task{Key: key, Interval: delay, Job: job}
}

// times returns a task with n runs.
func times(key string, interval time.Duration, n int, job timewheel.Job) *timewheel.Task {
	return &timewheel.Task{Key: key, Interval: interval, Times: n, Job: job}
}

// every returns a task that runs until it is removed.
func every(key string, interval time.Duration, job timewheel.Job) *timewheel.Task {
	return &timewheel.Task{Key: key, Interval: interval, Times: timewheel.Forever, Job: job}
}

func nothing(*timewheel.Task) {}

// A journal records which runs began and when.
type journal struct {
	origin time.Time

	mu    sync.Mutex // protects notes
	notes []note
}

type note struct {
	key string
	at  time.Duration // since the journal was opened
}

func newJournal() *journal { return &journal{origin: time.Now()} }

// job is a job that records its task's key.
func (j *journal) job(task *timewheel.Task) { j.note(task.Key) }

func (j *journal) note(key string) {
	at := time.Since(j.origin)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, note{key, at})
}

// keys returns the keys in start order.
func (j *journal) keys() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	keys := make([]string, len(j.notes))
	for i, n := range j.notes {
		keys[i] = n.key
	}
	return keys
}

// at returns when the runs of the key began.
func (j *journal) at(key string) []time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := []time.Duration{}
	for _, n := range j.notes {
		if n.key == key {
			at = append(at, n.at)
		}
	}
	return at
}

func (j *journal) count(key string) int { return len(j.at(key)) }

// want fails the test unless the runs of the key began at these times since the journal was opened.
func (j *journal) want(t *testing.T, key string, at ...time.Duration) {
	t.Helper()
	if got := j.at(key); !slices.Equal(got, at) {
		t.Errorf("runs of %q began at %v, want %v", key, got, at)
	}
}

// occupy keeps n workers of the wheel busy, in the bubble, until release is called. It adds n timers. At the beginning
// of a tick it takes no time.
func occupy(t *testing.T, tw *timewheel.TimeWheel, n int) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	running := tw.Stats().Running
	for range n {
		tw.AfterFunc(0, func() { <-gate })
	}
	synctest.Wait()
	for i := 0; tw.Stats().Running < running+n; i++ {
		if i == 1000 {
			t.Fatalf("%d jobs are running, want %d", tw.Stats().Running, running+n)
		}
		testkit.Settle(ms)
	}
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	return release
}

// balanced fails the test unless the counters of the wheel balance and count the given number of added tasks. The wheel
// must be quiet. The first sum alone would prove little: the wheel may compute Added from it.
func balanced(t *testing.T, tw *timewheel.TimeWheel, added int) timewheel.Stats {
	t.Helper()
	s := tw.Stats()
	if s.Added != uint64(added) || s.Added != s.Finished+s.Removed+uint64(s.Pending) {
		t.Errorf("%d tasks were added, but Added %d, Finished %d + Removed %d + Pending %d",
			added, s.Added, s.Finished, s.Removed, s.Pending)
	}
	if s.Due != s.Started+s.Missed+uint64(s.Waiting)+s.Withdrawn {
		t.Errorf("Due %d is not Started %d + Missed %d + Waiting %d + Withdrawn %d",
			s.Due, s.Started, s.Missed, s.Waiting, s.Withdrawn)
	}
	if s.Pending != tw.Len() || s.Pending < 0 || s.Waiting > s.Pending || s.Running < 0 {
		t.Errorf("Pending %d, Len %d, Waiting %d, Running %d", s.Pending, tw.Len(), s.Waiting, s.Running)
	}
	return s
}

// keysOf returns the keys of the live tasks, sorted.
func keysOf(tw *timewheel.TimeWheel) []string {
	keys := []string{}
	for info := range tw.All() {
		keys = append(keys, info.Key)
	}
	slices.Sort(keys)
	return keys
}

// seeded returns a random source that is the same in every run of the test.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(1987, 6)) }

// A logBook keeps log entries.
type logBook struct {
	mu      sync.Mutex // protects entries
	entries []string
}

// logger returns a logger that writes only into the book, one text per entry.
func (b *logBook) logger() *logrus.Logger {
	l := logrus.New()
	l.SetLevel(logrus.DebugLevel)
	l.SetOutput(b)
	return l
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, string(p))
	return len(p), nil
}

// with returns the entries that contain all the texts.
func (b *logBook) with(texts ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	for _, e := range b.entries {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e, text) }) {
			found = append(found, e)
		}
	}
	return found
}

// quiet is an option for wheels whose jobs panic: their log lines do not matter to the test.
func quiet() timewheel.Option { return timewheel.WithLogger(testkit.Quiet()) }

// name returns the key of the i-th of many tasks.
func name(i int) string { return fmt.Sprintf("task-%06d", i) }

// An executor is an Executor made of a function.
type executor func(f func()) error

func (e executor) Submit(f func()) error { return e(f) }

// meanwhile calls f n times, and check repeatedly in the meantime, until one of them fails.
func meanwhile(t *testing.T, f func() error, n int, check func() error) {
	t.Helper()
	var failed atomic.Bool
	done := make(chan error, 1)
	go func() {
		for range n {
			if err := f(); err != nil || failed.Load() {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := 0; ; i++ {
		if err := check(); err != nil {
			failed.Store(true)
			t.Errorf("at the %d-th try: %v", i+1, err)
		}
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
		if failed.Load() {
			<-done
			return
		}
	}
}
