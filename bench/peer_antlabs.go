// SPDX-License-Identifier: MIT

package main

import (
	"time"

	antlabs "github.com/antlabs/timer"
)

// antlabsPeer is github.com/antlabs/timer, its timing wheel.
func antlabsPeer() definition {
	return definition{
		name:       "antlabs",
		module:     "github.com/antlabs/timer",
		about:      "`NewTimer(WithTimeWheel())`; its tick is always 10 ms, delays are rounded down",
		timers:     true,
		concurrent: true,
		ticks:      true,
		fixedTick:  true,
		maxLive:    10_000_000,
		open:       func(s settings) (peer, error) { return newBare(openAntlabs(), s), nil },
	}
}

// antlabsKeyedPeer is the same with a concurrent-map in front.
func antlabsKeyedPeer() definition {
	return antlabsPeer().withFront("antlabs-keyed", func(s settings) (peer, error) {
		return newFronted(openAntlabs(), s), nil
	})
}

// antlabsWheel is the engine.
type antlabsWheel struct {
	wheel antlabs.Timer
}

func openAntlabs() engine[antlabs.TimeNoder] {
	w := antlabs.NewTimer(antlabs.WithTimeWheel())
	go w.Run()
	return antlabsWheel{wheel: w}
}

func (w antlabsWheel) start(d time.Duration, f func()) antlabs.TimeNoder {
	return w.wheel.AfterFunc(d, f)
}

func (w antlabsWheel) cancel(t antlabs.TimeNoder) { t.Stop() }

func (w antlabsWheel) close() { w.wheel.Stop() }
