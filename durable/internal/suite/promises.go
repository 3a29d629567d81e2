// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// promises lists the promises that a durable scheduler makes in addition to the contract of all schedulers.
var promises = []struct {
	name string
	run  func(t *testing.T, k *kit.Kit)
}{
	{"Park parks at once", parks},
	{"a run of a repeating task is given up", givesUp},
	{"a run that is given up late", givesUpLate},
	{"a kind parks repeating tasks", parksRepeating},
	{"a failure adds a task", addsOnFailure},
	{"a failure parks its task although no task is added", addsNothingOnFailure},
	{"parked and given up are said only if that was stored", saysWhatWasStored},
	{"RetryAfter sets the wait", retriesAfter},
	{"Snooze postpones a run", snoozes},
	{"Snooze postpones a run of a repeating task", snoozesRepeating},
	{"Snooze ends a burst of SetTask", snoozeEndsBurst},
	{"Snooze after a timeout", snoozesLate},
	{"Snooze into a pause", snoozesIntoAPause},
	{"a run that cannot start in time is dropped", expires},
	{"a repeating task ends", ends},
	{"a task keeps its meta", keepsMeta},
	{"a task with Once is added once", addsOnce},
	{"another name is another task", addsOnceByName},
	{"a search finds no names", findsNoNames},
	{"tasks with Once are added together", addsOnceTogether},
	{"a name is remembered as long as its task exists", addsOnceLong},
	{"a name is forgotten", forgets},
	{"a wrong name is refused", wrongOnce},
	{"Put and AddNew return the task", puts},
	{"the history of runs", historyOfOutcomes},
	{"a node leaves its last hour", leavesItsLastHour},
	{"a declared set", declaresSet},
	{"two versions of a declared set at the same time", declaresRolling},
	{"a declared set whose tasks are running", declaresWhileRunning},
	{"a declared task that has ended", declaresEnded},
	{"a wrong set is refused", wrongSets},
	{"Complete leaves a note", notes},
	{"an attempt that takes too long has failed", timesOut},
	{"a late attempt ends before the next begins", endsLate},
	{"a late handler decides", decidesLate},
	{"a run whose task is removed counts for its kind", countsRemoved},
	{"JSON payloads", jsonPayloads},
	{"a payload that cannot be JSON changes nothing", noEncoding},
	{"a burst of JSON payloads is one run", setsJSON},
	{"a payload that is no JSON parks at once", noJSON},
	{"an empty payload of a typed kind is the zero value", emptyPayloads},
	{"a payload that does not decode stays secret", secretPayloads},
	{"a payload is read back with its type", readsPayloads},
	{"the options of a task", taskOptions},
	{"an old payload is upgraded", upgrades},
	{"an upgrade that fails parks at once", failsToUpgrade},
	{"a payload that is newer than its handler waits", newerPayload},
	{"a calendar says when runs are due", byCalendar},
	{"a calendar is a crontab by the rules of cron(8)", asInCrontabs},
	{"a calendar alone is forever", calendarWithoutTimes},
	{"a task that does not say when is due at once", dueAtOnce},
	{"an error after Shutdown names the verb", stoppedVerbs},
	{"a moved run returns to the calendar", movedOffCalendar},
	{"a wrong calendar is refused", wrongCalendar},
	{"jitter shifts the grid of an interval", jitterOfInterval},
	{"jitter shifts a calendar", jitterOfCalendar},
	{"SetTask puts a run off, and not forever", debounces},
	{"a burst of SetTask ends with the start of the run", burstEnds},
	{"one run in each delay", throttles},
	{"a paused task does not run", pauses},
	{"a resumed task does not make up for what it missed", resumesRepeating},
	{"a paused task is moved, replaced and removed", pausedVerbs},
	{"pausing a run in progress", pausesRunning},
	{"Bulk pauses, resumes, and runs what is not paused", bulkPauses},
	{"many at once by the beginning of their keys", manyByPrefix},
	{"Bulk spreads tasks over a time", spreadsTasks},
	{"Bulk cancels runs", cancelsMany},
	{"a running task says since when", saysSinceWhen},
	{"removing a task and waiting for its run", removesAndWaits},
	{"removing a task and waiting for runs from before", removesAndWaitsForEarlierRuns},
	{"a shutdown ends the wait for a run", shutdownEndsWait},
	{"cancelling a run", cancels},
	{"a run that cancels itself", cancelsItself},
	{"the error of a shutdown that is cut short", shutdownSays},
	{"cancelling no run between two attempts", cancelsNoRetry},
	{"a paused kind does not run", pausesKind},
	{"all kinds are paused", pausesAll},
	{"a paused kind starts nothing", pausedKindStartsNothing},
	{"pausing a kind with runs in progress", pausesKindRunning},
	{"a resumed kind does not make up for what it missed", resumesRepeatingKind},
	{"pausing a kind without a handler", pausesKindWithoutHandler},
	{"pauses at the same time", pausesAtOnce},
	{"more pauses than fit", pausesTooMany},
	{"a resumed kind makes no flood", resumesKindSlowly},
	{"paused tasks are found at once", findsPaused},
	{"groups of a kind that is flooded", groupsOfAFlood},
	{"a limit of concurrency", limitsConcurrency},
	{"a limit of the rate", limitsRate},
	{"a limit on all nodes", limitsAll},
	{"what waits for a limit is removed, moved, paused and replaced", limitedVerbs},
	{"a run makes room however it ends", limitedRunsEnd},
	{"more tasks than fit a limit in memory", limitsMany},
	{"shutdown while tasks wait for a limit", limitedShutdown},
	{"pausing a kind with a limit", pausesLimitedKind},
	{"pausing a kind with a rate", pausesKindWithRate},
	{"many at once of a kind with a limit", changesManyOfLimitedKind},
	{"a limit while missed runs are made up for", limitsMissedRuns},
	{"pausing a burst of SetTask", pausesBurst},
	{"a task with every option", everyOption},
}

// with lists additional scheduler options for some promises.
var with = map[string]durable.Option{"a resumed kind makes no flood": durable.WithCatchUp(catchUp)}

// testPromises tests each promise in a bubble of virtual time, on the schedulers that open returns.
func testPromises(t *testing.T, open func(t *testing.T, opts ...durable.Option) []*durable.Scheduler) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				opts := []durable.Option{durable.WithObserver(k.Observe)}
				if o := with[p.name]; o != nil {
					opts = append(opts, o)
				}
				for _, s := range open(t, opts...) {
					k.Use(s, nil).Start()
				}
				p.run(t, k)
			})
		})
	}
}

// A task without a due time is due at once, unless Jitter delays it.
func dueAtOnce(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	k.After(time.Second)
	now := time.Now()
	k.On().Add(durable.Task{Key: "a", Kind: "k"})
	k.Must(k.On().SetTask(ctx, durable.Task{Key: "b", Kind: "k", Payload: []byte("b")}))
	calls := k.RunsAfter(2 * time.Second)
	if len(calls) != 2 {
		t.Fatalf("the runs are %v", calls)
	}
	for _, c := range calls {
		if c.Due.Before(now.Add(-time.Second/2)) || c.Due.After(now.Add(time.Second/2)) || c.At > now.Sub(k.Begin)+time.Second {
			t.Errorf("%s was due at %v and ran at %v; it was added at %v", c.Key, c.Due, k.Begin.Add(c.At), now)
		}
	}
	k.Gone("a")
	k.Gone("b")
	k.On().Add(durable.Task{Key: "c", Kind: "k", Jitter: time.Hour})
	if next := k.Info("c").Next; next.Before(now.Add(time.Minute)) || next.After(now.Add(time.Hour+time.Minute)) {
		t.Errorf("with Jitter it is due at %v; it was added at %v", next, now)
	}
}

// After Shutdown, a verb's error names the verb.
func stoppedVerbs(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	for _, s := range k.Nodes {
		k.Must(s.Shutdown(ctx))
	}
	s := k.On()
	_, _, get := s.Get(ctx, "k")
	_, cancel := s.Cancel(ctx, "k")
	for want, err := range map[string]error{
		`AddTask of "k"`:    s.AddTask(ctx, durable.Task{Key: "k", Kind: "k"}),
		`SetTask of "k"`:    s.SetTask(ctx, durable.Task{Key: "k", Kind: "k"}),
		`RemoveTask of "k"`: s.RemoveTask(ctx, "k"),
		`Reschedule of "k"`: s.Reschedule(ctx, "k", 0),
		`Pause of "k"`:      s.Pause(ctx, "k"),
		`Resume of "k"`:     s.Resume(ctx, "k"),
		`PauseKind of "k"`:  s.PauseKind(ctx, "k"),
		`ResumeKind of "k"`: s.ResumeKind(ctx, "k"),
		`PauseAll`:          s.PauseAll(ctx),
		`ResumeAll`:         s.ResumeAll(ctx),
		`Get of "k"`:        get,
		`Cancel of "k"`:     cancel,
	} {
		if !errors.Is(err, durable.ErrStopped) || !errors.Is(err, timewheel.ErrStopped) || err.Error() != "durable: stopped: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
