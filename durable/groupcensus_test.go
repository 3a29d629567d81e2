// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// onEach runs the test on a scheduler over a store, and on a node of an engine.
func onEach(t *testing.T, test func(t *testing.T, s *durable.Scheduler)) {
	for name, open := range map[string]func(opts ...durable.Option) (*durable.Scheduler, error){
		"store": func(opts ...durable.Option) (*durable.Scheduler, error) { return durable.New(memstore.New(), opts...) },
		"engine": func(opts ...durable.Option) (*durable.Scheduler, error) {
			return durable.Join(ctx, memengine.New(), opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				s := k.Use(open(durable.WithLogger(testkit.Quiet()))).Scheduler
				defer func() { _ = s.Shutdown(ctx) }()
				test(t, s)
			})
		})
	}
}

// One group floods a kind with a limit: how much of it is due, and since when, and the same of the others.
func TestGroups_ofAKindThatIsFlooded(t *testing.T) {
	onEach(t, func(t *testing.T, s *durable.Scheduler) {
		begun := time.Now()
		var tasks []durable.Task
		put := func(n int, kind, group string, due time.Duration) {
			for range n {
				tasks = append(tasks, durable.Task{Key: fmt.Sprint("k", len(tasks)), Kind: kind, Group: group, At: begun.Add(due)})
			}
		}
		put(980, "mail", "crowd", sec)
		put(10, "mail", "acme", 5*sec)
		put(10, "mail", "", 7*sec)
		put(1, "mail", "runs", 0)
		put(50, "mail", "later", hour)
		put(5000, "other", "crowd", 0)
		for _, err := range []error{
			s.Handle("mail", sleeper(time.Minute), durable.WithConcurrency(1)), s.Handle("other", sleeper(0)), s.PauseKind(ctx, "other"),
			s.Start(), s.AddTask(ctx, tasks...),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * sec)
		g, err := s.Groups(ctx, durable.Query{Kind: "mail", State: durable.Waiting})
		if err != nil || g.Cut || g.More != 0 || g.Others.Tasks != 0 || g.Looked != 6001 {
			t.Errorf("the groups are %+v, %v", g, err)
		}
		want := []durable.GroupCounts{
			{Kind: "mail", Group: "crowd", Tasks: 980, Due: 980, Oldest: begun.Add(sec)},
			{Kind: "mail", Group: "", Tasks: 10, Due: 10, Oldest: begun.Add(7 * sec)},
			{Kind: "mail", Group: "acme", Tasks: 10, Due: 10, Oldest: begun.Add(5 * sec)},
		}
		same := func(got, want []durable.GroupCounts) bool {
			for i := range got {
				if i >= len(want) || !got[i].Oldest.Equal(want[i].Oldest) {
					return false
				}
				got[i].Oldest = want[i].Oldest
				if got[i] != want[i] {
					return false
				}
			}
			return len(got) == len(want)
		}
		if !same(g.Largest, want) {
			t.Errorf("the groups are %+v, want %+v", g.Largest, want)
		}
		g, err = s.Groups(ctx, durable.Query{Kind: "mail"})
		want = []durable.GroupCounts{want[0], {Kind: "mail", Group: "later", Tasks: 50}, want[1], want[2], {Kind: "mail", Group: "runs", Tasks: 1}}
		if err != nil || g.Cut || !same(g.Largest, want) {
			t.Errorf("all groups are %+v, %v, want %+v", g, err, want)
		}
		if n, err := s.Bulk(ctx, durable.Query{Kind: "mail", Group: "crowd"}, durable.DoPause); n != 980 || err != nil {
			t.Fatal(n, err)
		}
		g, err = s.Groups(ctx, durable.Query{State: durable.Waiting})
		if err != nil || len(g.Largest) != 3 || g.Largest[0].Kind != "other" || g.Largest[1].Group != "" || g.Largest[2].Due != 10 {
			t.Errorf("when the group is paused the groups are %+v, %v", g, err)
		}
	})
}

// The ten largest of any number are named, the sums are those of all, and memory is bounded.
func TestGroups_ofVeryMany(t *testing.T) {
	onEach(t, func(t *testing.T, s *durable.Scheduler) {
		const groups = 10_000
		begun := time.Now()
		if err := s.Handle("k", sleeper(0)); err != nil {
			t.Fatal(err)
		}
		add := func(n, tasks int) {
			t.Helper()
			all := make([]durable.Task, 0, n*tasks)
			for i := range n {
				for j := range tasks {
					all = append(all, durable.Task{Key: fmt.Sprint(tasks, "/", i, "/", j), Kind: "k", Group: fmt.Sprint(tasks, "/", i), At: begun.Add(time.Duration(len(all)))})
				}
			}
			if err := s.AddTask(ctx, all...); err != nil {
				t.Fatal(err)
			}
		}
		add(groups-12, 1)
		add(12, 3)
		time.Sleep(sec)
		g, err := s.Groups(ctx, durable.Query{For: time.Minute})
		if err != nil || len(g.Largest) != 10 || g.Largest[0].Tasks != 3 || g.Largest[9].Tasks != 3 || g.More != groups-10 || g.Cut ||
			g.Others.Tasks != groups-12+2*3 || g.Others.Due != g.Others.Tasks || g.Others.Kind != "" || g.Others.Group != "" || !g.Others.Oldest.Equal(begun) {
			t.Errorf("the groups are %+v, %v", g, err)
		}
		add(1, 2)
		g, err = s.Groups(ctx, durable.Query{For: time.Minute})
		if err != nil || len(g.Largest) != 10 || g.More != groups-10 || !g.Cut || g.Others.Tasks != groups-12+2*3+2 {
			t.Errorf("of one more than are counted the groups are %+v, %v", g, err)
		}
	})
}

// A look at groups ends with its time, and says so.
func TestGroups_cut(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s := k.Use(durable.New(drowsy{memstore.New(), time.Millisecond}, durable.WithLogger(testkit.Quiet()))).Scheduler
		k.Must(s.Handle("k", sleeper(0)))
		for i := range 1000 {
			k.Must(s.AddTask(ctx, durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "k", Group: "g", Delay: hour}))
		}
		for most, limit := range map[time.Duration]time.Duration{0: 155 * time.Millisecond, 50 * time.Millisecond: 55 * time.Millisecond} {
			began := time.Now()
			g, err := s.Groups(ctx, durable.Query{For: most})
			if took := time.Since(began); err != nil || !g.Cut || len(g.Largest) != 1 || g.Largest[0].Tasks != g.Looked || g.Looked == 0 || took > limit {
				t.Errorf("for %v: %+v, %v, after %v", most, g, err, took)
			}
		}
		if g, err := s.Groups(ctx, durable.Query{For: time.Hour}); err != nil || g.Cut || g.Largest[0].Tasks != 1000 {
			t.Errorf("for an hour: %+v, %v", g, err)
		}
	})
}
