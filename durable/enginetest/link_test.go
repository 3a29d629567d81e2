// SPDX-License-Identifier: MIT

package enginetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// A Link on a Locks also shows that the Locks keeps it.
func TestLink_keepsTheContract(t *testing.T) {
	t.Parallel()
	enginetest.Test(t, func(*testing.T) enginetest.Subject {
		kv := memory.New()
		locks := enginetest.NewLocks(kv.Shared())
		return enginetest.Subject{
			Engine:  enginetest.NewLink(locks),
			Begin:   func(*testing.T) enginetest.Tx { return locks.Begin() },
			Restart: func(*testing.T) { kv.Restart() },
		}
	})
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
		e := memory.New().Shared()
		link := enginetest.NewLink(e)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		link.Next("Commit", enginetest.Fault{Delay: time.Hour})
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
		ctx, link := t.Context(), enginetest.NewLink(memory.New().Shared())
		var asked []string
		link.SetFaults(func(method string) enginetest.Fault {
			asked = append(asked, method)
			return enginetest.Fault{Delay: time.Second, Fail: method == "Get"}
		})
		link.Next("Count", enginetest.Fault{}, enginetest.Fault{Lose: true})
		began := time.Now()
		calls := []func() error{
			func() error { _, err := link.Count(ctx); return err },
			func() error { _, err := link.Count(ctx); return err },
			func() error { _, err := link.Count(ctx); return err },
			func() error { _, err := link.Get(ctx, "k"); return err },
		}
		for i, fails := range []bool{false, true, false, true} {
			if err := calls[i](); errors.Is(err, enginetest.ErrFault) != fails {
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
	ctx, link := t.Context(), enginetest.NewLink(memory.New().Shared())
	var asked []string
	link.SetFaults(func(method string) enginetest.Fault {
		asked = append(asked, method)
		return enginetest.Fault{}
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
