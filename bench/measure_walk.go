// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"sync"
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"

	"github.com/seed581295f1/timewheel/timewheel"
)

// measureWalk measures how late timers of one tick run while another goroutine walks over the whole wheel, and while it
// does the same work on a separate map. The timers are few and restart themselves.
func measureWalk(w workload, open opener) (figures, error) {
	keys := makeKeys(w.Live + w.Fresh)
	t := timekeeper{first: w.Live, due: make([]time.Time, len(keys))}
	p, err := open(settings{tick: w.Tick, ids: len(keys), fire: t.fire})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	defer t.end()
	if err := populate(p, keys, 0, w.Live, w.Due); err != nil {
		return nil, err
	}
	other := cmap.New[*record]()
	for _, key := range keys[:w.Live] {
		other.Set(key, &record{key: key})
	}
	t.tick, t.peer = w.Tick, p
	fresh := keys[w.Live+beats:]
	if err := t.begin(keys[w.Live : w.Live+beats]); err != nil {
		return nil, err
	}
	tw, out := p.(*wheel).tw, figures{}
	for _, c := range []struct {
		name string
		work func(stop func() bool) error
	}{
		{"alone", func(func() bool) error { time.Sleep(w.Watch); return nil }},
		{"other_walk", func(stop func() bool) error {
			for !stop() {
				walkMap(other)
			}
			return nil
		}},
		{"all", func(stop func() bool) error {
			for !stop() {
				walkWheel(tw)
			}
			return nil
		}},
		{"len", func(stop func() bool) error {
			for !stop() {
				tw.Len()
			}
			return nil
		}},
		{"other_grow", func(stop func() bool) error {
			for i := 0; i < len(fresh)/2 && !stop(); i++ {
				other.SetIfAbsent(fresh[i], &record{key: fresh[i]})
			}
			return nil
		}},
		{"grow", func(stop func() bool) error {
			for i := 0; i < len(fresh)/2 && !stop(); i++ {
				if err := p.add(w.Live+beats+i, fresh[i], w.Due); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		settle(w)
		t.take()
		start := time.Now()
		if err := c.work(func() bool { return time.Since(start) > w.Watch }); err != nil {
			return nil, err
		}
		late := t.take()
		if len(late) == 0 {
			out[c.name+"_p99_ms"] = milliseconds(w.Watch) // no timer ran the whole time
			continue
		}
		slices.Sort(late)
		out[c.name+"_p99_ms"] = milliseconds(late[len(late)*99/100])
	}
	out["early"] = float64(t.early)
	return out, nil
}

// walkWheel reads every task through All.
func walkWheel(tw *timewheel.TimeWheel) (n int) {
	for info := range tw.All() {
		n += len(info.Key)
	}
	return n
}

// walkMap walks over a map as All walks over the index.
func walkMap(m cmap.ConcurrentMap[string, *record]) (n int) {
	all := make([]*record, 0, m.Count())
	m.IterCb(func(_ string, r *record) { all = append(all, r) })
	for _, r := range all {
		n += len(r.key)
	}
	return n
}

// beats is the number of timers of a timekeeper.
const beats = 16

// A timekeeper is a set of timers that restart themselves each time they fire, and record how late they were.
type timekeeper struct {
	first int // the id of the first
	tick  time.Duration
	peer  peer

	mu    sync.Mutex // protects all below
	due   []time.Time
	late  []time.Duration
	early int
	ended bool
}

func (t *timekeeper) begin(keys []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if err := t.addLocked(key); err != nil {
			return err
		}
	}
	return nil
}

func (t *timekeeper) addLocked(key string) error {
	t.due[idOf(key)] = time.Now().Add(t.tick)
	return t.peer.add(idOf(key), key, t.tick)
}

func (t *timekeeper) fire(key string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	late := now.Sub(t.due[idOf(key)])
	if t.late = append(t.late, late); late < 0 {
		t.early++
	}
	if !t.ended {
		if err := t.addLocked(key); err != nil {
			panic("a timer could not start again: " + err.Error())
		}
	}
}

func (t *timekeeper) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// take returns the values recorded since the last call.
func (t *timekeeper) take() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := t.late
	t.late = nil
	return late
}
