// SPDX-License-Identifier: MIT

package main

import (
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// ours is the name of the peer to which the targets apply.
const ours = "timewheel"

// oursToo reports whether the peer is a wheel of this repository.
func oursToo(d definition) bool { return d.module == timewheelPeer().module }

// timewheelPeer is the wheel of this repository.
func timewheelPeer() definition {
	return definition{
		name:   ours,
		module: "github.com/seed581295f1/timewheel",
		about: "`timewheel.New(tick, 1024)`, all options at their defaults; " +
			"one job for all tasks, which gets the key from its task",
		keyed:      true,
		timers:     true,
		concurrent: true,
		ticks:      true,
		page:       true,
		maxLive:    10_000_000,
		open:       func(s settings) (peer, error) { return openWheel(s) },
		uses:       antsModule,
	}
}

// hierarchicalPeer is the same wheel with its other layout.
func hierarchicalPeer() definition {
	d := timewheelPeer()
	d.name += "-hierarchical"
	d.about = "the same with `WithLayout(Hierarchical)`"
	d.open = func(s settings) (peer, error) { return openWheel(s, timewheel.WithLayout(timewheel.Hierarchical)) }
	return d
}

func openWheel(s settings, opts ...timewheel.Option) (peer, error) {
	tw, err := timewheel.New(s.tick, wheelSlots, append(opts, s.more...)...)
	if err != nil {
		return nil, err
	}
	tw.Start()
	return &wheel{tw: tw, job: func(task *timewheel.Task) { s.fire(task.Key) }}, nil
}

// wheel is a TimeWheel as a peer.
type wheel struct {
	tw  *timewheel.TimeWheel
	job timewheel.Job
}

func (p *wheel) add(_ int, key string, d time.Duration) error {
	return p.tw.AddTask(&timewheel.Task{Key: key, Interval: d, Job: p.job})
}

func (p *wheel) remove(_ int, key string) error { return p.tw.RemoveTask(key) }

func (p *wheel) reschedule(key string, d time.Duration) error { return p.tw.Reschedule(key, d) }

func (p *wheel) stop() { p.tw.Stop() }
