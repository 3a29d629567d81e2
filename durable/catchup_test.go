// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A backlog that takes seconds to count is never reported as smaller than it is. The count is cut until all of it is
// counted, and is then exact, minus the tasks started since. Two kinds take turns.
func TestCatchUp_ofALargeBacklog_isExact(t *testing.T) {
	const tasks, each = 3000, time.Millisecond // 3 s to count a kind
	kit.In(t, func(t *testing.T, r *kit.Kit) {
		r.Open(r.KV)
		r.Handle("slow", sleeper(0))
		for i := range tasks {
			r.Add(durable.Task{Key: fmt.Sprint("note", i), Kind: "note", Delay: sec + time.Duration(i)},
				durable.Task{Key: fmt.Sprint("slow", i), Kind: "slow", Delay: 2*sec + time.Duration(i)})
		}
		r.After(hour)
		left := r.KV.Clone()
		r.Kill()
		r.Open(drowsy{left, each})
		r.Handle("slow", sleeper(0))
		r.Start()
		exact, started := 0, 0
		for second := range 60 {
			c, err := r.CatchUp(ctx)
			r.Must(err)
			started += len(r.Runs())
			left := 2*tasks - started
			switch {
			case c.Cut:
				if c.Left > left || c.Left == 0 || second > 10 || exact > 0 || !c.Done.IsZero() {
					t.Errorf("after %d s %d are left, and CatchUp is %+v", second, left, c)
				}
			default:
				exact++
				if c.Left < left-1 || c.Left > left+1 || len(c.Kinds) != 2 || time.Since(c.At) > 80*sec {
					t.Errorf("after %d s %d are left, and CatchUp is %+v", second, left, c)
				}
				last := time.Time{}
				for _, k := range c.Kinds { // they take turns
					if second > 14 && k.Done.IsZero() || second < 10 && !k.Done.IsZero() {
						t.Errorf("after %d s the end of a kind is %v", second, k.Done)
					}
					if last.Before(k.Done) {
						last = k.Done
					}
				}
				if second > 14 && c.Done != last || second < 10 && !c.Done.IsZero() {
					t.Errorf("after %d s the end is %v, and that of the last kind %v", second, c.Done, last)
				}
			}
			r.After(sec)
		}
		if exact < 45 {
			t.Errorf("of 60 counts %d were exact", exact)
		}
		r.After(3 * time.Minute)
		c, err := r.CatchUp(ctx)
		r.Must(err)
		want := time.Duration(2*tasks-started-len(r.Runs())) * sec / 20
		if len(c.Kinds) != 2 || time.Until(c.Done) < want*8/10 || time.Until(c.Done) > want*12/10 {
			t.Errorf("the last kind is done in %v, want %v: %+v", time.Until(c.Done), want, c)
		}
		r.After(3 * time.Minute)
		if c, err := r.CatchUp(ctx); err != nil || c.Left != 0 || c.Cut || len(c.Kinds) != 0 {
			t.Errorf("at the end it is %+v, %v", c, err)
		}
	}, durable.WithCatchUp(20))
}

// Overdue tasks of paused kinds and of kinds without a handler on the node are counted apart from tasks that can run on
// it. On a drained node none can.
func TestCatchUp_ofOthers(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		b.Handle("other", sleeper(0))
		is := func(when string, of *kit.Node, want string) {
			t.Helper()
			c, err := of.CatchUp(ctx)
			k.Must(err)
			got := ""
			for i, kinds := range [][]durable.KindCatchUp{c.Kinds, c.Others} {
				for _, kind := range kinds {
					got += fmt.Sprintf("%s %d ", kind.Kind, kind.Left)
					if kind.Oldest.IsZero() || i == 1 && !kind.Done.IsZero() {
						t.Errorf("%s: %+v", when, kind)
					}
				}
				got += []string{"| ", ""}[i]
			}
			if got = strings.TrimSpace(got); got != want || c.Cut {
				t.Errorf("%s there is %q, want %q: %+v", when, got, want, c)
			}
		}
		k.Must(a.PauseAll(ctx))
		k.After(sec)
		for i := range 3 {
			a.Add(durable.Task{Key: fmt.Sprint("note", i), Kind: "note", Delay: sec})
		}
		b.Add(durable.Task{Key: "other0", Kind: "other", Delay: sec}, durable.Task{Key: "other1", Kind: "other", Delay: sec})
		k.After(20 * sec)
		is("while all kinds are paused, on a,", a, "| note 3 other 2")
		is("while all kinds are paused, on b,", b, "| note 3 other 2")
		k.Must(a.Drain(ctx, b.Name), a.ResumeAll(ctx))
		k.After(20 * sec)
		is("while b is drained, on a,", a, "| other 2")
		is("while b is drained, on b,", b, "| other 2")
		k.Must(a.Undrain(ctx, b.Name))
		k.After(20 * sec)
		is("at the end, on a,", a, "|")
		is("at the end, on b,", b, "|")
	})
}

// A count from before an outage is not current after it, however long the outage was. Counts begin again at once, and
// until they have ended they are incomplete. The time that an engine hung is not part of the cost of a count.
func TestCounts_afterAnOutage_areTakenAgain(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Add(durable.Task{Key: "first", Kind: "note", Delay: hour})
		slow := enginetest.Fault{Delay: time.Second}
		a.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Count" || method == "Walk ByDue" {
				return slow
			}
			return enginetest.Fault{}
		})
		ask := func() (durable.Counts, durable.CatchUp) {
			t.Helper()
			census, err := a.Counts(ctx)
			if err != nil {
				t.Error(err)
			}
			behind, err := a.CatchUp(ctx)
			if err != nil {
				t.Error(err)
			}
			return census, behind
		}
		ask()
		k.After(2 * sec)
		if census, behind := ask(); !census.Whole || behind.Cut || behind.At.IsZero() {
			t.Fatalf("at first there is %+v, %+v", census, behind)
		}
		k.After(time.Minute)
		for round := range 3 {
			before := time.Now()
			hang := time.Duration(3+4*round) * sec
			a.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: time.Until(before.Add(hang))} })
			for time.Since(before) < hang {
				within, cancel := context.WithTimeout(ctx, sec)
				if census, err := a.Counts(within); err == nil && census.At.After(before) {
					t.Errorf("while it hangs there is %+v", census)
				}
				_, _ = a.CatchUp(within)
				cancel()
				k.After(sec)
			}
			a.Link.SetFaults(func(method string) enginetest.Fault {
				if method == "Count" || method == "Walk ByDue" {
					return slow
				}
				return enginetest.Fault{}
			})
			back := time.Now()
			a.Add(durable.Task{Key: fmt.Sprint("round", round), Kind: "note", Delay: hour})
			k.After(sec / 2) // until a renewal has been answered
			if census, behind := ask(); census.Whole || !behind.Cut || a.Stats().Pending != 1+round {
				t.Errorf("at first it is %+v and %+v", census, behind)
			}
			k.After(2 * sec)
			if census, behind := ask(); !census.Whole || census.At.Before(back) || census.Kinds[0].Tasks != 2+round || behind.Cut ||
				behind.At.Before(back) {
				t.Errorf("%v after the outage of %v the counts are %+v, %+v", time.Since(back), hang, census, behind)
			}
			k.After(time.Minute)
		}
		a.Link.SetFaults(nil)
	})
}

// The end of a backlog is computed for all nodes together.
func TestCatchUp_onNodes_endsByTheRateOfAll(t *testing.T) {
	const tasks, perSecond = 2000, 20
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		k.Must(a.PauseKind(ctx, "note"))
		for i := range tasks {
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec})
		}
		k.After(time.Minute)
		k.Must(a.ResumeKind(ctx, "note"))
		k.After(20*sec + sec/2)
		got, err := a.CatchUp(ctx)
		want := time.Duration(got.Left) * sec / perSecond
		if err != nil || got.Left > tasks-15*perSecond || time.Until(got.Done) < want*9/10 || time.Until(got.Done) > want*11/10 {
			t.Errorf("it is done in %v, want %v: %+v, %v", time.Until(got.Done), want, got, err)
		}
	}, durable.WithCatchUp(perSecond), durable.WithPoolSize(16)) // so that no node queues all of it
}

// A node that has started few tasks of a backlog sees that the other one has started the rest.
func TestCatchUp_onANodeThatStartsFew_endsWithTheBacklog(t *testing.T) {
	for name, option := range map[string]durable.KindOption{
		"limited": durable.WithConcurrency(2), "unlimited": durable.WithTimeout(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				a, b := k.Nodes[0], k.Nodes[1]
				a.Handle("k", sleeper(200*time.Millisecond), option)
				b.Handle("k", sleeper(10*time.Millisecond), option)
				k.Must(a.PauseAll(ctx))
				k.After(5 * sec)
				const tasks = 4000
				for i := range tasks {
					a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
				}
				k.After(10 * sec)
				a.Link.SetFaults(func(method string) enginetest.Fault {
					switch method {
					case "Claim":
						return enginetest.Fault{Delay: 4 * time.Second}
					case "Walk ByDue":
						return enginetest.Fault{Delay: 8 * time.Second} // the count is used again for a minute and a half
					}
					return enginetest.Fault{}
				})
				k.Must(a.ResumeAll(ctx))
				begun := time.Now()
				var over, seen time.Duration
				for seen == 0 && time.Since(begun) < 3*time.Minute {
					k.After(sec)
					u, err := a.CatchUp(ctx)
					k.Must(err)
					if ran := a.Stats().Succeeded + b.Stats().Succeeded; over == 0 && ran == tasks {
						over = time.Since(begun)
					}
					if over > 0 && u.Left == 0 {
						seen = time.Since(begun)
					}
				}
				t.Logf("the node has started %d tasks, all have run after %v, and the node sees it after %v", a.Stats().Succeeded, over, seen)
				if n := a.Stats().Succeeded; n > tasks/3 || over < 15*sec || seen == 0 || seen-over > 20*sec {
					t.Fail()
				}
			}, durable.WithCatchUp(100))
		})
	}
}

// A node assumes that it is average, but another may have started nothing. So it does not report that nothing is left.
func TestCatchUp_onANodeThatStartsMost_leavesSome(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Handle("k", sleeper(0)) // and the other node does not
		k.Must(a.PauseAll(ctx))
		k.After(5 * sec)
		const tasks = 1000
		for i := range tasks {
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		k.After(10 * sec)
		a.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Walk ByDue" { // a count is used again for 15 s
				return enginetest.Fault{Delay: time.Second}
			}
			return enginetest.Fault{}
		})
		k.Must(a.ResumeAll(ctx))
		for range 60 {
			k.After(sec / 2)
			left := tasks - int(a.Stats().Succeeded)
			if u, err := a.CatchUp(ctx); err != nil || left > 100 && u.Left == 0 && !u.Cut {
				t.Fatalf("%d are left, and CatchUp is %+v, %v", left, u, err)
			}
		}
		if n := a.Stats().Succeeded; n < tasks*9/10 {
			t.Errorf("only %d have run", n)
		}
	}, durable.WithCatchUp(100))
}

// A node that counts one kind to its end counts again, although tasks of another kind are still overdue, and a count is
// used again for a while.
func TestCatchUp_ofAKindBesideOneThatHangs_ends(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		hung := make(chan struct{})
		for _, n := range k.Nodes {
			n.Handle("hang", func(ctx context.Context, _ durable.Run) error {
				<-hung
				return nil
			})
			n.Handle("quick", sleeper(0))
		}
		k.Must(a.PauseAll(ctx))
		k.After(5 * sec)
		for i := range 300 {
			a.Add(durable.Task{Key: fmt.Sprint("hang", i), Kind: "hang", Delay: sec}, durable.Task{Key: fmt.Sprint("quick", i), Kind: "quick", Delay: sec})
		}
		k.After(10 * sec)
		a.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Walk ByDue" { // a count is used again for 5 s
				return enginetest.Fault{Delay: 50 * time.Millisecond}
			}
			return enginetest.Fault{}
		})
		k.Must(a.ResumeAll(ctx))
		_, err := a.CatchUp(ctx)
		k.Must(err)
		k.After(2 * sec)
		u, err := a.CatchUp(ctx)
		k.Must(err)
		if a.Stats().Succeeded < 100 || len(u.Kinds) != 1 || u.Kinds[0].Kind != "hang" {
			t.Errorf("after %d runs CatchUp is %+v", a.Stats().Succeeded, u)
		}
		close(hung)
	}, durable.WithPoolSize(16))
}
