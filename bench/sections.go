// SPDX-License-Identifier: MIT

package main

import "fmt"

// sections lists the tables of the report.
func sections(quick bool) []section {
	live := func(name string) string { return count(workloadOf(name, quick).Live) }
	var list []section
	for _, name := range []string{"add-small", "add-medium", "add-large"} {
		list = append(list, addSection(name, live(name)))
	}
	list = append(list,
		section{
			title: "Add, then remove, with " + live("add-remove") + " live",
			text: "One producer; each timer is removed again 1,000 adds after its own. A pair is an add and a " +
				"remove. CPU is that of the process, the goroutines of the wheel included.",
			columns: []column{
				{"pair", "add-remove", "pair_ns", nanoseconds, true},
				{"pair, CPU", "add-remove", "pair_cpu_ns", nanoseconds, true},
			},
		},
		section{
			fires: true,
			title: "Reschedule by key with " + live("reschedule") + " live",
			text: "One producer; from 30 minutes to 45, in an order that is not that of the adds. Then " +
				commas(workloadOf("reschedule", quick).Fresh) + " of them are moved to be due at once: those are the " +
				"ones that are looked at for EARLY and LOST.",
			columns: []column{
				{"move", "reschedule", "move_ns", nanoseconds, true},
				{"move, CPU", "reschedule", "move_cpu_ns", nanoseconds, true},
				{"least late", "reschedule", "first_ms", millis, false},
				{"most late", "reschedule", "last_ms", millis, false},
			},
		},
	)
	for _, name := range []string{"create", "create-many", "create-huge", "create-huge-many"} {
		list = append(list, createSection(name, workloadOf(name, quick)))
	}
	return append(list, append(firingSections(quick), quietSections(live)...)...)
}

// workloadOf returns the workload of a case.
func workloadOf(name string, quick bool) workload {
	for _, c := range cases() {
		if c.name == name {
			return c.workload(quick)
		}
	}
	panic("no case is named " + name)
}

func addSection(name, live string) section {
	return section{
		title: "Add one keyed timer with " + live + " live",
		text:  "Nanoseconds per add, by the number of goroutines that add at the same time; due in 30 minutes.",
		columns: []column{
			{"1 producer", name, "add_ns_1", nanoseconds, true},
			{"2", name, "add_ns_2", nanoseconds, true},
			{"8", name, "add_ns_8", nanoseconds, true},
		},
	}
}

func createSection(name string, w workload) section {
	from := "one goroutine"
	if n := w.Producers[0]; n > 1 {
		from = fmt.Sprintf("%d goroutines", n)
	}
	return section{
		title: "Create " + count(w.Live) + " timers from " + from,
		text: "Due in 30 minutes. Wall is until the last add returned, CPU what the process used until 100 ms " +
			"later. Heap is what is live after a collection, by timer, without the bytes of the keys. A " +
			"collection is `runtime.GC()` with all of them live.",
		columns: []column{
			{"wall", name, "wall_ms", millis, true},
			{"CPU", name, "cpu_ms", millis, true},
			{"heap each", name, "heap_b", bytesEach, true},
			{"allocations each", name, "allocs", number, false},
			{"collection, wall", name, "gc_wall_ms", millis, false},
			{"CPU", name, "gc_cpu_ms", millis, true},
		},
	}
}

func firingSections(quick bool) []section {
	fire, burst := workloadOf("fire", quick), workloadOf("burst", quick)
	return []section{
		{
			fires: true,
			title: fireTitle(fire),
			text: fmt.Sprintf("One producer starts them in the %v before, in no order of time. CPU is that of "+
				"adding and firing. Lateness is against the instant that was asked for, time of the call and "+
				"delay, on the monotonic clock, and negative if a job ran before it. LOST is what has not run "+
				"%v after the window.", fire.Lead, fire.Grace),
			columns: []column{
				{"CPU", "fire", "cpu_ms", millis, true},
				{"least late", "fire", "first_ms", millis, false},
				{"p50", "fire", "p50_ms", millis, false},
				{"p99", "fire", "p99_ms", millis, false},
				{"most late", "fire", "last_ms", millis, false},
			},
		},
		{
			fires: true,
			title: count(burst.Live) + " timers due at one instant",
			text: "From the due instant to the first and the last job. Span is to the last job from the due " +
				"instant, or from the first job if that ran before it. *After its tick* is to the first job from " +
				"the tick at which a wheel has to notice that they are due, found by 30 single timers beforehand, or " +
				"from the due instant if the peer has no ticks. CPU is that of adding and firing.",
			columns: []column{
				{"first", "burst", "first_ms", millis, false},
				{"after its tick", "burst", "tick_ms", millis, false},
				{"last", "burst", "last_ms", millis, false},
				{"span", "burst", "span_ms", millis, true},
				{"CPU", "burst", "cpu_ms", millis, true},
				{"CPU of firing", "burst", "fire_ms", millis, true},
			},
		},
	}
}

// fireTitle is the title of the table from which EARLY and LOST are taken.
func fireTitle(w workload) string {
	return fmt.Sprintf("%s timers due within %v", count(w.Live), w.Window)
}

func quietSections(live func(name string) string) []section {
	list := []section{{
		title: "Idle for 10 s",
		text: "CPU of the process in 10 s in which nothing is due: with no timer at all, and with timers due in " +
			"an hour. What importing a library starts is part of its figure.",
		columns: []column{
			{"empty, tick 1 ms", "idle-empty-1ms", "idle_ms", millis, false},
			{"empty, tick 10 ms", "idle-empty-10ms", "idle_ms", millis, false},
			{live("idle-live-1ms") + " live, tick 1 ms", "idle-live-1ms", "idle_ms", millis, false},
			{live("idle-live-10ms") + " live, tick 10 ms", "idle-live-10ms", "idle_ms", millis, false},
		},
	}}
	list = append(list, section{
		title: "Timers of 1 ms during work on all tasks",
		text: "Lateness p99 of 16 timers of one tick that start themselves again, with " + live("walk") + " live, while " +
			"another goroutine does nothing, walks over all tasks again and again, asks for their number, or adds " +
			"without end; and while it does the same to a concurrent-map that is not the wheel's.",
		columns: []column{
			{"alone, p99", "walk", "alone_p99_ms", millis, false},
			{"All", "walk", "all_p99_ms", millis, false},
			{"walk over another map", "walk", "other_walk_p99_ms", millis, false},
			{"Len", "walk", "len_p99_ms", millis, false},
			{"AddTask", "walk", "grow_p99_ms", millis, false},
			{"adds to another map", "walk", "other_grow_p99_ms", millis, false},
		},
	})
	list = append(list, section{
		title: "The dashboard",
		text: "CPU of the process in which tasks wait, spread over half an hour, and nothing is due: with the handler " +
			"mounted and no page open, with one, and with 200, which another process reads. The recorder of the " +
			"lateness is at work. What the wheel takes without the page is part of each figure; see *Idle for 10 s*.",
		columns: []column{
			{live("dashboard-small") + " live, no page", "dashboard-small", "pages_0_percent", percent, false},
			{"1 page", "dashboard-small", "pages_1_percent", percent, false},
			{"200", "dashboard-small", "pages_200_percent", percent, false},
			{live("dashboard") + " live, no page", "dashboard", "pages_0_percent", percent, false},
			{"1 page", "dashboard", "pages_1_percent", percent, false},
			{"200", "dashboard", "pages_200_percent", percent, false},
		},
	})
	for _, s := range []struct {
		title, text, figure string
		unit                unit
	}{
		{"Growth of an add", "Per add, one producer, by the number of live timers.", "add_ns", nanoseconds},
		{"Growth of a remove", "Per remove, by the number of live timers.", "remove_ns", nanoseconds},
		{
			"Growth of a tick in which nothing is due",
			"CPU of the process by elapsed tick of 1 ms (10 ms where a peer has no other), all timers due in an hour.",
			"quiet_ns", microseconds,
		},
		{
			"Growth of a tick that cannot be slept through",
			"The same with one timer that starts itself again each time it fires, so that the wheel has to come up.",
			"beat_ns", microseconds,
		},
	} {
		var columns []column
		for _, size := range scaleSizes() {
			columns = append(columns, column{count(size), scaleName(size), s.figure, s.unit, false})
		}
		list = append(list, section{title: s.title, text: s.text, columns: columns})
	}
	return list
}
