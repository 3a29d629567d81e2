// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A gauge is the number of runs in progress.
type gauge struct{ n atomic.Int64 }

func (g *gauge) run(context.Context, durable.Run) error {
	g.n.Add(1)
	defer g.n.Add(-1)
	time.Sleep(2 * time.Second)
	return nil
}

// most returns the greatest number of runs in progress within ten seconds.
func (g *gauge) most(k *kit.Kit) (most int) {
	for range 40 {
		k.After(250 * time.Millisecond)
		most = max(most, int(g.n.Load()))
	}
	return most
}

// A limit that an operator changes holds on all nodes, also on one that joins, until it is reset.
func TestTuneLimits(t *testing.T) {
	for name, c := range map[string]struct {
		option durable.KindOption
		limits func(n int) durable.KindLimits
		nodes  int // by whose number the runs are multiplied
	}{
		"on all nodes": {durable.WithClusterConcurrency(4), func(n int) durable.KindLimits {
			return durable.KindLimits{Kind: "k", Cluster: durable.Limit{Concurrency: n}}
		}, 1},
		"on each node": {durable.WithConcurrency(4), func(n int) durable.KindLimits {
			return durable.KindLimits{Kind: "k", Here: durable.Limit{Concurrency: n}}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				var g gauge
				k.Handle("k", g.run, c.option)
				for i := range 2000 {
					k.On().Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Second})
				}
				k.After(10 * time.Second)
				runs := func(when string, each, nodes int) {
					t.Helper()
					k.After(5 * time.Second) // until the nodes know it, and the runs of before have ended
					if got, want := g.most(k), each*nodes; got != want {
						t.Errorf("%s there are up to %d runs at once, want %d", when, got, want)
					}
				}
				runs("at first", 4, c.nodes)
				k.Must(k.On().TuneLimits(ctx, c.limits(10), durable.By("ann", "it bears more")))
				runs("with a larger limit", 10, c.nodes)
				k.Must(k.On().TuneLimits(ctx, c.limits(2)))
				runs("with a smaller limit", 2, c.nodes)
				if i := k.Nodes[1].Kinds()[0]; i.Kind != "k" || !i.Tuned || i.Limit.Concurrency+i.Cluster.Concurrency != 2 {
					t.Errorf("the kind is %+v", i)
				}
				third := k.Join(nil, durable.WithLogger(testkit.Quiet())).Start()
				third.Handle("k", g.run, c.option)
				k.After(10 * time.Second) // it gets its part when the others know it
				nodes := 1
				if c.nodes > 1 {
					nodes = 3
				}
				runs("with a third node", 2, nodes)
				k.Must(k.On().TuneLimits(ctx, durable.KindLimits{Kind: "k"}))
				runs("with the limit of the code again", 4, nodes)
				if tuned, err := k.On().Tuned(ctx); err != nil || len(tuned.Limits)+len(tuned.By) != 0 {
					t.Errorf("set are %+v, %v", tuned, err)
				}
			})
		})
	}
}

// A kind gets no limit that its code does not have, and a number that is not set stays as in the code.
func TestTuneLimits_ofALimitThatTheCodeDoesNotHave(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("rated", ok, durable.WithRate(10, time.Minute, 3))
		k.Handle("free", ok)
		k.Must(k.TuneLimits(ctx, durable.KindLimits{Kind: "rated", Here: durable.Limit{Concurrency: 1, Rate: 20}, Cluster: durable.Limit{Rate: 1, Per: time.Hour}}),
			k.TuneLimits(ctx, durable.KindLimits{Kind: "free", Here: durable.Limit{Concurrency: 1}}))
		for _, i := range k.Kinds() {
			want := map[string]durable.Limit{"rated": {Rate: 20, Per: time.Minute, Burst: 3}}[i.Kind]
			if i.Limit != want || i.Cluster != (durable.Limit{}) || i.Tuned != (i.Kind == "rated") {
				t.Errorf("%+v", i)
			}
		}
	})
}

// A rate that an operator raises applies at once, to the tasks that wait for it.
func TestTuneLimits_rate(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithRate(1, time.Hour, 1))
		for i := range 100 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Second})
		}
		if n := len(k.RunsAfter(time.Minute)); n != 1 {
			t.Fatalf("%d runs", n)
		}
		k.Must(k.TuneLimits(ctx, durable.KindLimits{Kind: "k", Here: durable.Limit{Rate: 60, Per: time.Minute}}))
		if n := len(k.RunsAfter(30 * time.Second)); n < 28 || n > 32 {
			t.Errorf("in half a minute at 60 a minute there are %d runs", n)
		}
	})
}

// A pool size applies at once, and survives a restart.
func TestTunePoolSize(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		var g gauge
		k.Handle("k", g.run)
		for i := range 500 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Second})
		}
		is := func(when string, workers int) {
			t.Helper()
			k.After(5 * time.Second)
			if s, most := k.Stats(), g.most(k); s.Workers != workers || most != workers {
				t.Errorf("%s there are %d workers and up to %d runs at once, want %d", when, s.Workers, most, workers)
			}
		}
		is("at first", 8)
		k.Must(k.TunePoolSize(ctx, 16, durable.By("ann", "")))
		is("with a larger pool", 16)
		k.Must(k.TunePoolSize(ctx, 3))
		is("with a smaller pool", 3)
		k.Must(k.TunePoolSize(ctx, 0))
		is("with that of the code", 8)
		k.Must(k.TunePoolSize(ctx, 5, durable.By("ann", "")))
		left := k.KV.Clone()
		k.Kill()
		k.After(5 * time.Second) // the runs in progress end
		k.Open(left)
		tuned, err := k.Tuned(ctx)
		k.Must(err)
		by := tuned.By["pool size"]
		if s := k.Stats(); s.Workers != 5 || tuned.PoolSize != 5 || by.Who != "ann" || by.At.IsZero() || len(tuned.By) != 1 {
			t.Errorf("after a restart there are %d workers, and set are %+v", s.Workers, tuned)
		}
	}, durable.WithPoolSize(8))
}

// A catch-up rate applies to the overdue tasks that are left.
func TestTuneCatchUp(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for i := range 1000 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Second})
		}
		left := k.KV.Clone()
		k.Kill()
		k.After(time.Hour)
		k.Open(left)
		k.Must(k.TuneCatchUp(ctx, 5))
		k.Runs()
		k.Start()
		if n := len(k.RunsAfter(10 * time.Second)); n < 45 || n > 55 {
			t.Errorf("at 5 a second %d runs begin in ten seconds", n)
		}
		k.Must(k.TuneCatchUp(ctx, 0))
		if n := len(k.RunsAfter(10 * time.Second)); n < 900 {
			t.Errorf("at the rate of the code %d runs begin", n)
		}
	})
}

func TestTune_ofWrongNumbers(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for name, err := range map[string]error{
			"pool":     k.TunePoolSize(ctx, -1),
			"catch-up": k.TuneCatchUp(ctx, -1),
			"limit":    k.TuneLimits(ctx, durable.KindLimits{Kind: "k", Cluster: durable.Limit{Rate: -1}}),
			"kind":     k.TuneLimits(ctx, durable.KindLimits{Here: durable.Limit{Rate: 1}}),
			"who":      k.TunePoolSize(ctx, 1, durable.By(strings.Repeat("x", 101), "")),
		} {
			if !errors.Is(err, durable.ErrInvalidTask) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if tuned, err := k.Tuned(ctx); err != nil || tuned.PoolSize+tuned.CatchUp+len(tuned.Limits)+len(tuned.By) != 0 {
			t.Errorf("set are %+v, %v", tuned, err)
		}
	})
}
