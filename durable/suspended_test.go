// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A machine is one that can be suspended. Nothing on it happens meanwhile, and its monotonic clock stands still. So for
// the processes on it, a suspension is an instant in which the engine's clock advances, and the wall clock too, unless
// it is that of a virtual machine that was paused.
type machine struct {
	on     *kit.Kit
	paused bool         // the wall clock stands still too
	wall   atomic.Int64 // how far the wall clock is ahead of the monotonic one
}

func (m *machine) suspend(d time.Duration) {
	m.on.KV.Step(d)
	if !m.paused {
		m.wall.Add(int64(d))
	}
}

func (m *machine) clocks() (mono, wall int64) {
	mono = time.Now().UnixNano()
	return mono, mono + m.wall.Load()
}

func (m *machine) now() int64 {
	_, now, err := m.on.Engine.Renew(ctx, 0, nil)
	if err != nil {
		panic(err)
	}
	return now
}

// onMachine runs the test with a node on a machine, and another node that runs nothing. Of the machine, either the wall
// clock shows that it was suspended, or only the engine.
func onMachine(t *testing.T, test func(t *testing.T, k *kit.Kit, m *machine), opts ...durable.Option) {
	for name, paused := range map[string]bool{"laptop": false, "virtual machine": true} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				k.Share()
				m := &machine{on: k, paused: paused}
				k.Join(nil, durable.WithClocks(m.clocks)).Start()
				test(t, k, m)
			}, opts...)
		})
	}
}

// A delay counts from the call, however long the machine was suspended just before the call or while it is in progress.
func TestSuspended_delaysAreWhole(t *testing.T) {
	const delay, slept = 30 * time.Minute, time.Hour
	task := durable.Task{Key: "k", Kind: "note", Delay: delay}
	repeats := durable.Task{Key: "k", Kind: "note", Interval: delay, Times: durable.Forever}
	set := durable.TaskSet{Prefix: "k", Tasks: []durable.Task{{Key: "k", Kind: "note", Interval: delay}}}
	for name, verb := range map[string]func(s *durable.Scheduler) error{
		"AddTask":              func(s *durable.Scheduler) error { return s.AddTask(ctx, task) },
		"AddTask of several":   func(s *durable.Scheduler) error { return s.AddTask(ctx, task, durable.Task{Key: "l", Kind: "note"}) },
		"AddTask that repeats": func(s *durable.Scheduler) error { return s.AddTask(ctx, repeats) },
		"SetTask":              func(s *durable.Scheduler) error { return s.SetTask(ctx, task) },
		"SetTask of a burst": func(s *durable.Scheduler) error {
			return s.SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: delay, MaxDelay: delay})
		},
		"Reschedule": func(s *durable.Scheduler) error {
			return errors.Join(s.Reschedule(ctx, "far", delay), s.RemoveTask(ctx, "k"), s.Reschedule(ctx, "k", delay))
		},
		"ReschedulePrefix": func(s *durable.Scheduler) error { _, err := s.ReschedulePrefix(ctx, "far", delay); return err },
		"Schedule":         func(s *durable.Scheduler) error { _, err := s.Schedule(ctx, set); return err },
	} {
		for when, method := range map[string]string{"before the call": "", "before the commit": "Commit"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
					k.Add(durable.Task{Key: "far", Kind: "note", Delay: 100 * time.Hour})
					k.After(time.Second + time.Duration(rand.Int64N(int64(time.Second))))
					if method == "" {
						m.suspend(slept)
					} else { // it is sent before, and arrives after
						k.Link.Next(method, enginetest.Fault{Delay: time.Millisecond})
						time.AfterFunc(time.Millisecond/2, func() { m.suspend(slept) })
					}
					began := m.now()
					err := verb(k.Scheduler)
					if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) {
						t.Fatal(err)
					}
					found, err := k.Engine.Get(ctx, "k", "far")
					k.Must(err)
					for _, s := range found {
						if s.Due < began+int64(delay) || s.Due > m.now()+100*int64(time.Hour) {
							t.Errorf("%q is due %v after the call", s.Key, time.Duration(s.Due-began))
						}
					}
				})
			})
		}
	}
}

// The machine is suspended during one of the calls of a Schedule, before or after the engine has read the notes.
func TestSuspended_duringSchedule_delaysAreWhole(t *testing.T) {
	const delay, tasks = 30 * time.Minute, 600 // several commits
	set := durable.TaskSet{Prefix: "k"}
	for i := range tasks {
		set.Tasks = append(set.Tasks, durable.Task{Key: fmt.Sprint("k", i), Kind: "note", Interval: delay})
	}
	for call := range 8 {
		for _, at := range []time.Duration{time.Millisecond / 2, 3 * time.Millisecond / 2} {
			onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
				k.After(time.Second)
				calls := 0
				var slept atomic.Int64
				k.Link.SetFaults(func(method string) enginetest.Fault {
					if method != "Walk Notes" && method != "Commit Notes" && method != "Commit" {
						return enginetest.Fault{}
					}
					if calls++; calls == call+1 {
						time.AfterFunc(at, func() { m.suspend(time.Hour); slept.Store(m.now()) })
					}
					return enginetest.Fault{Delay: time.Millisecond}
				})
				began := m.now()
				_, err := k.Schedule(ctx, set)
				k.Must(err)
				late := 0
				for s, err := range k.Engine.Walk(ctx, engine.Range{Order: engine.ByKey}) {
					k.Must(err)
					if s.Due < began+int64(delay) {
						t.Fatalf("%q is due %v after the call", s.Key, time.Duration(s.Due-began))
					}
					if s.Due >= slept.Load()+int64(delay) {
						late++
					}
				}
				if late == 0 || late > tasks {
					t.Errorf("%d of %d tasks are due after the delay", late, tasks)
				}
			})
		}
	}
}

// The wait after a run counts from its end, however long the machine was suspended during the run.
func TestSuspended_waitsAreWhole(t *testing.T) {
	const wait, slept = 30 * time.Minute, time.Hour
	for name, end := range map[string]error{
		"Snooze": durable.Snooze(wait), "RetryAfter": durable.RetryAfter(wait, kit.ErrFail), "an error": kit.ErrFail, "the next run": nil,
	} {
		t.Run(name, func(t *testing.T) {
			onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
				k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(time.Second); return end },
					durable.WithRetry(10, 2*wait, 4*wait)) // each wait is shortened by up to half
				k.Add(durable.Task{Key: "k", Kind: "k", Delay: time.Second, Interval: 2 * wait, Times: durable.Forever})
				k.After(1500 * time.Millisecond)
				m.suspend(slept)
				ended := m.now() + int64(500*time.Millisecond)
				k.After(time.Second)
				i := k.Info("k")
				if due := i.Next.UnixNano(); due < ended+int64(wait) && end != nil || due < ended {
					t.Errorf("it is due %v after its end", time.Duration(due-ended))
				}
				if i.Missed > 1 {
					t.Errorf("missed %d periods", i.Missed)
				}
			})
		})
	}
}

// A run that has expired or become too old while the machine was suspended does not start, and one that has not starts.
func TestSuspended_expires(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		k.Handle("young", ok, durable.WithMissedAge(15*time.Minute))
		k.Handle("old", ok, durable.WithMissedAge(2*time.Hour))
		k.Add(durable.Task{Key: "code", Kind: "note", Delay: time.Second, Expires: time.Minute},
			durable.Task{Key: "letter", Kind: "note", Delay: time.Second, Expires: 2 * time.Hour},
			durable.Task{Key: "poll", Kind: "young", Delay: time.Second, Interval: 40 * time.Minute, Times: durable.Forever},
			durable.Task{Key: "report", Kind: "old", Delay: time.Second, Interval: 40 * time.Minute, Times: durable.Forever})
		k.After(500 * time.Millisecond)
		m.suspend(time.Hour)
		k.After(3 * time.Second)
		k.Ran("letter", "report")
		if i := k.Info("poll"); i.Missed != 2 || i.Next.Sub(k.Begin) != 80*time.Minute+time.Second {
			t.Errorf("%v", i)
		}
	})
}

// Nor does one start that has become too old while its start was confirmed.
func TestSuspended_tooOld_afterALateConfirmation(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("young", ok, durable.WithMissedAge(time.Second))
		k.Add(durable.Task{Key: "k", Kind: "young", Delay: time.Second, Interval: 10 * time.Second, Times: durable.Forever})
		late := enginetest.Fault{Delay: 1500 * time.Millisecond}
		k.Link.Next("Confirm", late, late) // ahead, and when it is due
		k.After(5 * time.Second)
		k.RanNothing()
		if i := k.Info("k"); i.Missed != 1 {
			t.Errorf("%v", i)
		}
	}, durable.WithLease(8*time.Second))
}

// Nothing that was paused or drained, on another node and just before the machine was suspended, starts on it
// afterwards. Nor does it hold any such task.
func TestSuspended_D11_D12(t *testing.T) {
	for name, verb := range map[string]func(other *durable.Scheduler, node string) error{
		"PauseKind": func(s *durable.Scheduler, _ string) error { return s.PauseKind(ctx, "note") },
		"PauseAll":  func(s *durable.Scheduler, _ string) error { return s.PauseAll(ctx) },
		"Drain":     func(s *durable.Scheduler, node string) error { return s.Drain(ctx, node) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, slept := range []time.Duration{1900 * time.Millisecond, 3 * time.Second, time.Hour} {
				for lease, reaped := range map[time.Duration]bool{time.Second: true, kit.Lease: false, time.Minute: false} {
					onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
						other, _ := connect(k)
						defer func() { k.Must(other.Shutdown(ctx)) }()
						for i := range 100 {
							k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Second + time.Duration(i)*15*time.Millisecond})
						}
						k.After(time.Second + time.Duration(rand.Int64N(int64(400*time.Millisecond))))
						k.Runs()
						k.Must(verb(other, k.Name))
						m.suspend(slept)
						began := time.Since(k.Begin)
						if reaped {
							_, err := k.Engine.Reap(ctx)
							k.Must(err)
						}
						// A node may start runs for two seconds after the verb, by the engine's clock.
						if more := 2*time.Second - slept; more > 0 {
							k.RunsAfter(more)
						}
						for _, c := range k.RunsAfter(5 * time.Second) {
							// No clock shows that a virtual machine was suspended, so it enters runs that were confirmed ahead.
							if !m.paused || c.At > began+aheadSlot+aheadLead {
								t.Errorf("%v runs", c)
							}
						}
						held, err := collected(k.Engine.Walk(ctx, engine.Range{After: engine.Position{Due: engine.None}, Until: engine.ParkedDue}))
						k.Must(err)
						for _, s := range held {
							if s.Owner != 0 {
								t.Errorf("%q is held", s.Key)
							}
						}
					}, durable.WithLease(lease))
				}
			}
		})
	}
}

// Suspensions that are too short to count do not add up: two seconds are two seconds by the engine's clock.
func TestSuspended_shortly_D11(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		other, _ := connect(k)
		defer func() { k.Must(other.Shutdown(ctx)) }()
		for i := range 300 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Second + time.Duration(i)*10*time.Millisecond})
		}
		k.After(time.Second)
		k.Link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Fail: method == "Walk Notes"} })
		k.Must(other.PauseKind(ctx, "note"))
		until := m.now() + int64(2*time.Second)
		for m.now() < until {
			k.After(150 * time.Millisecond)
			m.suspend(90 * time.Millisecond)
		}
		k.Runs()
		k.After(2 * time.Second)
		k.RanNothing()
	})
}

// If the engine's clock is set back, the node's own clock counts the two seconds.
func TestSuspended_settingsAge_whileTheEnginesClockIsSetBack_D11(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		other, _ := connect(k)
		defer func() { k.Must(other.Shutdown(ctx)) }()
		k.After(time.Second)
		k.Link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Fail: method == "Walk Notes"} })
		m.on.KV.Step(-time.Hour)
		k.After(200 * time.Millisecond) // an answer shows it
		for i := range 300 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Duration(i) * 10 * time.Millisecond})
		}
		k.Must(other.PauseKind(ctx, "note"))
		if n := len(k.RunsAfter(2 * time.Second)); n == 0 {
			t.Error("no run has started in the first two seconds")
		}
		k.After(2 * time.Second)
		k.RanNothing()
	})
}

// After a suspension, the node runs due tasks and continues as before. Its runs that are in progress end as they would
// have, if no other node has taken them over.
func TestSuspended_runsWhatIsDue(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		k.Handle("long", sleeper(2*time.Second))
		k.Add(durable.Task{Key: "long", Kind: "long"})
		k.After(time.Second)
		k.Ran("long")
		k.Add(durable.Task{Key: "soon", Kind: "note", Delay: 500 * time.Millisecond}, durable.Task{Key: "later", Kind: "note", Delay: 50 * time.Minute},
			durable.Task{Key: "far", Kind: "note", Delay: 61 * time.Minute})
		m.suspend(time.Hour)
		k.After(2 * time.Second)
		k.Ran("soon", "later")
		k.Gone("long")
		k.After(time.Minute)
		k.Ran("far")
	})
}

// A node that joins again, because it was reaped while its machine was suspended, reads the settings before it claims.
func TestSuspended_joinsAgain_readsTheSettingsFirst(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		k.After(time.Second)
		const reading = 60 * time.Millisecond
		var joined, claimed time.Time
		k.Link.SetFaults(func(method string) enginetest.Fault {
			switch method {
			case "Join":
				joined, claimed = time.Now(), time.Time{}
			case "Claim":
				if claimed.IsZero() {
					claimed = time.Now()
				}
			case "Walk Notes":
				return enginetest.Fault{Delay: reading}
			}
			return enginetest.Fault{}
		})
		for i := range 40 { // after the shorter suspension, the settings of before would be young enough
			m.suspend([]time.Duration{1100 * time.Millisecond, time.Hour}[i%2])
			_, err := k.Engine.Reap(ctx)
			k.Must(err)
			k.After(time.Second + time.Duration(rand.Int64N(int64(500*time.Millisecond))))
			if took := claimed.Sub(joined); took < reading {
				t.Errorf("it claims %v after it has joined", took)
			}
		}
	}, durable.WithLease(time.Second))
}

// A wall clock that is set ahead, which looks like a suspension, makes no delay longer.
func TestSuspended_wallClockSet_delaysAreNotLonger(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		for i, set := range []time.Duration{time.Hour, -time.Hour, time.Hour} {
			k.After(time.Second)
			m.wall.Add(int64(set))
			key := fmt.Sprint(i)
			k.Add(durable.Task{Key: key, Kind: "note", Delay: time.Minute})
			if late := time.Duration(k.Info(key).Next.UnixNano() - m.now() - int64(time.Minute)); late < 0 || late > time.Second {
				t.Errorf("%v too late", late)
			}
		}
		k.After(time.Minute + time.Second)
		k.Ran("0", "1", "2")
	})
}

// Nor does it make the wait after a run longer.
func TestSuspended_wallClockSet_waitsAreNotLonger(t *testing.T) {
	const wait = 30 * time.Minute
	for name, end := range map[string]error{"Snooze": durable.Snooze(wait), "RetryAfter": durable.RetryAfter(wait, kit.ErrFail), "the next run": nil} {
		t.Run(name, func(t *testing.T) {
			onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
				k.Handle("k", func(context.Context, durable.Run) error { m.wall.Add(int64(2 * time.Hour)); return end })
				k.Add(durable.Task{Key: "k", Kind: "k", Delay: time.Second, Interval: wait, Times: durable.Forever})
				k.After(2 * time.Second)
				if d := k.Info("k").Next.Sub(k.Begin); d > wait+2*time.Second {
					t.Errorf("it is due after %v", d)
				}
			})
		})
	}
}

// A wall clock that is set ahead at any moment during a start makes no run expire that has not.
func TestSuspended_wallClockSet_noRunExpires(t *testing.T) {
	for read := range 20 {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			k.Share()
			m := &machine{on: k}
			var left atomic.Int64
			k.Join(nil, durable.WithClocks(func() (mono, wall int64) {
				if left.Load() > 0 && left.Add(-1) == 0 {
					m.wall.Add(int64(time.Hour))
				}
				return m.clocks()
			})).Start()
			k.Link.SetFaults(func(method string) enginetest.Fault {
				if method == "Confirm" {
					left.CompareAndSwap(0, int64(read+1))
				}
				return enginetest.Fault{}
			})
			k.Add(durable.Task{Key: "k", Kind: "note", Delay: 1030 * time.Millisecond, Expires: time.Minute}) // nothing else is then done
			k.After(1050 * time.Millisecond)
			k.Link.SetFaults(nil)
			k.After(10 * time.Second)
			if len(k.Runs()) == 0 {
				t.Errorf("the clock is set at reading %d, and the task has not run: %+v", read, k.Stats())
			}
		})
	}
}

// A suspension while the settings are read makes the next reads wait no longer for an answer.
func TestSuspended_whileTheSettingsAreRead(t *testing.T) {
	onMachine(t, func(t *testing.T, k *kit.Kit, m *machine) {
		k.After(time.Second)
		reads := 0
		var hung, again time.Time
		k.Link.SetFaults(func(method string) enginetest.Fault {
			if method != "Walk Notes" {
				return enginetest.Fault{}
			}
			switch reads++; reads {
			case 1:
				time.AfterFunc(time.Millisecond, func() { m.suspend(time.Hour) })
				return enginetest.Fault{Delay: 2 * time.Millisecond}
			case 5:
				hung = time.Now()
				return enginetest.Fault{Delay: time.Minute}
			case 6:
				again = time.Now()
			}
			return enginetest.Fault{}
		})
		k.After(10 * time.Second)
		if took := again.Sub(hung); took <= 0 || took > 1100*time.Millisecond {
			t.Errorf("a read that hangs is repeated after %v", took)
		}
	})
}
