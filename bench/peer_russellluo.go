// SPDX-License-Identifier: MIT

package main

import (
	"time"

	russellluo "github.com/RussellLuo/timingwheel"
)

// russellluoPeer is github.com/RussellLuo/timingwheel.
func russellluoPeer() definition {
	return definition{
		name:       "russellluo",
		module:     "github.com/RussellLuo/timingwheel",
		about:      "`NewTimingWheel(tick, 1024)`; wall-clock milliseconds, deadlines rounded down",
		timers:     true,
		concurrent: true,
		ticks:      true,
		maxLive:    10_000_000,
		open:       func(s settings) (peer, error) { return newBare(openRussellluo(s.tick), s), nil },
	}
}

// russellluoKeyedPeer is the same with a concurrent-map in front.
func russellluoKeyedPeer() definition {
	return russellluoPeer().withFront("russellluo-keyed", func(s settings) (peer, error) {
		return newFronted(openRussellluo(s.tick), s), nil
	})
}

// russellluoWheel is the engine.
type russellluoWheel struct {
	wheel *russellluo.TimingWheel
}

func openRussellluo(tick time.Duration) engine[*russellluo.Timer] {
	w := russellluo.NewTimingWheel(tick, wheelSlots)
	w.Start()
	return russellluoWheel{wheel: w}
}

func (w russellluoWheel) start(d time.Duration, f func()) *russellluo.Timer {
	return w.wheel.AfterFunc(d, f)
}

func (w russellluoWheel) cancel(t *russellluo.Timer) { t.Stop() }

func (w russellluoWheel) close() { w.wheel.Stop() }
