// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// every is all findings.
const every = ".*"

// lost matches the findings about nodes that are late or gone.
const lost = "lease|taken"

// The alerts for stuck workers.
var busyAlerts = []string{"TimewheelNothingStarts", "TimewheelWorkersBusy", "TimewheelDurableNothingStarts",
	"TimewheelDurableBacklogGrows", "TimewheelOldestWait", "TimewheelDurableOldestWait"}

// longest is the metric of the longest run, for handlers that hang.
const longest = `max(timewheel_durable_kind_longest_run_seconds{kind="hang"}) > 1`

// incidents is the table that dashboard/README.md explains, in its order.
var incidents = []incident{
	{
		name:  "all workers stuck",
		on:    []backend{wheel},
		begin: add("kind=hang&n=40"),
		after: time.Second,
		seen: view{
			headline: "overloaded", says: "8 of 8 workers busy.*32 runs wait",
			metrics: []string{"timewheel_oldest_wait_seconds > 1", "timewheel_runs_waiting == 32", "timewheel_runs_running == 8"},
			alerts:  []string{"TimewheelOldestWait"}, alarm: 10 * time.Second, may: busyAlerts,
		},
		also: started(hang, 8),
		end:  release,
	},
	allStuck(40, 8, "web-1", store, one),
	allStuck(60, 16, "web-[12]", two),
	{
		name:  "all workers stuck",
		on:    []backend{stuck},
		begin: doAll(add("kind=hang&n=40"), add("kind=quick&n=100")),
		after: time.Second,
		seen: view{
			headline: "overloaded", says: "8 of 8 workers busy.*(32|hang)", others: "overloaded|backlog",
			metrics: []string{`timewheel_durable_oldest_wait_seconds{instance="web-1"} > 1`, longest, "sum(timewheel_durable_runs_running) == 8"},
			alerts:  []string{"TimewheelDurableOldestWait"}, alarm: 10 * time.Second, may: busyAlerts,
			asks: []question{{args: []string{"stats"}, prints: "32 tasks are overdue"}},
		},
		never: lost,
		also:  started(quick, 100),
		end:   release,
	},
	oneHangs(40, 8, "web-2", store, one),
	oneHangs(60, 16, "web-[23]", two),
	{
		name:  "a kind always fails",
		on:    []backend{wheel},
		begin: add("kind=fails&n=10"),
		seen: view{
			headline: "panicked", says: "10 jobs panicked",
			metrics: []string{"timewheel_runs_panicked_total == 10"},
			may:     []string{"TimewheelPanics"}, // which needs a scrape before the first panic
		},
		end:   mend,
		stays: "panicked",
		keeps: []string{"TimewheelPanics"},
	},
	{
		name:  "a kind always fails",
		on:    []backend{store, one, two},
		begin: add("kind=fails&n=10"),
		after: 500 * time.Millisecond, // of the attempts
		seen: view{
			headline: "failing|parked", says: "(10 tasks are parked|fails: [0-9]+ of [0-9]+ attempts.*connection refused)",
			others:  "failing|parked",
			metrics: []string{"min(timewheel_durable_tasks_parked) == 10", `max(timewheel_durable_kind_tasks{kind="fails",state="parked"}) == 10`},
			alerts:  []string{"TimewheelDurableTasksParked"},
			may:     []string{"TimewheelDurableParkedGrows", "TimewheelDurableAttemptsFail"},
			asks: []question{
				{args: []string{"failures"}, prints: `(?m)^ *10 +10 +0 +fails .*connection refused`},
				{args: []string{"stats"}, prints: `(?m)^fails +10 +10 +10 `},
			},
		},
		never: lost,
		end:   doAll(mend, order("unpark", "")),
		keeps: []string{"TimewheelDurableAttemptsFail"},
	},
	{
		name:  "a kind without a handler",
		on:    []backend{store},
		seeds: []string{"kind=sms&n=12"},
		seen: view{
			headline: "unhandled", says: "sms has no handler.*12 due tasks wait",
			metrics: []string{`timewheel_durable_kind_unhandled_seconds{kind="sms"} > 0`, "timewheel_durable_tasks_unhandled == 12"},
			alerts:  []string{"TimewheelDurableTasksUnhandled"},
		},
		end: handleSMS,
	},
	{
		name:  "a kind without a handler",
		on:    []backend{one, two},
		seeds: []string{"kind=sms&n=12"},
		seen: view{
			headline: "unhandled", says: "sms has no handler.*12 due tasks wait",
			metrics: []string{`max(timewheel_durable_kind_unhandled_seconds{kind="sms"}) > 0`},
			alerts:  []string{"TimewheelDurableKindUnhandled"}, alarm: time.Minute,
			asks: []question{{args: []string{"stats"}, prints: "(?is)sms .*12.*no (node|handler)"}},
		},
		never: lost,
		end:   handleSMS,
	},
	{
		name:  "the database is away",
		on:    []backend{one, two},
		begin: doAll(beat, func(s *scene) error { return s.server.Stop(pgtest.Immediate) }),
		seen: view{
			headline: "away", says: "^The engine has not served this node",
			metrics: []string{"min(timewheel_durable_engine_away) == 1"},
			alerts:  []string{"TimewheelDurableEngineAway"},
			may:     []string{"TimewheelDurableLeaseLate"},
			asks:    []question{{args: []string{"stats"}, prints: "127.0.0.1", fails: true}},
		},
		holds: 8 * time.Second,
		never: lost + "|failing|parked",
		end:   func(s *scene) error { return s.server.Restart() },
	},
	{
		name:  "the primary is lost",
		on:    []backend{two},
		begin: doAll(beat, losePrimary),
		seen: view{
			headline: "away", says: "^The engine has not served this node",
			metrics: []string{"min(timewheel_durable_engine_away) == 1"},
			alerts:  []string{"TimewheelDurableEngineAway"},
			may:     []string{"TimewheelDurableLeaseLate"},
			asks:    []question{{args: []string{"stats"}, prints: "not the primary: it is in recovery", fails: true}},
		},
		holds: 8 * time.Second,
		never: lost + "|failing|parked",
		end:   undo,
	},
	{
		name:  "the database hangs",
		on:    []backend{one, two},
		begin: doAll(beat, holdRequests),
		after: 2 * time.Second, // that page and node wait for an answer
		seen: view{
			headline: "away", says: "^The engine has not served this node",
			metrics: []string{"min(timewheel_durable_engine_away) == 1"},
			alerts:  []string{"TimewheelDurableEngineAway"}, alarm: 5 * time.Second,
			may:  []string{"TimewheelDurableLeaseLate"},
			asks: []question{{args: []string{"stats"}, prints: `127\.0\.0\.1.* has not answered for \d+ s`, fails: true}},
		},
		holds: 8 * time.Second,
		never: "failing|parked|unhandled", // the first node that is back may take over the other's tasks
		end:   undo,
	},
	unserved("leases cannot be renewed", lock("member", "ACCESS EXCLUSIVE")),
	unserved("tasks cannot be changed", lock("task", "SHARE")),
	unserved("the synchronous standby is gone", awaitNobody,
		"TimewheelDurableEndsRefused"), // a commit that is given up may have taken effect
	connectionsUsedUp,
	databaseFull,
	{
		name: "a node dies after a hang",
		on:   []backend{two},
		begin: doAll(beat, holdRequests, waits(8*time.Second), undo, waits(2*time.Second),
			func(s *scene) error { s.kill(s.all()[1]); return nil }, add("kind=fails&n=30")),
		after: lease,
		seen: view{
			headline: "lease|taken|failing|parked", says: "web-2|fails|30",
			metrics: []string{"timewheel_durable_tasks_parked == 30", "timewheel_durable_takeovers_total >= 1"},
			alerts:  []string{"TimewheelDurableTasksParked"},
			may:     []string{"TimewheelDurableParkedGrows", "TimewheelDurableAttemptsFail"},
			asks: []question{
				{args: []string{"failures"}, prints: `(?m)^ *30 +30 +0 +fails `},
				{args: []string{"nodes"}, prints: `^[^\n]*\nweb-1[^\n]*\n$`},
			},
		},
		end:   doAll(mend, order("unpark", ""), join(kinds)),
		stays: "taken",
		keeps: []string{"TimewheelDurableAttemptsFail"},
	},
	{
		name:  "a kind without a handler, far away",
		on:    []backend{one},
		seeds: []string{"kind=sms&n=12"},
		begin: slowRequests,
		after: 15 * time.Second, // a search takes a few calls, which take 300 ms each
		seen: view{
			headline: "unhandled", says: "sms has no handler.*12 due tasks wait",
			metrics: []string{`max(timewheel_durable_kind_unhandled_seconds{kind="sms"}) > 0`},
			alerts:  []string{"TimewheelDurableKindUnhandled"}, alarm: time.Minute,
			may: []string{"TimewheelDurableLeaseLate"},
		},
		holds: 15 * time.Second,
		never: lost + "|away|unread",
		end:   doAll(undo, handleSMS),
	},
	{
		name:  "all nodes are drained",
		on:    []backend{one, two},
		begin: doAll(beat, drain("drain")),
		after: 2 * time.Second, // until the nodes have read it
		seen: view{
			headline: "drained", says: "(All 2 nodes are|The only node is) drained, and nothing starts",
			metrics: []string{`max(timewheel_durable_kind_unhandled_seconds{kind="quick"}) > 0`},
			alerts:  []string{"TimewheelDurableKindUnhandled"}, alarm: time.Minute,
			asks: []question{{args: []string{"stats"}, prints: "Kind quick has no handler on any node"}},
		},
		holds: 8 * time.Second,
		never: lost + "|away|unhandled|failing|parked",
		end:   drain("undrain"),
	},
	{
		name:  "a kind is paused",
		on:    []backend{one, two},
		begin: doAll(beat, call("pause-kind", "-why", "a trial", quick)),
		after: 2 * time.Second, // until the nodes have read it
		seen: view{
			headline: "well", says: "^Working", note: `Kind quick is paused( for \d+ s)? by \w+ \(a trial\): \d+ due tasks? wait`,
			metrics: []string{`max(timewheel_durable_kind_paused_due_tasks{kind="quick"}) > 0`, `max(timewheel_durable_kind_paused_seconds{kind="quick"}) > 1`},
			asks:    []question{{args: []string{"stats"}, prints: `Kind quick is paused, .* ago, by \w+: a trial`}},
		},
		holds: 8 * time.Second,
		never: every,
		end:   call("resume-kind", quick),
	},
	{
		name:  "the database is slow",
		on:    []backend{one, two},
		begin: doAll(beat, slowRequests),
		after: 5 * time.Second, // until there are enough calls
		seen: view{
			headline: "well|overloaded|backlog", note: `The engine is slow: it takes [123]\d\d ms`,
			metrics: []string{"min(rate(timewheel_durable_engine_call_duration_seconds_sum[10s]) / rate(timewheel_durable_engine_call_duration_seconds_count[10s])) > 0.1"},
			may:     append([]string{"TimewheelDurableLeaseLate"}, busyAlerts...),
			asks:    []question{{args: []string{"stats"}, prints: "quick"}},
		},
		holds: 10 * time.Second,
		never: lost + "|away|failing|parked|unhandled",
		end:   undo,
	},
	{
		name:  "a node is killed",
		on:    []backend{two},
		begin: doAll(beat, func(s *scene) error { s.kill(s.all()[1]); return nil }),
		after: lease,
		seen: view{
			headline: lost, says: "web-2",
			metrics: []string{"timewheel_durable_takeovers_total >= 1"},
			asks:    []question{{args: []string{"nodes"}, prints: `^[^\n]*\nweb-1[^\n]*\n$`}},
		},
		holds: 5 * time.Second,
		never: "away|overloaded|failing|parked|unhandled",
		also:  late(lease + time.Second),
		end:   join(kinds),
		stays: "taken",
	},
	{
		name: "a node is stopped",
		on:   []backend{two},
		begin: doAll(beat, func(s *scene) error {
			_, err := s.suspend(s.all()[1])
			return err
		}),
		after: lease,
		seen: view{
			headline: lost, says: "web-2",
			metrics: []string{"timewheel_durable_takeovers_total >= 1"},
			asks:    []question{{args: []string{"nodes"}, prints: `^[^\n]*\nweb-1[^\n]*\n$`}},
		},
		holds: 5 * time.Second,
		never: "away|overloaded|failing|parked|unhandled",
		end:   undo,
		stays: "taken",
	},
	{
		name:  "a node shuts down",
		on:    []backend{two},
		begin: doAll(beat, func(s *scene) error { return s.stopBusy(s.all()[1]) }),
		seen: view{
			headline: "well", says: "^Working",
			metrics: []string{"timewheel_durable_takeovers_total == 0"},
			asks:    []question{{args: []string{"nodes"}, prints: `^[^\n]*\nweb-1[^\n]*\n$`}},
		},
		holds: 10 * time.Second,
		never: every,
		also:  late(time.Second),
	},
	{
		name:  "a rolling deploy",
		on:    []backend{two},
		begin: doAll(beat, deploy),
		seen: view{
			headline: "well", says: "^Working.* 2 nodes",
			metrics: []string{"max(timewheel_durable_takeovers_total) == 0"},
			asks:    []question{{args: []string{"nodes"}, prints: `^[^\n]*\nweb-[34][^\n]*\nweb-[34][^\n]*\n$`}},
		},
		holds: 5 * time.Second,
		never: every,
		also:  late(time.Second),
	},
	{
		name:  "the disk is full under load",
		on:    []backend{store},
		begin: doAll(small, add("kind=quick&n=100&in=1h"), fill, load),
		seen: view{
			headline: "failed", says: "^The disk is full",
			metrics: []string{"timewheel_durable_store_failed == 1"},
			alerts:  []string{"TimewheelDurableStoreFailed"},
			may:     busyAlerts,
		},
		end: doAll(undo, restart),
	},
	{
		name:  "the disk is full, idle",
		on:    []backend{store},
		begin: doAll(small, add("kind=quick&n=100&in=1h"), fill),
		seen:  view{headline: "well|failed", says: "", note: "(?i)(disk|free|space)"},
		end:   undo,
	},
	{
		name:  "200,000 overdue tasks",
		on:    []backend{store, one, two},
		seeds: []string{"kind=quick&n=200000"},
		after: time.Second,
		seen: view{
			headline: "backlog|overloaded", says: "[0-9]{2,3},[0-9]{3} (overdue tasks|runs wait)",
			metrics: []string{
				fmt.Sprintf(`max(timewheel_durable_kind_backlog_tasks{kind="quick"}) + on() sum(timewheel_durable_kind_runs_started_total{kind="quick"}) > %d`, backlog*9/10),
				fmt.Sprintf(`max(timewheel_durable_kind_backlog_tasks{kind="quick"}) + on() sum(timewheel_durable_kind_runs_started_total{kind="quick"}) < %d`, backlog*11/10),
			},
			asks: []question{{args: []string{"stats"}, prints: `1[0-9]{2},[0-9]{3} tasks are overdue`}},
		},
		holds: 20 * time.Second,
		never: lost + "|away",
		end:   order("clear", "kind=quick"),
	},
	{
		name:  "a tenant floods",
		on:    []backend{store, one, two},
		begin: doAll(add("kind=limited&n=500&group=acme"), add("kind=limited&n=3&group=globex")),
		after: 3 * time.Second, // for the turns of the other tenant
		seen: view{
			headline: "well", says: "^Working", note: "limit",
			metrics: []string{`max(timewheel_durable_kind_backlog_tasks{kind="limited"}) > 100 or sum(timewheel_durable_kind_runs_limited{kind="limited"}) > 100`},
			asks:    []question{{args: []string{"stats", "-by", "group"}, prints: `(?m)^limited +acme .*4[0-9]{2}`}},
		},
		never: every,
		end:   order("clear", "kind=limited"),
	},
	{
		name: "a clock is wrong",
		on:   []backend{two},
		begin: func(s *scene) error {
			if err := s.wrongClock(context.Background()); err != nil {
				return err
			}
			for _, clock := range []string{"ahead", "behind"} {
				if _, err := s.joinAs(clock, node{Kinds: kinds}); err != nil {
					return err
				}
			}
			return beat(s)
		},
		seen: view{
			headline: "well", says: "^Working.* 4 nodes",
			metrics: []string{"max(timewheel_durable_lease_age_seconds) < 3", "count(timewheel_durable_engine_away == 0) == 4"},
			asks:    []question{{args: []string{"nodes"}, prints: `web-4`}},
		},
		holds: 8 * time.Second,
		never: every,
		end: func(s *scene) error {
			for _, p := range s.all()[2:] {
				if err := s.stop(p); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name:  "a transaction is forgotten",
		on:    []backend{one, two},
		begin: doAll(beat, forget),
		after: 4 * time.Second,
		seen: view{
			headline: "well", says: "^Working",
			metrics: []string{"min(timewheel_durable_engine_oldest_transaction_seconds) > 3"},
		},
		holds: 8 * time.Second,
		never: every,
		also:  late(time.Second),
		end: doAll(undo, func(s *scene) error {
			return s.soon("min(timewheel_durable_engine_oldest_transaction_seconds) < 3")
		}),
	},
}

const backlog = 200_000

// allStuck returns the incident in which all workers hang, and the rest of the tasks wait. nodes is a regexp for the
// names of the nodes that run them.
func allStuck(tasks, workers int, nodes string, on ...backend) incident {
	wait := tasks - workers
	return incident{
		name:  "all workers stuck",
		on:    on,
		begin: add(fmt.Sprint("kind=hang&n=", tasks)),
		after: time.Second,
		seen: view{
			headline: "overloaded", says: fmt.Sprintf("8 of 8 workers busy.*(%d|hang)", wait),
			metrics: []string{
				"min(timewheel_durable_oldest_wait_seconds) > 1", longest,
				fmt.Sprint("sum(timewheel_durable_runs_running) == ", workers),
			},
			alerts: []string{"TimewheelDurableOldestWait"}, alarm: 10 * time.Second, may: busyAlerts,
			asks: []question{
				{args: []string{"stats"}, prints: fmt.Sprint(wait, " tasks are overdue")},
				{args: []string{"ls", "-state", "running", "-kind", "hang"}, prints: "(?s)NODE.*hang-web-1-.*" + nodes},
			},
		},
		never: lost,
		also:  started(hang, workers),
		end:   release,
	}
}

// unserved returns an incident in which the database answers queries, and the nodes cannot run tasks.
func unserved(name string, begin func(*scene) error, keeps ...string) incident {
	return incident{
		name:  name,
		on:    []backend{one, two},
		begin: doAll(beat, begin),
		after: time.Second, // until a need counts as unmet
		seen: view{
			headline: "away", says: "^The engine has not served this node.*(renewals|claims|confirmations|commits)",
			metrics: []string{"min(timewheel_durable_engine_away) == 1"},
			alerts:  []string{"TimewheelDurableEngineAway"}, alarm: 5 * time.Second,
			may: slices.Concat([]string{"TimewheelDurableLeaseLate"}, busyAlerts, keeps),
		},
		holds: 12 * time.Second,
		never: "failing|parked|unhandled",
		end:   undo,
		stays: "taken", // the first node that is back may take over the other's tasks
		keeps: keeps,
	}
}

// oneHangs returns the incident in which a number of overdue tasks of one kind hang, next to tasks of a quick kind.
func oneHangs(tasks, workers int, nodes string, on ...backend) incident {
	return incident{
		name:  "a kind hangs",
		on:    on,
		seeds: []string{fmt.Sprint("kind=hang&n=", tasks), "kind=quick&n=1000"},
		after: time.Second,
		seen: view{
			headline: "overloaded|backlog", says: "hang",
			metrics: []string{
				fmt.Sprintf(`max(timewheel_durable_kind_backlog_tasks{kind="hang"}) >= %d`, tasks-workers),
				`max(timewheel_durable_kind_backlog_tasks{kind="quick"}) == 0`,
			},
			may:  busyAlerts,
			asks: []question{{args: []string{"ls", "-state", "running", "-kind", "hang"}, prints: "(?s)NODE.*hang-.*" + nodes}},
		},
		holds: 10 * time.Second,
		never: lost,
		also:  started(quick, 1000),
		end:   release,
	}
}

// doAll returns a step that does the steps one after another.
func doAll(steps ...func(*scene) error) func(*scene) error {
	return func(s *scene) error {
		for _, do := range steps {
			if err := do(s); err != nil {
				return err
			}
		}
		return nil
	}
}

// add returns a step in which the first process adds tasks.
func add(values string) func(*scene) error { return order("add", values) }

// order returns a step that sends an order to the first process.
func order(what, values string) func(*scene) error {
	return func(s *scene) error { return s.order(s.all()[0], what, values) }
}

// beat adds quick tasks that fall due all the time, and resets the maximal lateness.
func beat(s *scene) error {
	if err := s.orderAll("add", "kind=quick&n=10&in=1s&each=1s"); err != nil {
		return err
	}
	s.steady.Store(true)
	return s.orderAll("reset", "")
}

func release(s *scene) error {
	for range 20 { // runs that begin when others end
		if err := s.orderAll("release", ""); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

func mend(s *scene) error { return s.orderAll("mend", "") }

func undo(s *scene) error {
	for len(s.undo) > 0 {
		last := s.undo[len(s.undo)-1]
		s.undo = s.undo[:len(s.undo)-1]
		last()
	}
	return nil
}

func waits(d time.Duration) func(*scene) error {
	return func(*scene) error { time.Sleep(d); return nil }
}

// started returns a step that fails unless n runs of the kind have begun.
func started(kind string, n int) func(*scene) error {
	return func(s *scene) error {
		got, _, err := s.ran(kind)
		if err == nil && got != n {
			err = fmt.Errorf("%d runs of kind %s have begun, not %d", got, kind, n)
		}
		return err
	}
}

// late returns a step that fails if a quick run was later than most.
func late(most time.Duration) func(*scene) error {
	return func(s *scene) error {
		n, late, err := s.ran(quick)
		if err == nil && (n == 0 || late > most) {
			err = fmt.Errorf("of %d quick runs one was %v late, more than %v", n, late.Round(time.Millisecond), most)
		}
		return err
	}
}

// join returns a step that starts a process that handles the kinds.
func join(kinds []string) func(*scene) error {
	return func(s *scene) error {
		_, err := s.join(node{Kinds: kinds})
		return err
	}
}

// handleSMS replaces the processes by one that handles sms, or adds it if there can be several.
func handleSMS(s *scene) error {
	if s.on == store {
		if err := s.stopAll(); err != nil {
			return err
		}
	}
	return join(append([]string{sms}, kinds...))(s)
}

// drain returns a step that drains or undrains all nodes.
func drain(command string) func(*scene) error {
	return func(s *scene) error {
		var errs []error
		for _, p := range s.all() {
			errs = append(errs, call(command, p.Name)(s))
		}
		return errors.Join(errs...)
	}
}

// call returns a step that calls the command with the arguments.
func call(args ...string) func(*scene) error {
	return func(s *scene) error {
		if out, status := s.ask(context.Background(), args...); status != 0 {
			return fmt.Errorf("timewheel %q: %s", args, out)
		}
		return nil
	}
}

// restart replaces the process by another.
func restart(s *scene) error {
	for _, p := range s.all() {
		s.kill(p)
	}
	return join(kinds)(s)
}

// deploy replaces the two processes by two others, one at a time.
func deploy(s *scene) error {
	for _, p := range s.all() {
		if err := join(append([]string{sms}, kinds...))(s); err != nil {
			return err
		}
		if err := s.stopBusy(p); err != nil {
			return err
		}
	}
	return nil
}

// stopBusy shuts a process down while half of its workers are busy.
func (s *scene) stopBusy(p *process) error {
	if err := s.order(p, "add", fmt.Sprintf("kind=slow&n=%d", workers/2)); err != nil {
		return err
	}
	time.Sleep(slowTime / 6) // they are running
	return s.stop(p)
}

func holdRequests(s *scene) error {
	s.later(s.proxy.Hold(pgtest.Requests))
	return nil
}

// slowRequests delays each message to the server.
func slowRequests(s *scene) error {
	s.proxy.Disturb(func([]byte) (pgtest.Fault, time.Duration) { return pgtest.None, 150 * time.Millisecond })
	s.later(func() { s.proxy.Disturb(nil) })
	return nil
}

// losePrimary kills the server. Its synchronous standby replaces it, and is promoted at the end.
func losePrimary(s *scene) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	primary := s.server
	standby, err := primary.Standby()
	if err != nil {
		return err
	}
	err = synchronous(ctx, primary)
	if err == nil {
		err = primary.Kill()
	}
	if err != nil {
		return errors.Join(err, standby.Close())
	}
	s.server = standby
	s.proxy.To(standby)
	s.later(func() { _, _ = standby.Promote(), primary.Close() })
	return nil
}

// synchronous makes the server wait for its standby at each commit.
func synchronous(ctx context.Context, primary *pgtest.Server) error {
	if err := alter(ctx, primary, "SET synchronous_standby_names = 'ANY 1 (*)'"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, primary.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for is := false; !is && err == nil; time.Sleep(readEvery) {
		err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'quorum')").Scan(&is)
	}
	return err
}

// alter changes a setting of the server.
func alter(ctx context.Context, server *pgtest.Server, setting string) error {
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{"ALTER SYSTEM " + setting, "SELECT pg_reload_conf()"} { // not in one transaction
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// awaitNobody makes each commit wait for a standby that does not exist.
func awaitNobody(s *scene) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.later(func() { _ = alter(context.Background(), s.server, "RESET synchronous_standby_names") })
	return alter(ctx, s.server, "SET synchronous_standby_names = 'gone'")
}

// forget leaves a transaction open that holds back vacuum.
func forget(s *scene) error {
	return s.leaveOpen("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM " + s.schema + ".task")
}

// lock returns a step that locks a table of the schema in the given mode, as a migration by hand does.
func lock(table, mode string) func(*scene) error {
	return func(s *scene) error {
		return s.leaveOpen(fmt.Sprintf("BEGIN; LOCK TABLE %s.%s IN %s MODE", s.schema, table, mode))
	}
}

// leaveOpen begins a transaction that nothing ends before the incident does.
func (s *scene) leaveOpen(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.server.URL())
	if err != nil {
		return err
	}
	s.later(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(ctx, sql)
	return err
}

// soon waits until the expression has a result, for goneWithin at most.
func (s *scene) soon(expr string) error {
	for deadline := time.Now().Add(goneWithin); time.Now().Before(deadline); time.Sleep(readEvery) {
		if is, err := s.past.holds(context.Background(), expr); is || err != nil {
			return err
		}
	}
	return errors.New("not so after " + goneWithin.String() + ": " + expr)
}
