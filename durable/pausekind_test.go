// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
)

// A paused kind is also paused in the next process, from its first moment on.
func TestPauseKind_outlivesTheProcess(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "a", Kind: "note", Delay: time.Minute})
		k.Must(k.PauseKind(ctx, "note"))
		k.After(time.Hour)
		k.Crash()
		k.Start()
		k.After(time.Hour)
		if p, err := k.Paused(ctx); err != nil || !p.Has("note") || p.Has("fail") || len(k.Runs()) != 0 {
			t.Errorf("%+v, %v", p, err)
		}
		unhandled(k, 0)
		k.Must(k.ResumeKind(ctx, "note"))
		if calls := k.RunsAfter(2 * tick); len(calls) != 1 || calls[0].Due != k.Begin.Add(time.Minute) || calls[0].Attempt != 1 {
			t.Errorf("%v", calls)
		}
	})
}

// A pause says when it began, by whom, and why. A second one changes none of it, and the end of the pause forgets it.
func TestPauseKind_by(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		client, _ := connect(k)
		defer func() { k.Must(client.Shutdown(ctx)) }()
		by := func(want map[string]durable.Pause) {
			t.Helper()
			k.After(10 * time.Second)
			for _, s := range []*durable.Scheduler{k.Nodes[0].Scheduler, k.Nodes[1].Scheduler, client} {
				p, err := s.Paused(ctx)
				for kind, by := range p.By {
					by.At = by.At.Round(time.Second)
					p.By[kind] = by
				}
				if err != nil || fmt.Sprint(p.By) != fmt.Sprint(want) {
					t.Errorf("the pauses are %v, %v, want %v", p.By, err, want)
				}
			}
		}
		now := func() time.Time { return time.Now().Round(time.Second) }
		at := now()
		k.Must(client.PauseKind(ctx, "note", durable.By("ann", "smtp is down")), client.PauseKind(ctx, "fail"))
		note, fail := durable.Pause{At: at, Who: "ann", Why: "smtp is down"}, durable.Pause{At: at}
		by(map[string]durable.Pause{"fail": fail, "note": note})
		all := durable.Pause{At: now(), Who: "bob"}
		k.Must(k.Nodes[0].PauseAll(ctx, durable.By("bob", "")), client.PauseAll(ctx, durable.By("ann", "")), client.PauseKind(ctx, "note", durable.By("bob", "")))
		by(map[string]durable.Pause{"": all, "fail": fail, "note": note})
		k.Must(client.ResumeKind(ctx, "note"), client.ResumeKind(ctx, "note"), client.ResumeKind(ctx, ""))
		by(map[string]durable.Pause{"": all, "fail": fail})
		k.Must(client.ResumeAll(ctx))
		by(map[string]durable.Pause{"fail": fail})
		for _, opt := range []durable.PauseOption{
			durable.By(strings.Repeat("w", 101), ""), durable.By("", strings.Repeat("w", 201)), durable.By("\xff", ""), durable.By("", "\xff"),
		} {
			if err := errors.Join(client.PauseKind(ctx, "note", opt), client.PauseAll(ctx, opt)); !errors.Is(err, durable.ErrInvalidTask) {
				t.Errorf("too much about a pause: %v", err)
			}
		}
		by(map[string]durable.Pause{"fail": fail})
		k.Must(client.PauseKind(ctx, "note", durable.By(strings.Repeat("w", 100), strings.Repeat("y", 200))))
	})
}

// The overdue tasks of a paused kind use nothing of the rate that other kinds need.
func TestPauseKind_overdue_delaysNoOther(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("late", sleeper(0))
		var tasks []durable.Task
		for i := range 100 {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint("late", i), Kind: "late", Delay: sec + time.Duration(i)})
		}
		for i := range 10 {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint("note", i), Kind: "note", Delay: 2 * sec})
		}
		k.Add(tasks...)
		k.Crash()
		k.After(10 * sec)
		k.Handle("late", sleeper(0))
		k.Start()
		k.After(5500 * time.Millisecond)
		before := map[string]int{}
		for _, c := range k.Runs() { // they take turns
			before[c.Kind]++
		}
		k.Must(k.PauseKind(ctx, "late"))
		if calls := k.RunsAfter(12 * sec); before["late"] == 0 || len(calls) != 10-before["note"] || calls[0].Kind != "note" {
			t.Errorf("%v have run before the pause, then %v", before, calls)
		}
		k.Must(k.ResumeKind(ctx, "late"))
		if calls := k.RunsAfter(110 * sec); len(calls) != 100-before["late"] {
			t.Errorf("%v have run before the pause, %d after it", before, len(calls))
		}
	}, durable.WithCatchUp(1))
}

// A paused kind without a handler is neither counted as unhandled nor logged until it is resumed.
func TestPauseKind_withoutAHandler_isNoAlarm(t *testing.T) {
	log := testkit.Quiet()
	var lines []string
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if e.Level <= logrus.WarnLevel {
			lines = append(lines, fmt.Sprint(e.Data["kind"], " ", e.Data["tasks"]))
		}
	}))
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "a", Kind: "note", Delay: sec}, durable.Task{Key: "b", Kind: "note", Delay: hour},
			durable.Task{Key: "c", Kind: "fail", Delay: sec})
		k.Must(k.PauseKind(ctx, "note"))
		k.Crash("note", "fail")
		k.After(10 * sec)
		k.Start()
		k.After(10 * sec)
		unhandled(k, 1)
		k.Must(k.PauseKind(ctx, "fail")) // an alarm that was noticed
		k.After(2 * hour)
		unhandled(k, 0)
		synctest.Wait()
		if got := strings.Join(lines, ", "); got != "fail 1" {
			t.Errorf("these were logged: %s", got)
		}
		k.Must(k.ResumeKind(ctx, "note"))
		k.Must(k.ResumeKind(ctx, "fail"))
		k.After(sec)
		unhandled(k, 3)
		synctest.Wait()
		if got := strings.Join(lines, ", "); got != "fail 1, note 2" {
			t.Errorf("these were logged: %s", got)
		}
	}, durable.WithLogger(log))
}

// Random pauses, handlers, verbs and advances of time. At every moment exactly the due tasks that are handled and not
// paused have run, once each, and the due tasks that are neither paused nor handled are counted. Every second walk has
// no pauses.
func TestPauseKind_randomWalk_agreesWithTheEngine(t *testing.T) {
	testkit.NotForRaces(t)
	walks(t, 60, 6, 6, func(t *testing.T, seed uint64) {
		kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
			rnd := rand.New(rand.NewPCG(seed, 8))
			kinds := []string{"a", "b", "c"}
			for _, kind := range kinds {
				k.Handle(kind, sleeper(0))
			}
			for i := range 200 {
				k.Add(durable.Task{Key: fmt.Sprint(i), Kind: kinds[rnd.IntN(3)], Delay: time.Duration(rnd.Int64N(int64(4 * hour)))})
			}
			k.Crash()
			k.After(time.Duration(rnd.Int64N(int64(2 * hour))))
			k.Start()
			handled := map[string]bool{}
			seen := map[durable.Token]bool{}
			for range 80 {
				key, kind := fmt.Sprint(rnd.IntN(200)), kinds[rnd.IntN(3)]
				var err error
				step := rnd.IntN(12)
				if step >= 4 && step < 10 && seed%2 == 1 {
					step = 10
				}
				switch step {
				case 0, 1:
					err = k.RemoveTask(ctx, key)
				case 2:
					err = k.Reschedule(ctx, key, time.Duration(rnd.Int64N(int64(hour))))
				case 3:
					if !handled[kind] && (seed%2 == 0 || rnd.IntN(4) == 0) {
						handled[kind] = true
						k.Handle(kind, sleeper(0))
					}
				case 4, 5:
					err = k.PauseKind(ctx, kind)
				case 6, 7:
					err = k.ResumeKind(ctx, kind)
				case 8:
					err = k.PauseAll(ctx)
				case 9:
					err = k.ResumeAll(ctx)
				default:
					k.After(time.Duration(rnd.Int64N(int64(20 * time.Minute))))
				}
				if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) {
					t.Fatal(err)
				}
				k.After(sec)
				paused, err := k.Paused(ctx)
				k.Must(err)
				const soon = 13 * sec
				least, most := 0, 0
				for i, err := range k.All(ctx) {
					switch {
					case err != nil:
						t.Fatal(err)
					case i.Attempts != 0:
						t.Errorf("seed %d: %+v", seed, i)
					case i.Next.After(time.Now().Add(soon)) || paused.Has(i.Kind):
					case i.Next.After(time.Now().Add(-2 * tick)):
						if !handled[i.Kind] {
							most++
						}
					case handled[i.Kind]:
						t.Errorf("seed %d: %s was due at %v and has not run", seed, i.Key, i.Next)
					default:
						least, most = least+1, most+1
					}
				}
				k.After(12 * sec) // it is counted every ten seconds
				if n := k.Stats().Unhandled; n < least || n > most {
					t.Errorf("%d tasks are unhandled, want %d to %d", n, least, most)
				}
				for _, c := range k.Runs() {
					if seen[c.Token] || !handled[c.Kind] {
						t.Errorf("seed %d: %s ran twice, or without a handler", seed, c.Token)
					}
					seen[c.Token] = true
				}
			}
		}, durable.WithPoolSize(1+int(seed%3)))
	})
}

// Two pauses in one commit both take effect.
func TestPauseKind_twoInOneCommit_areBothTrue(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s, store := openHeld(k)
		answered := make(chan error, 3)
		call := func(verb func() error) {
			go func() { answered <- verb() }()
			synctest.Wait()
		}
		call(func() error { return s.AddTask(ctx, durable.Task{Key: "a", Kind: "k", Delay: hour}) })
		call(func() error { return s.PauseKind(ctx, "k") })
		call(func() error { return s.PauseKind(ctx, "another") })
		store.turn <- struct{}{}
		if err := errors.Join(<-answered, <-answered, <-answered); err != nil {
			t.Error(err)
		}
		if p, err := s.Paused(ctx); err != nil || !p.Has("k") || !p.Has("another") {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// Settings of a later version cannot be read, so nothing starts.
func TestPauses_ofALaterVersion_startNothing(t *testing.T) {
	later := []byte(`{"version":2,"some":"thing"}`)
	for settings, want := range map[string]error{string(later): durable.ErrVersion, "{": durable.ErrCorrupt} {
		own := memory.New().Engine()
		if err := putSettings(own, []byte(settings)); err != nil {
			t.Fatal(err)
		}
		if _, err := durable.New(ctx, own); !errors.Is(err, want) || errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("New: %v", err)
		}
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	}
	log := testkit.Quiet()
	var logged atomic.Int64
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if e.Level == logrus.ErrorLevel && strings.Contains(e.Message, "pauses") {
			logged.Add(1)
		}
	}))
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "a", Kind: "note", Interval: 100 * time.Millisecond, Times: durable.Forever})
		k.After(time.Second)
		k.Must(putSettings(k.Engine, later))
		if before := k.RunsAfter(time.Second); len(before) == 0 {
			t.Error("nothing has run before")
		}
		k.After(time.Minute)
		k.RanNothing()
		if logged.Load() != 1 {
			t.Errorf("logged %d times", logged.Load())
		}
		if _, err := k.Paused(ctx); !errors.Is(err, durable.ErrVersion) {
			t.Errorf("Paused: %v", err)
		}
		if err := k.PauseAll(ctx); !errors.Is(err, durable.ErrVersion) {
			t.Errorf("PauseAll: %v", err)
		}
		if _, err := durable.New(ctx, k.Engine); !errors.Is(err, durable.ErrVersion) {
			t.Errorf("Join: %v", err)
		}
		if nodes, err := k.Scheduler.Nodes(ctx); err != nil || len(nodes) != 1 || nodes[0].Held != 0 {
			t.Errorf("%+v, %v", nodes, err)
		}
		k.Must(putSettings(k.Engine, []byte(`{"version":1}`)))
		if calls := k.RunsAfter(2 * time.Second); len(calls) == 0 {
			t.Error("nothing runs any more")
		}
	}, durable.WithLogger(log))
}

// A node that cannot read the pauses for two seconds starts nothing until it can.
func TestPauseKind_aNodeThatDoesNotKnow_startsNothing(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		other, _ := connect(k)
		k.Add(durable.Task{Key: "a", Kind: "note", Interval: 100 * time.Millisecond, Times: durable.Forever})
		for _, fault := range []enginetest.Fault{{Fail: true}, {Lose: true}, {Delay: time.Hour}} {
			k.After(5 * time.Second)
			k.Link.SetFaults(func(method string) (f enginetest.Fault) {
				if method == "Walk Notes" {
					f = fault
				}
				return f
			})
			k.Must(other.PauseKind(ctx, "note"))
			k.RunsAfter(2 * time.Second)
			k.After(8 * time.Second)
			k.RanNothing()
			k.Must(other.ResumeKind(ctx, "note"))
			k.Link.SetFaults(nil)
			k.After(time.Second)
			if calls := k.RunsAfter(time.Second); len(calls) == 0 {
				t.Errorf("%+v: nothing has run for a second", fault)
			}
		}
		if i := k.Info("a"); i.Attempts != 0 {
			t.Errorf("%+v", i)
		}
		k.Must(other.Shutdown(ctx))
	})
}

// unstarted fails the test unless no node holds the task, and no start of it is counted.
func unstarted(t *testing.T, e engine.Engine, key string) {
	t.Helper()
	if stored, ok, err := one(e, key); err != nil || !ok || stored.Starts != 0 || stored.Owner != 0 {
		t.Errorf("%+v, %v", stored, err)
	}
}

// attempted fails the test unless these are the runs since its last call, each with its attempt.
func attempted(k *kit.Kit, want ...string) {
	k.T.Helper()
	var got []string
	for _, call := range k.Runs() {
		got = append(got, fmt.Sprint(call.Key, call.Attempt))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		k.T.Errorf("the attempts are %v, want %v", got, want)
	}
}

// A start that the engine confirms while the node does not know the pauses does not begin, and does not count as an
// attempt.
func TestPauseKind_confirmedWhileUnknown_isNoAttempt(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		s := k.Nodes[0]
		other, _ := connect(k)
		s.Link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Fail: method == "Walk Notes"} })
		k.After(3 * time.Second)
		s.Add(durable.Task{Key: "a", Kind: "note", Delay: time.Second})
		k.After(3 * time.Second)
		k.Must(other.PauseKind(ctx, "note"))
		s.Link.SetFaults(nil)
		k.After(3 * time.Second)
		unstarted(t, k.Engine, "a")
		k.Must(other.ResumeKind(ctx, "note"))
		k.After(3 * time.Second)
		k.Must(other.Shutdown(ctx))
		attempted(k, "a1")
	})
}

// A node's copy of the pauses may become too old while the engine confirms a start. The start does not begin, and does
// not count as an attempt.
func TestPauseKind_confirmedAsTheNodeForgets_isNoAttempt(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		s := k.Nodes[0]
		other, _ := connect(k)
		s.Add(durable.Task{Key: "a", Kind: "note", Delay: 2400 * time.Millisecond})
		k.After(600 * time.Millisecond) // it has read the settings, which are valid for two seconds
		s.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Confirm" {
				return enginetest.Fault{Delay: 200 * time.Millisecond}
			}
			return enginetest.Fault{Fail: method == "Walk Notes"}
		})
		k.Must(other.PauseKind(ctx, "note"))
		k.After(4 * time.Second)
		s.Link.SetFaults(nil)
		k.After(time.Second)
		unstarted(t, k.Engine, "a")
		k.Must(other.ResumeKind(ctx, "note"))
		k.After(3 * time.Second)
		k.Must(other.Shutdown(ctx))
		attempted(k, "a1")
	})
}

// A start whose confirmation was lost while its kind was paused does not count as an attempt.
func TestPauseKind_confirmedWithALostAnswer_isNoAttempt(t *testing.T) {
	for _, after := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond} { // it asks again meanwhile
		kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
			s := k.Nodes[0]
			s.Add(durable.Task{Key: "a", Kind: "note", Delay: 500 * time.Millisecond})
			s.Link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Lose: method == "Confirm"} })
			k.After(500*time.Millisecond + after)
			k.Must(s.PauseKind(ctx, "note"))
			s.Link.SetFaults(nil)
			k.After(time.Second)
			unstarted(t, k.Engine, "a")
			k.Must(s.ResumeKind(ctx, "note"))
			k.After(2 * time.Second)
			attempted(k, "a1")
		})
	}
}

// The start of an overdue run may be counted while its kind is being paused. The run does not begin, and does not count as
// an attempt.
func TestPauseKind_countedMeanwhile_isNoAttempt(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		open := func(takes time.Duration) {
			t.Helper()
			k.Open(slowToCommit{k.KV, takes})
			k.Handle("k", sleeper(time.Second))
		}
		open(time.Second)
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second}, durable.Task{Key: "b", Kind: "k", Delay: 2 * time.Second})
		k.KV = k.KV.Clone()
		k.Kill()
		k.After(time.Minute)
		open(time.Second)
		k.Start()
		var first []kit.Call
		for len(first) == 0 {
			first = k.RunsAfter(10 * time.Millisecond)
		}
		k.After(500 * time.Millisecond)
		k.Must(k.PauseKind(ctx, "k")) // meanwhile a ends, and the worker reaches b
		k.RanNothing()
		k.After(time.Minute)
		k.RanNothing()
		k.KV = k.KV.Clone() // a crash
		k.Kill()
		open(0)
		k.Start()
		k.Must(k.ResumeKind(ctx, "k"))
		k.After(time.Minute)
		if again := k.Ran("b"); len(first) != 1 || first[0].Key != "a" || again[0].Attempt != 1 {
			t.Errorf("before the pause %v have run, and then %v", first, again)
		}
	}, durable.WithPoolSize(1))
}

// A lateReader answers with settings that it read a while ago.
type lateReader struct {
	engine.Engine
	late     time.Duration
	restored atomic.Bool // from a copy that was made before there were settings
}

func (l *lateReader) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order != engine.Notes || over.From != pausesNote {
		return l.Engine.Walk(ctx, over)
	}
	return func(yield func(engine.Stored, error) bool) {
		all, err := collected(l.Engine.Walk(ctx, over))
		if l.restored.Load() {
			all = nil
		}
		time.Sleep(l.late)
		yieldAll(all, err, yield)
	}
}

// A late answer does not end a pause that was made in the meantime.
func TestPauseKind_settingsThatWereReadBefore_endNoPause(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		s := k.Join(func(to engine.Engine) engine.Engine {
			return &lateReader{Engine: to, late: 300 * time.Millisecond}
		}).Start()
		s.Add(durable.Task{Key: "a", Kind: "note", Interval: 20 * time.Millisecond, Times: durable.Forever})
		for i := range 30 { // at other times between two readings
			k.After(3*time.Second + time.Duration(i)*17*time.Millisecond)
			k.Must(s.PauseKind(ctx, "note"))
			k.After(100 * time.Millisecond) // a run that was confirmed earlier begins within that time
			if before := len(k.Runs()); before == 0 {
				t.Errorf("nothing ran before pause %d", i)
			}
			k.After(2 * time.Second)
			if after := k.Runs(); len(after) != 0 {
				t.Errorf("pause %d: %d runs, the first at %v", i, len(after), after[0].At)
			}
			k.Must(s.ResumeKind(ctx, "note"))
		}
	})
}

// An engine that was restored from a copy has older settings. They apply.
func TestPauseKind_ofAnEngineThatWasRestored(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var over *lateReader
		s := k.Join(func(to engine.Engine) engine.Engine {
			over = &lateReader{Engine: to}
			return over
		}).Start()
		k.Must(s.PauseKind(ctx, "note"))
		s.Add(durable.Task{Key: "a", Kind: "note", Interval: time.Second, Times: durable.Forever})
		k.After(5 * time.Second)
		over.restored.Store(true)
		if n := len(k.RunsAfter(10 * time.Second)); n < 5 {
			t.Errorf("%d runs after the engine was restored", n)
		}
	})
}

// A node finds out whether a pause whose answer was lost took effect, and does not repeat it.
func TestPauseKind_lostAnswers(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		k.Join(nil)
		is := func(want bool) {
			t.Helper()
			if p, err := k.Paused(ctx); err != nil || p.Has("k") != want {
				t.Errorf("%+v, %v", p, err)
			}
		}
		// The faults are meant for the calls of this test, so they wait until the node has ended its own.
		next := func(method string, f enginetest.Fault) {
			synctest.Wait()
			k.Link.Next(method, f)
		}
		next("Commit Notes", enginetest.Fault{Lose: true})
		if err := k.PauseKind(ctx, "k"); err != nil {
			t.Errorf("the answer was lost: %v", err)
		}
		is(true)
		next("Commit Notes", enginetest.Fault{Fail: true})
		if err := k.ResumeKind(ctx, "k"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("the call failed: %v", err)
		}
		is(true)
		next("Walk Notes", enginetest.Fault{Fail: true})
		if err := k.ResumeKind(ctx, "k"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("the question failed: %v", err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		for _, err := range []error{k.PauseAll(gone), func() error { _, err := k.Paused(gone); return err }()} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller has gone: %v", err)
			}
		}
		k.Link.SetDown(true)
		if err := k.ResumeKind(ctx, "k"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("the engine is away: %v", err)
		}
		k.Link.SetDown(false)
		is(true)
		k.End()
		if err := k.PauseAll(ctx); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("after Shutdown: %v", err)
		}
	})
}

// A start that the engine confirmed while its kind was being paused does not begin, and does not count as an attempt.
// The node gives back its tasks.
func TestPauseKind_confirmedMeanwhile_isNoAttempt(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		s := k.Nodes[0]
		late := enginetest.Fault{Delay: 50 * time.Millisecond}
		s.Link.Next("Confirm", late, late) // ahead, and when it is due
		s.Add(durable.Task{Key: "a", Kind: "note", Delay: 500 * time.Millisecond},
			durable.Task{Key: "b", Kind: "note", Delay: 600 * time.Millisecond})
		k.After(520 * time.Millisecond) // the start of a is being confirmed
		k.Must(s.PauseKind(ctx, "note"))
		k.After(70 * time.Millisecond) // b is not due yet
		if nodes, err := s.Nodes(ctx); err != nil || nodes[0].Held != 0 {
			t.Errorf("%+v, %v", nodes, err)
		}
		unstarted(t, k.Engine, "a")
		k.After(time.Minute)
		k.Must(s.ResumeKind(ctx, "note"))
		k.After(2 * time.Second)
		attempted(k, "a1", "b1")
	})
}

// A node gives back tasks that it claims while their kind is being paused, so that other nodes can have them after the
// resumption.
func TestPauseKind_claimedMeanwhile_isGivenBack(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "due", Kind: "note", Delay: 4900 * time.Millisecond},
			durable.Task{Key: "soon", Kind: "note", Delay: 5250 * time.Millisecond})
		claims := func(fault enginetest.Fault) {
			k.Link.SetFaults(func(method string) (f enginetest.Fault) {
				if method == "Claim" {
					f = fault
				}
				return f
			})
		}
		k.After(3500 * time.Millisecond)
		claims(enginetest.Fault{Fail: true})
		k.After(850 * time.Millisecond)                         // the node claims every tenth of a second, twice
		claims(enginetest.Fault{Delay: 700 * time.Millisecond}) // until after due is due, and before soon is
		k.After(150 * time.Millisecond)
		k.Must(k.PauseKind(ctx, "note"))
		k.Link.SetFaults(nil)
		k.After(2600 * time.Millisecond)
		if k.Stats().Node.Claimed == 0 {
			t.Error("nothing was claimed meanwhile")
		}
		unstarted(t, k.Engine, "due")
		unstarted(t, k.Engine, "soon")
		k.RanNothing()
	}, durable.WithLease(5*sec))
}

// A scanner counts the claims of overdue tasks from the beginning on. Each takes a while, because it passes over paused
// tasks.
type scanner struct {
	engine.Engine
	n atomic.Int64
}

func (e *scanner) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if r.After < 0 {
		e.n.Add(1)
		time.Sleep(500 * time.Millisecond)
	}
	return e.Engine.Claim(ctx, r)
}

// Passing over paused tasks takes at most a tenth of a node's time. After the resumption they are found at once.
func TestPauseKind_ofAMillion_costsABoundedPart(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var scans *atomic.Int64
		k.Join(func(to engine.Engine) engine.Engine {
			over := &scanner{Engine: to}
			scans = &over.n
			return over
		})
		k.Handle("many", ok)
		k.Must(k.PauseKind(ctx, "many"))
		k.Start()
		k.Add(durable.Task{Key: "a", Kind: "many", Delay: time.Second})
		k.After(time.Minute)
		scans.Store(0)
		k.After(time.Minute)
		if n := scans.Load(); n < 5 || n > 13 {
			t.Errorf("in a minute %d scans of half a second", n)
		}
		for n := scans.Load(); scans.Load() == n; {
			k.After(10 * time.Millisecond)
		}
		k.Must(k.ResumeKind(ctx, "many")) // during a scan for the others
		k.After(1500 * time.Millisecond)
		k.Ran("a")
	}, durable.WithLease(5*sec))
}

// Tasks that a node learns of from the engine's records, because the answer to its claim was lost, are overdue like
// claimed tasks.
func TestResumeKind_whoseClaimIsLost_makesNoFlood(t *testing.T) {
	const tasks, rate = 1000, 100
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		var all []durable.Task
		for i := range tasks {
			all = append(all, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Duration(i+1) * time.Millisecond})
		}
		k.Must(k.PauseKind(ctx, "note"))
		k.Add(all...)
		k.After(time.Minute)
		k.Link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Lose: method == "Claim"} })
		k.Must(k.ResumeKind(ctx, "note"))
		k.After(500 * time.Millisecond)
		k.Link.SetFaults(nil)
		k.After(2 * time.Second)
		first := len(k.Runs())
		if first < rate || first > 3*rate {
			t.Errorf("%d overdue tasks have run in 2.5 s", first)
		}
		if all := first + len(k.RunsAfter(20*time.Second)); all != tasks {
			t.Errorf("%d have run in all", all)
		}
	}, durable.WithCatchUp(rate), durable.WithLease(5*sec))
}

// A name that no kind can have is an invalid argument.
func TestPauseKind_ofAWrongName_isInvalid(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for _, kind := range []string{"", strings.Repeat("k", durable.MaxKind+1), "k\x1f2"} {
			if err := k.PauseKind(ctx, kind); !errors.Is(err, durable.ErrInvalidTask) {
				t.Errorf("PauseKind(%q): %v", kind, err)
			}
			if err := k.Scheduler.Handle(kind, ok); !errors.Is(err, durable.ErrInvalidTask) {
				t.Errorf("Handle(%q): %v", kind, err)
			}
		}
	})
}

// putSettings puts settings in an engine, whatever it has.
func putSettings(e engine.Engine, settings []byte) error {
	w := noteAt(pausesNote, settings, 0)
	w.If = engine.Always
	_, err := e.Commit(ctx, 0, []engine.Batch{{w}})
	return err
}
