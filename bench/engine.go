// SPDX-License-Identifier: MIT

package main

import (
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// engine is a timer library without keys: it returns a handle for each timer.
type engine[H any] interface {
	start(d time.Duration, f func()) H
	cancel(h H)
	close()
}

// bare measures an engine without keys. Its user keeps the handles, here in a preallocated slice.
type bare[H any] struct {
	engine  engine[H]
	handles []H
	fire    func(key string)
}

func newBare[H any](e engine[H], s settings) *bare[H] {
	return &bare[H]{engine: e, handles: make([]H, s.ids), fire: s.fire}
}

func (p *bare[H]) add(id int, key string, d time.Duration) error {
	p.handles[id] = p.engine.start(d, func() { p.fire(key) })
	return nil
}

func (p *bare[H]) remove(id int, _ string) error {
	var none H
	p.engine.cancel(p.handles[id])
	p.handles[id] = none
	return nil
}

func (p *bare[H]) reschedule(string, time.Duration) error { return errNoVerb }

func (p *bare[H]) stop() { p.engine.close() }

// fronted measures an engine with a concurrent-map from key to timer in front, correct in the same way as stdlibKeyed:
// the lock of the key's shard orders all operations on the key, and a job whose entry is gone does not run.
type fronted[H any] struct {
	engine engine[H]
	index  cmap.ConcurrentMap[string, *entry[H]]
	fire   func(key string)
}

// entry is one live key of a fronted engine. A later timer with the same key has an entry at another address.
type entry[H any] struct {
	handle H // protected by the lock of the key's shard
}

func newFronted[H any](e engine[H], s settings) *fronted[H] {
	return &fronted[H]{engine: e, index: cmap.New[*entry[H]](), fire: s.fire}
}

func (p *fronted[H]) add(_ int, key string, d time.Duration) error {
	e := &entry[H]{}
	kept := p.index.Upsert(key, e, func(exist bool, old, e *entry[H]) *entry[H] {
		if exist {
			return old
		}
		e.handle = p.start(key, e, d)
		return e
	})
	if kept != e {
		return errDuplicate
	}
	return nil
}

func (p *fronted[H]) remove(_ int, key string) error {
	e, ok := p.index.Pop(key)
	if !ok {
		return errMissing
	}
	p.engine.cancel(e.handle)
	return nil
}

// reschedule ends the timer and starts another. The engines have no usable reset: one has none, one leaves the old
// timer in its place until it comes up, and one takes a lock twice when the new slot is the old one.
func (p *fronted[H]) reschedule(key string, d time.Duration) error {
	moved := false
	p.index.RemoveCb(key, func(_ string, e *entry[H], ok bool) bool {
		if ok {
			p.engine.cancel(e.handle)
			e.handle = p.start(key, e, d)
			moved = true
		}
		return false
	})
	if !moved {
		return errMissing
	}
	return nil
}

func (p *fronted[H]) stop() { p.engine.close() }

// start starts a timer that removes the entry before it runs the job.
func (p *fronted[H]) start(key string, e *entry[H], d time.Duration) H {
	return p.engine.start(d, func() {
		if p.index.RemoveCb(key, func(_ string, v *entry[H], ok bool) bool { return ok && v == e }) {
			p.fire(key)
		}
	})
}
