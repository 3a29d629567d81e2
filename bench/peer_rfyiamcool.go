// SPDX-License-Identifier: MIT

package main

import (
	"time"

	rfyiamcool "github.com/rfyiamcool/go-timewheel"
)

// rfyiamcoolPeer is github.com/rfyiamcool/go-timewheel.
func rfyiamcoolPeer() definition {
	return definition{
		name:   "rfyiamcool",
		module: "github.com/rfyiamcool/go-timewheel",
		about: "`NewTimeWheel(tick, 1024)`, `Add` and `Remove`; " +
			"a slot is a map, visited whole at each turn of the wheel",
		timers:     true,
		concurrent: true,
		ticks:      true,
		maxLive:    5_000_000,
		open: func(s settings) (peer, error) {
			e, err := openRfyiamcool(s.tick)
			return newBare(e, s), err
		},
		silence: func() { rfyiamcool.DefaultTimeWheel.Stop() },
	}
}

// rfyiamcoolKeyedPeer is the same with a concurrent-map in front.
func rfyiamcoolKeyedPeer() definition {
	return rfyiamcoolPeer().withFront("rfyiamcool-keyed", func(s settings) (peer, error) {
		e, err := openRfyiamcool(s.tick)
		return newFronted(e, s), err
	})
}

// rfyiamcoolWheel is the engine.
type rfyiamcoolWheel struct {
	wheel *rfyiamcool.TimeWheel
}

func openRfyiamcool(tick time.Duration) (engine[*rfyiamcool.Task], error) {
	w, err := rfyiamcool.NewTimeWheel(tick, wheelSlots)
	if err != nil {
		return nil, err
	}
	w.Start()
	return rfyiamcoolWheel{wheel: w}, nil
}

func (w rfyiamcoolWheel) start(d time.Duration, f func()) *rfyiamcool.Task { return w.wheel.Add(d, f) }

func (w rfyiamcoolWheel) cancel(t *rfyiamcool.Task) {
	// Remove has no failure to report: it always returns nil.
	_ = w.wheel.Remove(t)
}

func (w rfyiamcoolWheel) close() { w.wheel.Stop() }
