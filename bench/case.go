// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"
	"time"
)

// benchCase is one measurement, made once for each peer and round, in a separate process.
type benchCase struct {
	name   string
	full   workload
	quick  workload
	rounds int           // at most; more would take too long
	limit  time.Duration // for one child process
	needs  needs

	fullOnly bool // it shows nothing at a smaller size
	measure  func(w workload, open opener) (figures, error)
}

// needs are the features that a peer must have to be measured in a case.
type needs struct {
	key    bool // its own keys or a map in front; also set where measuring peers without keys would only cost time
	timers bool
	move   bool // reschedule
	page   bool // a wheel of this repository, which has a page and can be walked
}

const (
	manyRounds = 1000 // no bound on the rounds of a case
	fewRounds  = 3    // bounds the rounds of long cases
)

// cases lists the measurements, in their order.
func cases() []benchCase {
	list := []benchCase{
		addCase("add-small", 1_000, 1_000, 500_000, 1_000, 100_000),
		addCase("add-medium", 100_000, 10_000, 500_000, 10_000, 50_000),
		addCase("add-large", 1_000_000, 50_000, 1_000_000, 100_000, 100_000),
		addRemoveCase(),
		rescheduleCase(),
		createCase("create", 1_000_000, 100_000, 1),
		createCase("create-many", 1_000_000, 0, 8),
		createCase("create-huge", 5_000_000, 0, 1),
		createCase("create-huge-many", 5_000_000, 0, 8),
		fireCase(),
		burstCase(),
		idleCase("idle-empty-1ms", 0, time.Millisecond),
		idleCase("idle-empty-10ms", 0, 10*time.Millisecond),
		idleCase("idle-live-1ms", 1_000_000, time.Millisecond),
		idleCase("idle-live-10ms", 1_000_000, 10*time.Millisecond),
		walkCase(),
		dashboardCase("dashboard-small", 1_000),
		dashboardCase("dashboard", 1_000_000),
	}
	for _, live := range scaleSizes() {
		list = append(list, scaleCase(live))
	}
	return list
}

// scaleSizes are the numbers of live timers of the scale cases.
func scaleSizes() []int { return []int{1_000, 10_000, 100_000, 1_000_000, 10_000_000} }

// scaleName is the name of the scale case with that many live timers.
func scaleName(live int) string { return "scale-" + strings.ToLower(count(live)) }

// selectCases picks cases by a comma-separated list of names, in the order of measurement.
func selectCases(list string) ([]benchCase, error) {
	return pick("case", list, cases(), caseName)
}

// workload returns the work of the case in quick or full mode.
func (c benchCase) workload(quick bool) workload {
	if quick {
		return c.quick
	}
	return c.full
}

// lacks returns why the case does not measure a peer, or "" if it does.
func (c benchCase) lacks(d definition, w workload) string {
	switch {
	case !strings.HasPrefix(c.name, d.only):
		return "for the " + d.only + " cases only"
	case c.needs.page && !d.page:
		return "no page"
	case c.needs.timers && !d.timers:
		return "no timers"
	case c.needs.move && (!d.keyed || !d.timers):
		return "no reschedule by key"
	case c.needs.key && !d.keyed:
		return "keyed peers only"
	case w.Live > d.maxLive:
		return fmt.Sprintf("measured up to %s", count(d.maxLive))
	case d.fixedTick && w.Tick < 10*time.Millisecond && strings.HasPrefix(c.name, "idle"):
		return "tick is 10 ms"
	}
	return ""
}

const (
	usualTick  = 10 * time.Millisecond
	usualLimit = time.Minute
	longLimit  = 3 * time.Minute  // for more than a million timers
	farOff     = 30 * time.Minute // the delay of timers that must not fire
)

func addCase(name string, live, fresh, operations, quickLive, quickOperations int) benchCase {
	full := workload{
		Live: live, Fresh: fresh, Operations: operations, Producers: []int{1, 2, 8},
		Tick: usualTick, Due: farOff,
	}
	quick := full
	quick.Live, quick.Fresh, quick.Operations = quickLive, min(fresh, 10_000), quickOperations
	return benchCase{
		name: name, full: full, quick: quick,
		rounds: manyRounds, limit: usualLimit, measure: measureAdd,
		fullOnly: name == "add-medium",
	}
}

func addRemoveCase() benchCase {
	full := workload{Live: 1_000_000, Fresh: 100_000, Operations: 1_000_000, Tick: usualTick, Due: farOff}
	quick := full
	quick.Live, quick.Fresh, quick.Operations = 100_000, 10_000, 200_000
	return benchCase{
		name: "add-remove", full: full, quick: quick,
		rounds: manyRounds, limit: usualLimit, measure: measureAddRemove,
	}
}

func rescheduleCase() benchCase {
	full := workload{
		Live: 1_000_000, Fresh: 10_000, Operations: 1_000_000, Tick: usualTick, Due: farOff,
		Lead: 500 * time.Millisecond, Window: time.Second, Grace: 5 * time.Second,
	}
	quick := full
	quick.Live, quick.Operations = 100_000, 200_000
	quick.Lead, quick.Window, quick.Grace = 100*time.Millisecond, 200*time.Millisecond, time.Second
	return benchCase{
		name: "reschedule", full: full, quick: quick,
		rounds: manyRounds, limit: usualLimit, needs: needs{key: true, timers: true, move: true},
		measure: measureReschedule,
	}
}

func createCase(name string, live, quickLive, producers int) benchCase {
	full := workload{
		Live: live, Producers: []int{producers}, Tick: usualTick, Due: farOff, Watch: 100 * time.Millisecond,
	}
	quick := full
	quick.Live = quickLive
	c := benchCase{
		name: name, full: full, quick: quick,
		rounds: manyRounds, limit: usualLimit, measure: measureCreate,
	}
	c.fullOnly = quickLive == 0
	if live > 1_000_000 {
		c.rounds, c.needs.key, c.limit = fewRounds, true, longLimit
	}
	return c
}

func fireCase() benchCase {
	full := workload{
		Live: 1_000_000, Tick: usualTick,
		Lead: 4 * time.Second, Window: 2 * time.Second, Grace: 10 * time.Second,
	}
	quick := full
	quick.Live = 100_000
	quick.Lead, quick.Window, quick.Grace = 400*time.Millisecond, 400*time.Millisecond, 3*time.Second
	return benchCase{
		name: "fire", full: full, quick: quick,
		rounds: manyRounds, limit: usualLimit, needs: needs{timers: true}, measure: measureFire,
	}
}

func burstCase() benchCase {
	full := workload{Live: 100_000, Tick: usualTick, Lead: time.Second, Grace: 10 * time.Second}
	quick := full
	quick.Live, quick.Lead, quick.Grace = 20_000, 200*time.Millisecond, 3*time.Second
	return benchCase{
		name: "burst", full: full, quick: quick,
		rounds: manyRounds, limit: usualLimit, needs: needs{timers: true}, measure: measureFire,
	}
}

func idleCase(name string, live int, tick time.Duration) benchCase {
	full := workload{Live: live, Tick: tick, Due: time.Hour, Watch: 10 * time.Second}
	quick := full
	quick.Live, quick.Watch = live/10, time.Second
	return benchCase{
		name: name, full: full, quick: quick,
		rounds: fewRounds, limit: usualLimit, needs: needs{key: true}, measure: measureIdle,
		fullOnly: name != "idle-live-1ms",
	}
}

func walkCase() benchCase {
	full := workload{
		Live: 1_000_000, Fresh: 4_000_000, Tick: time.Millisecond, Due: farOff, Watch: 3 * time.Second,
	}
	quick := full
	quick.Live, quick.Fresh, quick.Watch = 100_000, 400_000, 300*time.Millisecond
	return benchCase{
		name: "walk", full: full, quick: quick,
		rounds: manyRounds, limit: 2 * usualLimit, needs: needs{page: true}, measure: measureWalk,
	}
}

func dashboardCase(name string, live int) benchCase {
	full := workload{
		Live: live, Tick: usualTick, Due: 10 * time.Minute, Window: 30 * time.Minute, Watch: 10 * time.Second,
	}
	quick := full
	quick.Live, quick.Watch = min(live, 100_000), time.Second
	return benchCase{
		name: name, full: full, quick: quick,
		rounds: manyRounds, limit: 2 * usualLimit, needs: needs{page: true}, measure: measureDashboard,
		fullOnly: name != "dashboard",
	}
}

func scaleCase(live int) benchCase {
	fresh := min(max(live/20, 1_000), 50_000)
	full := workload{
		Live: live, Fresh: fresh, Operations: max(200_000, 4*fresh),
		Tick: time.Millisecond, Due: time.Hour, Watch: 3 * time.Second,
	}
	quick := full
	quick.Operations, quick.Watch = 50_000, 300*time.Millisecond
	c := benchCase{
		name: scaleName(live), full: full, quick: quick,
		rounds: fewRounds, limit: usualLimit, needs: needs{key: true}, measure: measureScale,
		fullOnly: live == 10_000 || live > 100_000,
	}
	if live > 1_000_000 {
		c.limit = longLimit
	}
	return c
}

// caseName returns the name of a case.
func caseName(c benchCase) string { return c.name }
