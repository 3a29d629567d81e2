// SPDX-License-Identifier: MIT

package main

import (
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// goZeroPeer is the TimingWheel of github.com/zeromicro/go-zero/core/collection.
func goZeroPeer() definition {
	return definition{
		name:   "go-zero",
		module: "github.com/zeromicro/go-zero",
		about: "`collection.NewTimingWheel(tick, 1024, execute)`; keys of its own; " +
			"the jobs of one tick run one after another",
		keyed:   true,
		timers:  true,
		ticks:   true,
		maxLive: 5_000_000,
		open: func(s settings) (peer, error) {
			w, err := collection.NewTimingWheel(s.tick, wheelSlots, func(key, _ any) { s.fire(key.(string)) })
			return goZero{wheel: w}, err
		},
	}
}

// goZero is a wheel with keys. SetTimer for a live key replaces its timer, so a duplicate is not noticed. RemoveTimer
// and MoveTimer do not report whether they found the key.
type goZero struct {
	wheel *collection.TimingWheel
}

func (p goZero) add(_ int, key string, d time.Duration) error { return p.wheel.SetTimer(key, nil, d) }

func (p goZero) remove(_ int, key string) error { return p.wheel.RemoveTimer(key) }

func (p goZero) reschedule(key string, d time.Duration) error { return p.wheel.MoveTimer(key, d) }

func (p goZero) stop() { p.wheel.Stop() }
