// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"time"
)

func storeFailed(now SchedulerReading, past []SchedulerReading) Finding {
	from := since(now, past, func(r SchedulerReading) bool { return r.Broken != "" })
	what, remedy := "The store has failed", "restart the process"
	if now.Full {
		what, remedy = "The disk is full", "make room, then restart the process"
	}
	return Finding{StoreFailed, from, fmt.Sprintf("%s, and nothing has run%s (%s): %s",
		what, lasting(now.Time, from), remedy, cause(now.Broken))}
}

// A disk counts as nearly full if less than one part in lowDisk is free.
const lowDisk = 20

func diskLow(now SchedulerReading, past []SchedulerReading) []Finding {
	is := func(r SchedulerReading) bool { return r.DiskSize > 0 && r.DiskFree < r.DiskSize/lowDisk }
	if !is(now) || now.Broken != "" { // if the store has failed, a finding names the cause
		return nil
	}
	return []Finding{{DiskLow, since(now, past, is), fmt.Sprintf("The disk of the store is nearly full: %s of %s are free",
		size(now.DiskFree), size(now.DiskSize))}}
}

func engineAway(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Away == "" {
		return nil
	}
	from := now.Time.Add(-now.AwayFor)
	return []Finding{{EngineAway, from, fmt.Sprintf("The engine has not served this node%s%s: %s",
		lasting(now.Time, from), starts(now, past, ", and nothing starts here"), cause(now.Away))}}
}

// unread reports that the answers of the page are old. It says whether the node still runs tasks.
func unread(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Unread == "" || now.Away != "" {
		return nil
	}
	return []Finding{{Unread, now.UnreadSince, fmt.Sprintf("This page cannot read the engine%s%s: %s",
		lasting(now.Time, now.UnreadSince), starts(now, past, ""), cause(now.Unread))}}
}

// startsFor is the time over which starts are counted.
const startsFor = 3 * time.Second

// starts says how many runs have started here lately, or none if there were none. It says nothing if that is not known.
func starts(now SchedulerReading, past []SchedulerReading, none string) string {
	for i := len(past) - 1; i >= 0; i-- {
		within := now.Time.Sub(past[i].Time)
		if within < startsFor {
			continue
		}
		n := now.Started - past[i].Started
		switch rate := int((time.Duration(n)*time.Second + within/2) / within); {
		case n == 0:
			return none
		case rate == 0:
			return "; runs go on"
		default:
			return fmt.Sprintf("; runs go on, %s a second", number(rate))
		}
	}
	return ""
}

// slow reports an engine that takes long to answer.
func slow(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Slow == 0 || now.Away != "" {
		return nil
	}
	return []Finding{{Slow, since(now, past, func(r SchedulerReading) bool { return r.Slow > 0 }),
		fmt.Sprintf("The engine is slow: it takes %d ms to answer on average, and runs start that much later", now.Slow.Milliseconds())}}
}

// starved reports that this process gets too little CPU, so that its own timers are late.
func starved(now SchedulerReading, past []SchedulerReading) []Finding {
	return starvedFor(now.CPUWait, func() time.Time {
		return since(now, past, func(r SchedulerReading) bool { return r.CPUWait > 0 })
	})
}

// starvedFor reports that a process waits for a processor for so long.
func starvedFor(wait time.Duration, since func() time.Time) []Finding {
	if wait == 0 {
		return nil
	}
	return []Finding{{Starved, since(), fmt.Sprintf("This process gets too little CPU: it waits up to %s for a processor, and its timers are that late", Span(wait))}}
}

// dirty reports that no autovacuum removes dead rows, which make claims slow.
func dirty(now SchedulerReading, past []SchedulerReading) []Finding {
	is := func(r SchedulerReading) bool { return r.NoVacuum != "" }
	if !is(now) {
		return nil
	}
	return []Finding{{Dirty, since(now, past, is), fmt.Sprintf("Autovacuum is off %s: %s", now.NoVacuum, count(int(now.DeadRows), "dead row"))}}
}

func counting(now SchedulerReading, past []SchedulerReading) []Finding {
	if !now.Counting || now.Away != "" || now.Unread != "" {
		return nil
	}
	text := "The tasks are being counted"
	if !now.Counted.IsZero() {
		text = fmt.Sprintf("The tasks are being counted again: %s %s", count(now.Tasks, "task"), ago(now.Time.Sub(now.Counted)))
	}
	return []Finding{{Counting, since(now, past, func(r SchedulerReading) bool { return r.Counting }), text}}
}

func unflushed(now SchedulerReading, past []SchedulerReading) []Finding {
	if !now.Unflushed {
		return nil
	}
	from := since(now, past, func(r SchedulerReading) bool { return r.Unflushed })
	return []Finding{{Unflushed, from,
		"A crash of the engine's server can lose acknowledged tasks: synchronous_commit or fsync is off"}}
}

// refusedFor is how long a refused connection is reported.
const refusedFor = time.Minute

func refused(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Refused < 0 {
		return nil
	}
	n, first, latest := 0, now.Time, now.Time
	after := now
	for i := len(past) - 1; i >= 0 && now.Time.Sub(after.Time) < refusedFor; i-- {
		if past[i].Refused < 0 {
			continue
		}
		if past[i].Refused < after.Refused {
			if first = after.Time; n == 0 {
				latest = first
			}
			n = now.Refused - past[i].Refused
		}
		after = past[i]
	}
	if n == 0 {
		return nil
	}
	verb := "was"
	if n > 1 {
		verb = "were"
	}
	return []Finding{{Refused, first, fmt.Sprintf("%s to the wrong database server %s refused, the latest %s: it is an old primary, "+
		"or another cluster. Stop it, or make it a standby of the primary", count(n, "connection"), verb, ago(now.Time.Sub(latest)))}}
}

// Survival says whether an acknowledged task survives the loss of the engine's server. replicated means that the server
// waits for its standbys. If it is set and standbys is 0, the role is not allowed to see the number of standbys.
func Survival(replicated bool, standbys int) string {
	switch {
	case replicated && standbys > 0:
		return fmt.Sprintf("Acknowledged tasks survive the loss of the database server (%s)", count(standbys, "synchronous standby"))
	case replicated:
		return "Acknowledged tasks survive the loss of the database server if the connected standby is synchronous"
	case standbys > 0:
		return "Acknowledged tasks can be lost with the database server: synchronous_commit does not wait for the standby"
	}
	return "Acknowledged tasks are on this database server only"
}
