// SPDX-License-Identifier: MIT

// Package contract tests the part of the contract that every scheduler of this repository keeps: the wheel in memory,
// with either layout, and the durable scheduler. It runs inside a bubble of virtual time.
package contract

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A Subject is a scheduler under test, which adapts its verbs to this interface.
type Subject interface {
	Add(t Task) error
	Set(t Task) error
	Remove(key string) error
	Reschedule(key string, d time.Duration) error
	Exist(key string) bool
	Times(key string) int
	Len() int
	Start()
	Stop() // waits for running jobs
}

// A Cluster is a Subject of several schedulers. They work at intervals even if nothing is due, so they are not tested
// over long times. Runs that wait for workers of different nodes have no common order.
type Cluster interface{ Nodes() int }

// A Task is a task to add.
type Task struct {
	Key             string
	Interval, Delay time.Duration
	Times           int
	Job             func()
}

// Config configures a subject.
type Config struct {
	Tick     time.Duration
	PoolSize int
}

// Test runs the suite. It calls open for each test, inside a bubble. open must not start the subject.
func Test(t *testing.T, open func(t *testing.T, c Config) Subject) {
	for _, test := range []struct {
		name string
		pool int
		run  func(t *testing.T, r *rig)
	}{
		{"T1 never early, and less than a tick late", 8, neverEarly},
		{"T3 repeats keep their grid", 8, grid},
		{"T3 a move moves the grid", 8, moved},
		{"T6 delays around whole revolutions", 8, revolutions},
		{"K1 of concurrent adds one wins", 8, oneWins},
		{"K2 a repeating task never flickers", 8, noFlicker},
		{"K3 what was removed starts no more", 1, removed},
		{"K5 a later task of the key is another", 8, anotherTask},
		{"K6 times are the runs that are left", 8, timesLeft},
		{"L1 a slow job holds up nothing", 8, slowJob},
		{"L2 what waits is first in, first out", 1, firstInFirstOut},
		{"L4 a panic and a Goexit harm nothing", 8, panics},
		{"S1 before the start", 8, beforeStart},
		{"S2 start and stop at any time", 8, startStop},
		{"S3 after the stop nothing starts", 8, afterStop},
		{"verbs of what is not there", 8, notThere},
		{"a job calls the verbs", 8, reentry},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{Subject: open(t, Config{Tick, test.pool}), t: t, began: time.Now(), hour: hour}
				if c, ok := r.Subject.(Cluster); ok {
					r.nodes, r.hour = c.Nodes(), 2*time.Minute
				}
				defer r.Stop()
				test.run(t, r)
			})
		})
	}
}

// Tick is the tick of the subjects.
const Tick = 10 * time.Millisecond

const (
	ms   = time.Millisecond
	sec  = time.Second
	hour = time.Hour
)

// A rig is a subject and a record of its runs.
type rig struct {
	Subject
	t     *testing.T
	began time.Time
	nodes int           // nodes of a cluster, or 0
	hour  time.Duration // a long time

	mu   sync.Mutex // protects runs
	runs []run
}

type run struct {
	key string
	at  time.Duration // since the rig was made
}

// note returns a job that records its run, and then calls the given functions.
func (r *rig) note(key string, then ...func()) func() {
	return func() {
		r.mu.Lock()
		r.runs = append(r.runs, run{key, time.Since(r.began)})
		r.mu.Unlock()
		for _, f := range then {
			f()
		}
	}
}

func (r *rig) add(t Task) {
	r.t.Helper()
	if err := r.Add(t); err != nil {
		r.t.Fatalf("adding %q: %v", t.Key, err)
	}
}

// pass lets time pass and returns the runs of that time.
func (r *rig) pass(d time.Duration) []run {
	testkit.Settle(d)
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

func (r *rig) now() time.Duration { return time.Since(r.began) }

// want fails the test unless these are the runs of the key, each at its time or less than a tick later.
func (r *rig) want(runs []run, key string, at ...time.Duration) {
	r.t.Helper()
	ok := len(runs) == len(at)
	for i := 0; ok && i < len(at); i++ {
		late := runs[i].at - at[i]
		ok = runs[i].key == key && late >= 0 && late < Tick
	}
	if !ok {
		r.t.Fatalf("%q is to run at %v, and these are the runs: %v", key, at, runs)
	}
}

// ended waits until every node knows that runs have ended. Nodes gather the ends for up to 50 ms.
func (r *rig) ended() {
	if r.nodes > 0 {
		testkit.Settle(50*ms + Tick)
	}
}

func neverEarly(_ *testing.T, r *rig) {
	r.Start()
	for _, d := range []time.Duration{
		1, Tick - 1, Tick, Tick + 1, 25 * ms, sec,
		30 * sec, 59 * sec, 60*sec - 1, 60 * sec, 60*sec + 1, 61 * sec, 90 * sec, 10 * hour, 1000 * hour,
	} {
		if d > max(r.hour, 90*sec) && r.nodes > 0 {
			continue
		}
		at := r.now() + d
		r.add(Task{Key: "k", Interval: d, Job: r.note("k")})
		r.want(r.pass(d+Tick), "k", at)
		r.ended()
		if r.Exist("k") {
			r.t.Errorf("a task of %v has run and is there", d)
		}
		time.Sleep(3 * ms) // off the ticks
	}
}

func grid(_ *testing.T, r *rig) {
	r.Start()
	var at []time.Duration
	for i := range 40 {
		at = append(at, time.Duration(i+1)*25*ms)
	}
	r.add(Task{Key: "k", Interval: 25 * ms, Times: 40, Job: r.note("k")})
	r.want(r.pass(2*sec), "k", at...)
	now := r.now()
	r.add(Task{Key: "delayed", Delay: 7 * sec, Interval: 3 * sec, Times: 3, Job: r.note("delayed")})
	r.want(r.pass(r.hour), "delayed", now+7*sec, now+10*sec, now+13*sec)
}

func moved(_ *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "k", Interval: sec, Times: 5, Job: r.note("k")})
	r.want(r.pass(3*sec+Tick), "k", sec, 2*sec, 3*sec)
	r.ended()
	if err := r.Reschedule("k", 5*sec); err != nil {
		r.t.Fatal(err)
	}
	at := r.now() + 5*sec
	r.want(r.pass(r.hour), "k", at, at+sec)
}

func revolutions(_ *testing.T, r *rig) {
	r.Start()
	for _, slots := range []time.Duration{8, 64, 1024} {
		for n := time.Duration(1); n <= 3; n++ {
			for off := -Tick; off <= Tick; off += Tick {
				d, at := n*slots*Tick+off, r.now()+n*slots*Tick+off
				r.add(Task{Key: "k", Interval: d, Job: r.note("k")})
				r.want(r.pass(d+Tick), "k", at)
				r.ended()
			}
		}
	}
}

func oneWins(t *testing.T, r *rig) {
	r.Start()
	for round := range 10 {
		key := fmt.Sprint("k", round)
		var won atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				switch err := r.Add(Task{Key: key, Interval: sec, Job: r.note(key)}); {
				case err == nil:
					won.Add(1)
					if !r.Exist(key) {
						t.Errorf("%s is added and does not exist", key)
					}
				case !errors.Is(err, timewheel.ErrDuplicateTaskKey):
					t.Errorf("adding %s: %v", key, err)
				}
			})
		}
		all.Wait()
		if n := won.Load(); n != 1 {
			t.Errorf("%d adds of %s won", n, key)
		}
	}
	if n := r.Len(); n != 10 {
		t.Errorf("%d tasks are there, want 10", n)
	}
	if n := len(r.pass(2 * sec)); n != 10 || r.Len() != 0 {
		t.Errorf("%d runs of 10 tasks, and %d are left", n, r.Len())
	}
}

func noFlicker(t *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "k", Interval: Tick, Times: 100, Job: func() {
		if !r.Exist("k") && r.Times("k") > 0 {
			t.Error("it has runs left and does not exist")
		}
	}})
	for r.now() < 99*Tick {
		if !r.Exist("k") {
			t.Fatalf("after %v it does not exist", r.now())
		}
		time.Sleep(ms)
	}
	r.pass(sec)
	if r.Exist("k") {
		t.Error("after its last run it exists")
	}
}

// While the only worker is busy, due tasks wait, and can still be removed.
func removed(t *testing.T, r *rig) {
	r.Start()
	for i := range max(r.nodes, 1) { // one for each worker
		r.add(Task{Key: fmt.Sprint("busy", i), Interval: sec, Job: func() { time.Sleep(10 * sec) }})
	}
	r.add(Task{Key: "waits", Interval: 2 * sec, Job: r.note("waits")})
	r.add(Task{Key: "later", Interval: 20 * sec, Job: r.note("later")})
	r.add(Task{Key: "far", Interval: r.hour, Job: r.note("far")})
	r.pass(5 * sec)
	for _, key := range []string{"waits", "later", "far"} {
		if err := r.Remove(key); err != nil {
			t.Errorf("removing %q: %v", key, err)
		}
		if r.Exist(key) || r.Times(key) != 0 {
			t.Errorf("%q was removed and exists", key)
		}
		if err := r.Remove(key); !errors.Is(err, timewheel.ErrTaskKeyNotFound) {
			t.Errorf("removing %q again: %v", key, err)
		}
	}
	if runs := r.pass(2 * r.hour); len(runs) > 0 {
		t.Errorf("these ran: %v", runs)
	}
}

func anotherTask(t *testing.T, r *rig) {
	r.Start()
	for range 1000 { // enough that the loop has not seen all of them when the last one is added
		r.add(Task{Key: "k", Interval: sec, Job: r.note("first")})
		if err := r.Remove("k"); err != nil {
			t.Fatal(err)
		}
	}
	r.add(Task{Key: "k", Interval: 2 * sec, Job: r.note("second")})
	if err := r.Set(Task{Key: "k", Interval: 3 * sec, Job: r.note("third")}); err != nil {
		t.Fatal(err)
	}
	r.want(r.pass(r.hour), "third", 3*sec)
	if err := r.Set(Task{Key: "k", Interval: sec, Job: r.note("fourth")}); err != nil {
		t.Fatal(err)
	}
	r.want(r.pass(r.hour), "fourth", r.hour+4*sec-3*sec)
}

func timesLeft(t *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "k", Interval: sec, Times: 3, Job: r.note("k")})
	r.add(Task{Key: "ever", Interval: sec, Times: timewheel.Forever, Job: r.note("ever")})
	r.add(Task{Key: "once", Interval: r.hour, Job: r.note("once")})
	for left := 3; left >= 0; left-- {
		if n := r.Times("k"); n != left {
			t.Errorf("%d times are left, want %d", n, left)
		}
		if n := r.Times("ever"); n != timewheel.Forever {
			t.Errorf("%d times are left of forever", n)
		}
		if n := r.Times("once"); n != 1 {
			t.Errorf("%d times are left of one", n)
		}
		r.pass(sec + Tick)
		r.ended()
	}
}

func slowJob(t *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "slow", Interval: sec, Job: func() { time.Sleep(r.hour) }})
	r.add(Task{Key: "k", Interval: 2 * sec, Times: 3, Job: r.note("k")})
	r.want(r.pass(10*sec), "k", 2*sec, 4*sec, 6*sec)
}

func firstInFirstOut(t *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "busy", Interval: sec, Job: func() { time.Sleep(10 * sec) }})
	for i := range 50 {
		key := fmt.Sprintf("%02d", i)
		r.add(Task{Key: key, Interval: 2*sec + time.Duration(50-i)*2*Tick, Job: r.note(key)})
	}
	runs := r.pass(r.hour)
	if len(runs) != 50 {
		t.Fatalf("%d runs of 50", len(runs))
	}
	for i, run := range runs {
		if want := fmt.Sprintf("%02d", 49-i); r.nodes <= 1 && run.key != want {
			t.Errorf("run %d is that of %s, want %s, which was due before", i, run.key, want)
		}
	}
}

func panics(t *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "panics", Interval: sec, Job: func() { panic("on purpose") }})
	r.add(Task{Key: "exits", Interval: sec, Job: runtime.Goexit})
	r.add(Task{Key: "k", Interval: 2 * sec, Times: 2, Job: r.note("k")})
	r.want(r.pass(10*sec), "k", 2*sec, 4*sec)
}

func beforeStart(t *testing.T, r *rig) {
	r.add(Task{Key: "k", Interval: sec, Job: r.note("k")})
	r.add(Task{Key: "moved", Interval: sec, Job: r.note("moved")})
	r.add(Task{Key: "removed", Interval: sec, Job: r.note("removed")})
	if err := errors.Join(r.Remove("removed"), r.Reschedule("moved", 20*sec)); err != nil {
		t.Error(err)
	}
	if !r.Exist("k") || r.Exist("removed") || r.Times("moved") != 1 || r.Len() != 2 {
		t.Error("the verbs do not work before the start")
	}
	if runs := r.pass(10 * sec); len(runs) > 0 {
		t.Errorf("before the start these ran: %v", runs)
	}
	r.Start()
	runs := r.pass(2 * Tick)
	if len(runs) != 1 || runs[0].key != "k" {
		t.Errorf("at the start these ran: %v", runs)
	}
	r.want(r.pass(r.hour), "moved", 20*sec)
}

// A scheduler that several goroutines start at once runs each task once, and a stopped scheduler runs nothing.
func startStop(t *testing.T, r *rig) {
	r.add(Task{Key: "k", Interval: sec, Times: timewheel.Forever, Job: r.note("k")})
	var all sync.WaitGroup
	for range 5 {
		all.Go(r.Start)
	}
	all.Wait()
	r.want(r.pass(3*sec+Tick), "k", sec, 2*sec, 3*sec)
	for range 5 {
		all.Go(r.Stop)
	}
	all.Go(r.Start)
	all.Wait()
	r.pass(0) // tasks that were running when it was stopped
	r.Stop()
	r.Start()
	if runs := r.pass(r.hour); len(runs) > 0 {
		t.Errorf("a scheduler that was stopped ran %v", runs)
	}
	if err := r.Add(Task{Key: "new", Interval: sec, Job: r.note("new")}); !errors.Is(err, timewheel.ErrStopped) {
		t.Errorf("adding to a scheduler that was stopped, and then started: %v", err)
	}
}

func afterStop(t *testing.T, r *rig) {
	r.Start()
	for i := range 20 {
		key := fmt.Sprint(i)
		r.add(Task{Key: key, Interval: time.Duration(i+1) * 100 * ms, Job: r.note(key)})
	}
	ran := len(r.pass(sec))
	if ran == 0 || ran == 20 {
		t.Fatalf("%d of 20 ran", ran)
	}
	r.Stop()
	if runs := r.pass(r.hour); len(runs) > 0 {
		t.Errorf("after the stop these ran: %v", runs)
	}
	if err := r.Add(Task{Key: "new", Interval: sec, Job: r.note("new")}); !errors.Is(err, timewheel.ErrStopped) {
		t.Errorf("adding after the stop: %v", err)
	}
}

func notThere(t *testing.T, r *rig) {
	r.Start()
	for verb, err := range map[string]error{"remove": r.Remove("k"), "reschedule": r.Reschedule("k", sec)} {
		if !errors.Is(err, timewheel.ErrTaskKeyNotFound) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if r.Exist("k") || r.Times("k") != 0 || r.Len() != 0 {
		t.Error("something is there")
	}
	for name, task := range map[string]Task{
		"no key":            {Interval: sec, Job: func() {}},
		"negative interval": {Key: "k", Interval: -1, Job: func() {}},
		"negative delay":    {Key: "k", Interval: sec, Delay: -1, Job: func() {}},
		"negative times":    {Key: "k", Interval: sec, Times: -2, Job: func() {}},
		"twice at once":     {Key: "k", Delay: sec, Times: 2, Job: func() {}},
	} {
		if err := r.Add(task); !errors.Is(err, timewheel.ErrInvalidTask) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func reentry(t *testing.T, r *rig) {
	r.Start()
	r.add(Task{Key: "victim", Interval: r.hour, Job: r.note("victim")})
	r.add(Task{Key: "moved", Interval: r.hour, Job: r.note("moved")})
	r.add(Task{Key: "k", Interval: sec, Job: func() {
		err := errors.Join(r.Remove("victim"), r.Reschedule("moved", 2*sec),
			r.Add(Task{Key: "child", Interval: sec, Job: r.note("child")}))
		if err != nil {
			t.Errorf("inside a job: %v", err)
		}
	}})
	runs := r.pass(2 * r.hour)
	if len(runs) != 2 || runs[0].key != "child" || runs[1].key != "moved" {
		t.Errorf("these ran: %v", runs)
	}
}
