// SPDX-License-Identifier: MIT

package memengine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/memengine"
)

func TestEngine_keepsTheContract(t *testing.T) {
	for name, link := range map[string]func(engine.Engine) engine.Engine{
		"engine": func(e engine.Engine) engine.Engine { return e },
		"link":   func(e engine.Engine) engine.Engine { return memengine.NewLink(e) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Test(t, func(*testing.T) enginetest.Subject {
				e := memengine.New()
				return enginetest.Subject{
					Engine:  link(e),
					Begin:   func(*testing.T) enginetest.Tx { return e.Begin() },
					Restart: func(*testing.T) { e.Restart() },
				}
			})
		})
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A call whose context ends while it is on its way takes effect when it arrives, with the bytes that it had.
func TestLink_delay_outlivesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		link := memengine.NewLink(e)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		link.Next("Commit", memengine.Fault{Delay: time.Hour})
		w := add("ada", 1)
		began := time.Now()
		if _, err := link.Commit(ctx, 0, []engine.Batch{{w}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call returns %v", err)
		}
		if d := time.Since(began); d != time.Minute {
			t.Errorf("the call returns after %v", d)
		}
		clear(w.Data)
		if n := count(t.Context(), e); n != 0 {
			t.Errorf("there are %d tasks before the call has arrived", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s, err := e.Get(t.Context(), "ada"); err != nil || len(s) != 1 || string(s[0].Data) != "data" {
			t.Errorf("the task is %v, %v", s, err)
		}
	})
}

func TestLink_faults_areThoseOfTheirMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, link := t.Context(), memengine.NewLink(memengine.New())
		var asked []string
		link.SetFaults(func(method string) memengine.Fault {
			asked = append(asked, method)
			return memengine.Fault{Delay: time.Second, Fail: method == "Get"}
		})
		link.Next("Count", memengine.Fault{}, memengine.Fault{Lose: true})
		began := time.Now()
		calls := []func() error{
			func() error { _, err := link.Count(ctx); return err },
			func() error { _, err := link.Count(ctx); return err },
			func() error { _, err := link.Count(ctx); return err },
			func() error { _, err := link.Get(ctx, "k"); return err },
		}
		for i, fails := range []bool{false, true, false, true} {
			if err := calls[i](); errors.Is(err, memengine.ErrFault) != fails {
				t.Errorf("call %d returns %v", i, err)
			}
		}
		if !slices.Equal(asked, []string{"Count", "Get"}) || time.Since(began) != 2*time.Second {
			t.Errorf("faults were asked for %q, and the calls took %v", asked, time.Since(began))
		}
	})
}

// Calls of one method that serve different purposes have different names.
func TestLink_names(t *testing.T) {
	ctx, link := t.Context(), memengine.NewLink(memengine.New())
	var asked []string
	link.SetFaults(func(method string) memengine.Fault {
		asked = append(asked, method)
		return memengine.Fault{}
	})
	id, _, err := link.Join(ctx, "a", time.Hour)
	ok(t, err)
	note := engine.Write{Record: engine.Record{Key: "n", Data: []byte("note")}, Note: true, If: engine.IfAbsent}
	for _, w := range []engine.Write{add("ada", 1), note} {
		_, err = link.Commit(ctx, 0, []engine.Batch{{w}})
		ok(t, err)
	}
	for _, fair := range []bool{false, true} {
		_, err = link.Claim(ctx, engine.ClaimRequest{By: id, Fair: fair})
		ok(t, err)
	}
	for _, by := range []engine.MemberID{id, 0} {
		_, _, err = link.Renew(ctx, by, nil)
		ok(t, err)
	}
	for _, order := range []engine.Order{engine.ByDue, engine.ByKey, engine.Failing, engine.Held, engine.Notes} {
		for _, err := range link.Walk(ctx, engine.Range{Order: order, Until: 1, By: id}) {
			ok(t, err)
		}
	}
	want := []string{"Join", "Commit", "Commit Notes", "Claim", "Claim Fair", "Renew", "Renew 0", "Walk ByDue", "Walk ByKey",
		"Walk Failing", "Walk Held", "Walk Notes"}
	if !slices.Equal(asked, want) {
		t.Errorf("faults were asked for %q, want %q", asked, want)
	}
}

// The times of the engine follow the clock of the bubble, and its own offset.
func TestEngine_time_isThatOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := t.Context(), memengine.New()
		began := time.Now()
		id, now, err := e.Join(ctx, "a", time.Hour)
		ok(t, err)
		if now != began.UnixNano() {
			t.Errorf("the engine's time is %d, want %d", now, began.UnixNano())
		}
		time.Sleep(time.Hour - 1)
		if names, err := e.Reap(ctx); err != nil || len(names) > 0 {
			t.Errorf("reaped are %q, %v, before the end of the lease", names, err)
		}
		e.Step(-time.Minute)
		time.Sleep(time.Minute)
		if names, err := e.Reap(ctx); err != nil || len(names) > 0 {
			t.Errorf("reaped are %q, %v, although the clock was set back", names, err)
		}
		time.Sleep(time.Nanosecond)
		if names, err := e.Reap(ctx); err != nil || !slices.Equal(names, []string{"a"}) {
			t.Errorf("reaped are %q, %v, at the end of the lease", names, err)
		}
		if _, _, err := e.Renew(ctx, id, nil); !errors.Is(err, engine.ErrMemberGone) {
			t.Errorf("a reaped member renews its lease: %v", err)
		}
	})
}

// The clock was a year ahead when a lease was renewed. The lease expires one lease after the next Reap.
func TestReap_afterAClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := t.Context(), memengine.New()
		e.Step(365 * 24 * time.Hour)
		_, _, err := e.Join(ctx, "a", time.Hour)
		ok(t, err)
		e.Step(-365 * 24 * time.Hour)
		for _, want := range []string{"[]", "[a]"} {
			if names, err := e.Reap(ctx); err != nil || fmt.Sprint(names) != want {
				t.Errorf("reaped are %q, %v, want %s", names, err, want)
			}
			time.Sleep(time.Hour + 1)
		}
	})
}

// A crash of the engine rolls transactions back, loses counts of starts, and keeps the rest.
func TestRestart_losesWhatACrashLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := t.Context(), memengine.New()
		id, _, err := e.Join(ctx, "a", time.Minute)
		ok(t, err)
		w := add("ada", 1)
		w.Hold = true
		r, err := e.Commit(ctx, id, []engine.Batch{{w}})
		ok(t, err)
		claim := engine.Claim{Key: "ada", Revision: r[0].Written[0].Revision}
		_, _, err = e.Confirm(ctx, id, []engine.Claim{claim})
		ok(t, err)
		tx := e.Begin()
		ok(t, tx.Lock(ctx, "ada"))
		e.Restart()
		if tx.Commit() == nil {
			t.Error("a transaction from before the restart is committed")
		}
		if _, err := tx.Write(ctx, add("bob", 1)); err == nil {
			t.Error("a transaction from before the restart writes")
		}
		if s, err := e.Get(ctx, "ada"); err != nil || len(s) != 1 || s[0].Starts != 0 || s[0].Owner != id {
			t.Errorf("the task is %+v, %v", s, err)
		}
		e.Expire("a")
		for _, want := range []int{0, 0, 1} {
			if names, err := e.Reap(ctx); err != nil || len(names) != want {
				t.Errorf("reaped are %q, %v, want %d", names, err, want)
			}
			time.Sleep(time.Minute/2 + 1)
		}
	})
}

// The locks of two transactions, and a transaction that waits in vain.
func TestTx_waitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := t.Context(), memengine.New()
		first, second := e.Begin(), e.Begin()
		_, err := first.Write(ctx, add("ada", 1))
		ok(t, err)
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := second.Lock(brief, "ada"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second lock of a key returns %v", err)
		}
		time.AfterFunc(time.Second, func() { ok(t, first.Commit()) })
		if unmet, err := second.Write(ctx, add("ada", 2)); err != nil || !slices.Equal(unmet, []string{"ada"}) {
			t.Errorf("unmet are %q, %v", unmet, err)
		}
		second.Rollback()
	})
}

func TestCommit_refusesWhatTheContractForbids(t *testing.T) {
	ctx, e := t.Context(), memengine.New()
	for name, batches := range map[string][]engine.Batch{
		"two writes of a key in a batch":  {{add("ada", 1), add("ada", 2)}},
		"two writes of a key in a commit": {{add("ada", 1)}, {add("ada", 2)}},
		"a write without a condition":     {{{Record: engine.Record{Key: "ada"}}}},
	} {
		if _, err := e.Commit(ctx, 0, batches); err == nil || count(ctx, e) != 0 {
			t.Errorf("%s: the error is %v, and there are %d tasks", name, err, count(ctx, e))
		}
	}
}
