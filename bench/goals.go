// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"time"
)

// goal is a target for the wheel of this repository and its result. Everything in it is computed.
type goal struct {
	title    string
	target   string
	measured string
	best     string // best of the other keyed peers
	floor    string
	verdict  verdict

	bench  string  // name of the case that decides it
	figure string  // figure of a goal that is a ratio to the baseline, for the plot
	limit  float64 // the same
}

// newGoal returns a goal without a measurement. If the wheel failed in the case that decides the goal, the goal is
// missed and its result is that failure.
func newGoal(r results, bench, title, target string) goal {
	g := goal{title: title, target: target, bench: bench, verdict: unjudged}
	g.measured, g.best, g.floor = "–", "–", "–"
	if failure := r.failure(ours, bench); failure != "" {
		g.measured, g.verdict = failure, missed
	}
	return g
}

// verdict is whether a goal is met.
type verdict string

const (
	met      verdict = "yes"
	missed   verdict = "no"
	unjudged verdict = "not measured"
)

// judge returns the verdict on a measurement.
func judge(ok bool) verdict {
	if ok {
		return met
	}
	return missed
}

// goals lists the targets, in the order of the table.
//
// The targets of add-small and add-remove follow from a profile. With 1k live, an add spends 32 % of its time in the map,
// 29 % in the inbox, 18 % in allocating the entry and 13 % in reading the clock. A removal posts to an inbox as well.
func goals(r results, quick bool) []goal {
	live := func(name string) string { return count(workloadOf(name, quick).Live) }
	add := "add, %s live, %s"
	large := live("add-large")
	return []goal{
		ratioGoal(r, fmt.Sprintf(add, live("add-small"), "one producer"), "add-small", "add_ns_1", 0.70),
		floorGoal(r, fmt.Sprintf(add, large, "one producer"), "add-large", "add_ns_1", 0.65, 1.3),
		floorGoal(r, fmt.Sprintf(add, large, "two producers"), "add-large", "add_ns_2", 1.00, 1.3),
		ratioGoal(r, "add and remove, "+live("add-remove")+" live", "add-remove", "pair_ns", 0.85),
		ratioGoal(r, "reschedule by key, "+live("reschedule")+" live", "reschedule", "move_ns", 0.90),
		ratioGoal(r, "create "+live("create")+", wall", "create", "wall_ms", 0.72),
		ratioGoal(r, "heap per live keyed task, key bytes aside", "create", "heap_b", 0.60),
		allocationGoal(r),
		ratioGoal(r, live("fire")+" due in "+workloadOf("fire", quick).Window.String()+": CPU of adding and firing",
			"fire", "cpu_ms", 0.33),
		latenessGoal(r, workloadOf("fire", quick)),
		burstGoal(r, live("burst")+" at one instant, to the last job"),
		firstGoal(r, live("burst")+" at one instant, first job after its tick"),
		fireFloorGoal(r, live("burst")+" at one instant, CPU of firing"),
		idleGoal(r, "idle 10 s with "+live("idle-live-1ms")+" live, tick 1 ms: CPU over that of ants"),
		tickGoal(r, quick),
		growthGoal(r, quick),
		walkGoal(r, "timers of 1 ms during a walk over "+live("walk")+" tasks, p99"),
		pageGoal(r, "dashboard, "+live("dashboard")+" live, one page open: CPU"),
	}
}

// ratioGoal is a goal for a figure: at most limit times the baseline's.
func ratioGoal(r results, title, bench, figure string, limit float64) goal {
	g := newGoal(r, bench, title, fmt.Sprintf("≤ %.2f", limit))
	g.figure, g.limit = figure, limit
	toBaseline := func(d definition) (float64, bool) { return r.ratio(d.name, baseline, bench, figure) }
	g.best = best(r, bench, toBaseline, ratioCell)
	g.floor = ratioText(r.ratio(floorName, baseline, bench, figure))
	if ratio, ok := r.ratio(ours, baseline, bench, figure); ok {
		g.measured, g.verdict = ratioCell(ratio), judge(ratio <= limit)
	}
	return g
}

// floorGoal is a ratioGoal with an additional bound on the ratio to the floor.
func floorGoal(r results, title, bench, figure string, limit, floorLimit float64) goal {
	g := ratioGoal(r, title, bench, figure, limit)
	g.target += fmt.Sprintf(", ≤ %.1f × floor", floorLimit)
	ratio, ok := r.ratio(ours, floorName, bench, figure)
	if !ok {
		if g.verdict == met {
			g.verdict = unjudged
		}
		return g
	}
	g.measured += fmt.Sprintf(", %.2f × floor", ratio)
	if ratio > floorLimit {
		g.verdict = missed
	}
	return g
}

// allocationGoal is one allocation per task, plus the occasional allocations of the growing index.
func allocationGoal(r results) goal {
	const limit = 1.05
	g := newGoal(r, "create", "allocations per AddTask", "1")
	allocs := func(d definition) (float64, bool) { return r.median(d.name, "create", "allocs") }
	g.best = best(r, "create", allocs, digits)
	if n, ok := r.median(floorName, "create", "allocs"); ok {
		g.floor = digits(n)
	}
	if n, ok := r.median(ours, "create", "allocs"); ok {
		g.measured, g.verdict = digits(n), judge(n <= limit)
	}
	return g
}

// latenessGoal is a bound on how late a job runs, with none early and none lost.
func latenessGoal(r results, w workload) goal {
	const beyond = 8 * time.Millisecond
	limit := milliseconds(w.Tick + beyond)
	g := newGoal(r, "fire", count(w.Live)+" due in "+w.Window.String()+": lateness p99",
		fmt.Sprintf("≤ %v ms, none early, none lost", limit))
	late := func(d definition) (float64, bool) { return r.median(d.name, "fire", "p99_ms") }
	g.best = best(r, "fire", late, millisecondsCell)
	p99, ok := r.median(ours, "fire", "p99_ms")
	if !ok {
		return g
	}
	early, lost, _ := r.troubles(ours, "fire")
	g.measured = fmt.Sprintf("%s ms, %d early, %d lost", digits(p99), early, lost)
	g.verdict = judge(p99 <= limit && early == 0 && lost == 0)
	return g
}

// burstGoal is a ratioGoal for the time until the last job, with none early and none lost.
func burstGoal(r results, title string) goal {
	g := ratioGoal(r, title, "burst", "span_ms", 0.35)
	if early, lost, _ := r.troubles(ours, "burst"); early+lost > 0 && g.verdict == met {
		g.verdict = missed
	}
	return g
}

// firstGoal is a bound on how long the first of many jobs waits.
func firstGoal(r results, title string) goal {
	const limit = 3
	g := newGoal(r, "burst", title, fmt.Sprintf("≤ %d ms", limit))
	first := func(d definition) (float64, bool) { return r.median(d.name, "burst", "tick_ms") }
	g.best = best(r, "burst", first, millisecondsCell)
	if v, ok := r.median(ours, "burst", "tick_ms"); ok {
		g.measured, g.verdict = millisecondsCell(v), judge(v <= limit)
	}
	return g
}

// fireFloorGoal is a bound on the processor time of firing, relative to the minimum.
func fireFloorGoal(r results, title string) goal {
	const limit = 1.6
	g := newGoal(r, "burst", title, fmt.Sprintf("≤ %.1f × fire-floor", limit))
	toFloor := func(d definition) (float64, bool) { return r.ratio(d.name, fireFloorName, "burst", "fire_ms") }
	g.best = best(r, "burst", toFloor, timesCell)
	if v, ok := r.ratio(ours, fireFloorName, "burst", "fire_ms"); ok {
		g.measured, g.verdict = timesCell(v), judge(v <= limit)
	}
	return g
}

// idleGoal is a bound on the processor time of waiting, beyond that of a program that only imports ants.
func idleGoal(r results, title string) goal {
	const bench, figure, limit = "idle-live-1ms", "idle_ms", 1
	idle := func(d definition) (float64, bool) { return r.median(d.name, bench, figure) }
	g := newGoal(r, bench, title, fmt.Sprintf("≤ %d ms more", limit))
	g.best = best(r, bench, idle, millisecondsCell)
	v, ok := r.median(ours, bench, figure)
	without, has := r.median(antsName, bench, figure)
	if has {
		g.floor = antsName + " " + millisecondsCell(without)
	}
	if ok && has {
		g.measured, g.verdict = millisecondsCell(v), judge(v-without <= limit)
	}
	return g
}

// walkGoal bounds the lateness of timers during a walk over all tasks, compared with the same walk over
// another map.
func walkGoal(r results, title string) goal {
	const limit = 2
	g := newGoal(r, "walk", title, fmt.Sprintf("≤ %d × that during a walk over another map", limit))
	v, ok := medianRatio(r.values(ours, "walk", "all_p99_ms"), r.values(ours, "walk", "other_walk_p99_ms"))
	if ok {
		g.measured, g.verdict = timesCell(v), judge(v <= limit)
	}
	return g
}

// pageGoal is a bound on the processor time that an open page of the dashboard takes.
func pageGoal(r results, title string) goal {
	const bench, figure, limit = "dashboard", "pages_1_percent", 1
	g := newGoal(r, bench, title, fmt.Sprintf("≤ %d %% of a core", limit))
	if v, ok := r.median(ours, bench, figure); ok {
		g.measured, g.verdict = digits(v)+" %", judge(v <= limit)
	}
	return g
}

// tickGoal requires that the cost of a tick does not depend on the number of live tasks.
func tickGoal(r results, quick bool) goal {
	const limit = 1.2
	small, large := scaleEnds(quick)
	growth := func(d definition) (float64, bool) {
		v, ok := r.growth(d.name, scaleName(small), scaleName(large), "beat_ns")
		return v, ok && d.ticks
	}
	g := newGoal(r, scaleName(large),
		fmt.Sprintf("a tick that has nothing due, %s against %s live", count(large), count(small)),
		fmt.Sprintf("≤ %.1f ×", limit))
	g.best = best(r, scaleName(large), growth, timesCell)
	if v, ok := r.growth(ours, scaleName(small), scaleName(large), "beat_ns"); ok {
		g.measured, g.verdict = timesCell(v), judge(v <= limit)
	}
	return g
}

// growthGoal requires that the cost of an add grows with the number of live tasks no more than the floor's.
func growthGoal(r results, quick bool) goal {
	small, large := scaleEnds(quick)
	growth := func(name string) (float64, bool) {
		return r.growth(name, scaleName(small), scaleName(large), "add_ns")
	}
	g := newGoal(r, scaleName(large), fmt.Sprintf("add at %s live against %s live", count(large), count(small)),
		"no more than the floor grows")
	g.best = best(r, scaleName(large), func(d definition) (float64, bool) { return growth(d.name) }, timesCell)
	least, ok := growth(floorName)
	if !ok {
		return g
	}
	g.floor = timesCell(least)
	if v, ok := growth(ours); ok {
		g.measured, g.verdict = timesCell(v), judge(v <= least)
	}
	return g
}

// scaleEnds returns the smallest and the largest number of live timers of the scale cases.
func scaleEnds(quick bool) (small, large int) {
	var sizes []int
	for _, size := range scaleSizes() {
		if c, err := selectCases(scaleName(size)); err == nil && !(quick && c[0].fullOnly) {
			sizes = append(sizes, size)
		}
	}
	return sizes[0], sizes[len(sizes)-1]
}

// figureOf returns a figure of a peer, if there is one.
type figureOf func(d definition) (float64, bool)

// best describes the keyed peer other than ours with the lowest figure, and its jobs that ran early or not at all.
func best(r results, bench string, figure figureOf, format func(float64) string) string {
	d, v, ok := bestOf(figure)
	if !ok {
		return "–"
	}
	text := d.name + " " + format(v)
	early, lost, _ := r.troubles(d.name, bench)
	if early > 0 {
		text += fmt.Sprintf(", %s early", commas(early))
	}
	if lost > 0 {
		text += fmt.Sprintf(", %s lost", commas(lost))
	}
	return text
}

// bestOf returns the keyed peer other than ours with the lowest figure.
func bestOf(figure figureOf) (definition, float64, bool) {
	var first definition
	var least float64
	found := false
	for _, d := range definitions() {
		if !d.keyed || !d.timers || oursToo(d) || d.only != "" {
			continue
		}
		if v, ok := figure(d); ok && (!found || v < least) {
			first, least, found = d, v, true
		}
	}
	return first, least, found
}

func ratioCell(v float64) string { return fmt.Sprintf("%.2f", v) }

func timesCell(v float64) string { return fmt.Sprintf("%.2f ×", v) }

func millisecondsCell(v float64) string { return digits(v) + " ms" }

// goalTable returns the table of targets.
func goalTable(list []goal) table {
	t := table{head: []string{"case", "target", "measured", "best other keyed peer", "floor", "met"}}
	for _, g := range list {
		mark := string(g.verdict)
		if g.verdict == missed {
			mark = "**" + mark + "**"
		}
		t.rows = append(t.rows, []string{g.title, g.target, g.measured, g.best, g.floor, mark})
	}
	return t
}
