// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A driver drives one wheel. Each of its goroutines has separate keys, and so knows their tasks. The runs, the wheel's
// goroutines and the verbs that read all tasks interfere.
type driver struct {
	*account
	lateness *lateness
	layout   timewheel.Layout
	tick     time.Duration
	slots    int
	pool     int

	quiet sync.RWMutex // held for writing while the goroutines rest
	tw    *timewheel.TimeWheel
	added atomic.Int64 // successful adds since tw was made, including timers
}

const keysEach = 200

// open creates the wheel and starts it.
func (d *driver) open() error {
	log := logrus.New()
	log.SetOutput(io.Discard)
	tw, err := timewheel.New(d.tick, d.slots,
		timewheel.WithLayout(d.layout), timewheel.WithPoolSize(d.pool), timewheel.WithLogger(log),
		timewheel.WithObserver(d.observe),
		timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) { d.panics.Add(1) }))
	if err != nil {
		return err
	}
	d.tw = tw
	d.added.Store(0)
	tw.Start()
	return nil
}

func (d *driver) observe(r timewheel.Run) {
	d.lateness.observe(r)
	if r.Started.Before(r.Due) {
		d.fault(&d.early, "%s: it began %v early", r.Key, r.Due.Sub(r.Started))
	}
}

// A hand is one driving goroutine.
type hand struct {
	*driver
	name    string
	r       *rand.Rand
	records map[string]*record // the records of its keys, to its knowledge
	old     []*record          // earlier records, to settle at the next rest
	timers  []*clocked
}

func (d *driver) newHand(name string, seed, stream uint64) *hand {
	return &hand{
		driver: d, name: name, r: rand.New(rand.NewPCG(seed, stream)), records: make(map[string]*record),
	}
}

// drive does one operation after another until ctx is done.
func (h *hand) drive(ctx context.Context) {
	for ctx.Err() == nil {
		h.quiet.RLock()
		for range 64 {
			h.operations.Add(1)
			h.act()
		}
		h.quiet.RUnlock()
	}
}

// act does one random operation.
func (h *hand) act() {
	key := fmt.Sprint(h.name, "-", h.r.IntN(keysEach))
	rec := h.records[key]
	switch k := h.r.IntN(100); {
	case k < 33:
		h.add(key, rec)
	case k < 43:
		h.set(key, rec)
	case k < 58:
		h.remove(key, rec)
	case k < 61:
		h.removeWait(key, rec)
	case k < 72:
		h.reschedule(key, rec)
	case k < 77:
		h.pause(key, rec)
	case k < 82:
		h.resume(key, rec)
	case k < 83:
		h.prefix(key)
	case k < 95:
		h.look(key)
	case k < 99:
		h.timer()
	default:
		if err := h.tw.ResizePool(1 + h.r.IntN(2*h.pool)); err != nil {
			h.fault(&h.unheard, "ResizePool: %v", err)
		}
	}
}

// newTask draws a task and its record.
func (h *hand) newTask(key string) (*timewheel.Task, *record) {
	interval := 1 + time.Duration(h.r.Int64N(1<<(10+h.r.IntN(16)))) // up to 1 µs, …, up to 34 ms
	times := []int{1, 1, 1, 2, 5, timewheel.Forever}[h.r.IntN(6)]
	task := &timewheel.Task{Key: key, Interval: interval, Times: times}
	if h.r.IntN(3) == 0 {
		task.Delay = 1 + time.Duration(h.r.Int64N(1<<26))
	}
	rec := &record{account: h.account, key: key, interval: max(interval, h.tick), times: max(times, 0)}
	task.Job = h.job(rec, h.r.IntN(1000))
	return task, rec
}

// job returns a job that may misbehave.
func (h *hand) job(rec *record, does int) timewheel.Job {
	tw := h.tw
	return func(task *timewheel.Task) {
		rec.begin()
		defer rec.finish()
		switch {
		case does < 5:
			panic("trouble")
		case does < 10:
			runtime.Goexit()
		case does < 15:
			time.Sleep(time.Duration(does) * 100 * time.Microsecond)
		case does < 30:
			tw.Exist(task.Key)
			tw.GetTaskTimes(task.Key)
			tw.Get(task.Key)
			tw.Len()
			_ = tw.AddTask(&timewheel.Task{Key: task.Key, Interval: -1, Job: task.Job}) // refused
		case does < 31:
			select { // for long, but not so long that others never get a worker
			case <-task.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

func (h *hand) first(task *timewheel.Task) time.Duration {
	if task.Delay > 0 {
		return task.Delay
	}
	return task.Interval
}

func (h *hand) add(key string, old *record) {
	task, rec := h.newTask(key)
	rec.earlier = time.Now().Add(h.first(task))
	add := h.tw.AddTask
	if task.Delay == 0 && h.r.IntN(10) == 0 { // a tick later, because the wall clock may be off by that
		add = func(task *timewheel.Task) error { return h.tw.AddAt(rec.earlier.Add(h.tick), task) }
	}
	switch err := add(task); {
	case err == nil:
		h.added.Add(1)
		if old != nil {
			h.old = append(h.old, old)
		}
		h.records[key] = rec
	case !errors.Is(err, timewheel.ErrDuplicateTaskKey) || old == nil:
		h.fault(&h.unheard, "%s: AddTask: %v", key, err)
	}
}

func (h *hand) set(key string, old *record) {
	task, rec := h.newTask(key)
	rec.earlier = time.Now().Add(h.first(task))
	// The old task may have had its last run just before, so it is unknown whether this one replaced it.
	if err := h.tw.SetTask(task); err != nil {
		h.fault(&h.unheard, "%s: SetTask: %v", key, err)
		return
	}
	h.added.Add(1)
	if old != nil {
		old.replace()
		h.old = append(h.old, old)
	}
	h.records[key] = rec
}

func (h *hand) remove(key string, rec *record) {
	switch err := h.tw.RemoveTask(key); {
	case err == nil && rec == nil:
		h.fault(&h.unheard, "%s: RemoveTask found a task that was never added", key)
	case err == nil:
		rec.end()
		h.old = append(h.old, rec)
		delete(h.records, key)
	case !errors.Is(err, timewheel.ErrTaskKeyNotFound):
		h.fault(&h.unheard, "%s: RemoveTask: %v", key, err)
	case rec != nil && rec.times == 0:
		h.fault(&h.lost, "%s: it was to run forever", key)
	case rec != nil: // it has had its last run
		h.old = append(h.old, rec)
		delete(h.records, key)
	}
}

func (h *hand) reschedule(key string, rec *record) {
	d := time.Duration(h.r.Int64N(1 << 25))
	if rec != nil {
		rec.move()
	}
	switch err := h.tw.Reschedule(key, d); {
	case err == nil && rec == nil:
		h.fault(&h.unheard, "%s: Reschedule found a task that was never added", key)
	case err != nil && !errors.Is(err, timewheel.ErrTaskKeyNotFound):
		h.fault(&h.unheard, "%s: Reschedule: %v", key, err)
	case err != nil && rec != nil && rec.times == 0:
		h.fault(&h.lost, "%s: it was to run forever", key)
	}
}

// removeWait is remove, except that afterwards no run may be in progress.
func (h *hand) removeWait(key string, rec *record) {
	running, err := h.tw.RemoveWait(context.Background(), key)
	switch {
	case err != nil && !errors.Is(err, timewheel.ErrTaskKeyNotFound) || err != nil && running:
		h.fault(&h.unheard, "%s: RemoveWait: %v, %v", key, running, err)
	case rec == nil:
		if err == nil && !running { // a run of an earlier task may have been running
			h.fault(&h.unheard, "%s: RemoveWait found a task that was never added", key)
		}
		return
	case err != nil && rec.times == 0:
		h.fault(&h.lost, "%s: it was to run forever", key)
	case err == nil && !running:
		rec.end()
	case err == nil:
		rec.replace()
	}
	rec.rest()
	h.old = append(h.old, rec)
	delete(h.records, key)
}

func (h *hand) pause(key string, rec *record) {
	h.control("Pause", key, rec, h.tw.Pause(key))
	if info, ok := h.tw.Get(key); ok && !info.Paused {
		h.fault(&h.unheard, "%s: it was paused, and is %+v", key, info)
	}
}

func (h *hand) resume(key string, rec *record) {
	h.control("Resume", key, rec, h.tw.Resume(key))
	if info, ok := h.tw.Get(key); ok && info.Paused {
		h.fault(&h.unheard, "%s: it was resumed, and is %+v", key, info)
	}
}

func (h *hand) control(verb, key string, rec *record, err error) {
	switch {
	case err == nil && rec == nil:
		h.fault(&h.unheard, "%s: %s found a task that was never added", key, verb)
	case err != nil && !errors.Is(err, timewheel.ErrTaskKeyNotFound):
		h.fault(&h.unheard, "%s: %s: %v", key, verb, err)
	case err != nil && rec != nil && rec.times == 0:
		h.fault(&h.lost, "%s: it was to run forever", key)
	}
}

// prefix moves or removes all tasks whose keys have the prefix.
func (h *hand) prefix(prefix string) {
	mine := make(map[string]*record)
	for key, rec := range h.records {
		if strings.HasPrefix(key, prefix) {
			mine[key] = rec
		}
	}
	var n int
	var err error
	if h.r.IntN(2) == 0 {
		for _, rec := range mine {
			rec.move()
		}
		n, err = h.tw.ReschedulePrefix(context.Background(), prefix, time.Duration(h.r.Int64N(1<<25)))
	} else {
		n, err = h.tw.RemovePrefix(context.Background(), prefix)
		for key, rec := range mine {
			if h.tw.Exist(key) {
				h.fault(&h.unheard, "%s: RemovePrefix(%q) has left it", key, prefix)
			}
			rec.replace()
			h.old = append(h.old, rec)
			delete(h.records, key)
		}
	}
	if err != nil || n > len(mine) {
		h.fault(&h.unheard, "%s: of %d tasks %d were found, %v", prefix, len(mine), n, err)
	}
}

func (h *hand) look(key string) {
	switch h.r.IntN(40) {
	case 0:
		n := 0
		for range h.tw.All() {
			if n++; n == 100 {
				break
			}
		}
	case 1:
		h.tw.Stats()
	default:
		info, ok := h.tw.Get(key)
		if ok && info.Key != key {
			h.fault(&h.unheard, "%s: Get returned %q", key, info.Key)
		}
		h.tw.Exist(key)
		h.tw.GetTaskTimes(key)
	}
}

// rest lets the wheel come to rest, compares its counters with ours, and restarts it or starts another.
func (d *driver) rest(hands []*hand, how int) error {
	d.quiet.Lock()
	defer d.quiet.Unlock()
	for _, h := range hands {
		for _, t := range h.timers {
			t.stop()
		}
	}
	switch how % 3 {
	case 0: // tasks with a finite number of runs end, the others are removed
		for _, h := range hands {
			for key := range h.records {
				_ = d.tw.Resume(key)
			}
		}
		d.awaitFinite(hands)
		for _, h := range hands {
			for key, rec := range h.records {
				if d.tw.RemoveTask(key) == nil {
					rec.replace()
				}
			}
		}
	case 1:
		if _, err := d.tw.Drain(func(task *timewheel.Task) {
			for _, h := range hands {
				if rec := h.records[task.Key]; rec != nil {
					rec.replace()
				}
			}
		}); err != nil {
			return err
		}
	case 2: // the wheel is stopped with all its tasks
		d.tw.Stop()
		for _, h := range hands {
			for _, rec := range h.records {
				rec.replace()
			}
		}
	}
	d.tw.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.tw.Shutdown(ctx); err != nil {
		d.fault(&d.unheard, "a run does not end: %v", err)
	}
	d.compare()
	for _, h := range hands {
		for _, rec := range h.records {
			rec.settle()
		}
		for _, rec := range h.old {
			rec.settle()
		}
		for _, t := range h.timers {
			t.settle(h)
		}
		clear(h.records)
		h.old, h.timers = nil, nil
	}
	return d.open()
}

// awaitFinite waits until all tasks with a finite number of runs have had them.
func (d *driver) awaitFinite(hands []*hand) {
	for range 6000 { // looks: half a minute, and longer on a machine that freezes
		time.Sleep(5 * time.Millisecond)
		left := 0
		for _, h := range hands {
			for key, rec := range h.records {
				if rec.times > 0 && d.tw.Exist(key) {
					left++
				}
			}
		}
		if left == 0 {
			return
		}
	}
	d.fault(&d.lost, "after half a minute tasks with a number of runs are left: %+v", d.tw.Stats())
}

// compare checks the two sums of the wheel's counters, and compares them with ours.
func (d *driver) compare() {
	s := d.tw.Stats()
	if s.Added != s.Finished+s.Removed+uint64(s.Pending) || s.Running != 0 ||
		s.Due != s.Started+s.Missed+uint64(s.Waiting)+s.Withdrawn {
		d.fault(&d.unheard, "the accounts do not balance: %+v", s)
	}
	if n := d.added.Load(); s.Added != uint64(n) {
		d.fault(&d.unheard, "%d tasks were added, the wheel says %+v", n, s)
	}
}
