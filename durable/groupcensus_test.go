// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// However many groups there are, the ten largest are named, the sums cover all, and memory is bounded.
func TestGroups_ofVeryMany(t *testing.T) {
	onEach(t, func(t *testing.T, k *kit.Kit) {
		const groups = 10_000
		begun := time.Now()
		k.Handle("k", sleeper(0))
		add := func(n, tasks int) {
			t.Helper()
			all := make([]durable.Task, 0, n*tasks)
			for i := range n {
				for j := range tasks {
					all = append(all, durable.Task{Key: fmt.Sprint(tasks, "/", i, "/", j), Kind: "k", Group: fmt.Sprint(tasks, "/", i), At: begun.Add(time.Duration(len(all)))})
				}
			}
			k.Add(all...)
		}
		add(groups-12, 1)
		add(12, 3)
		k.After(sec)
		g, err := k.Groups(ctx, durable.Query{For: time.Minute})
		if err != nil || len(g.Largest) != 10 || g.Largest[0].Tasks != 3 || g.Largest[9].Tasks != 3 || g.More != groups-10 || g.Cut ||
			g.Others.Tasks != groups-12+2*3 || g.Others.Due != g.Others.Tasks || g.Others.Kind != "" || g.Others.Group != "" || !g.Others.Oldest.Equal(begun) {
			t.Errorf("the groups are %+v, %v", g, err)
		}
		add(1, 2)
		g, err = k.Groups(ctx, durable.Query{For: time.Minute})
		if err != nil || len(g.Largest) != 10 || g.More != groups-10 || !g.Cut || g.Others.Tasks != groups-12+2*3+2 {
			t.Errorf("of one more than are counted the groups are %+v, %v", g, err)
		}
	})
}

// A look at groups ends when its time is up, and reports that it was cut.
func TestGroups_cut(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s := k.Use(durable.New(ctx, kit.Own(drowsy{memory.New(), time.Millisecond}), durable.WithLogger(testkit.Quiet()))).Scheduler
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
