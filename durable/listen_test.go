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
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A listening is the method Listen of an engine.
type listening func(ctx context.Context, wake func(freed bool), heard func(error))

// A signaller is an engine with signals, which counts claims and reads of the settings.
type signaller struct {
	engine.Engine
	listen listening
	claims atomic.Int64
}

func (s *signaller) Listen(ctx context.Context, wake func(freed bool), heard func(error)) {
	s.listen(ctx, wake, heard)
}

func (s *signaller) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	s.claims.Add(1)
	return s.Engine.Claim(ctx, r)
}

// onSignals runs the test with a number of nodes that hear signals, on a machine where nothing is due, after they have come to
// rest. Another node adds tasks and runs none.
func onSignals(t *testing.T, nodes int, bubble func() listening,
	test func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler),
) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		listen := bubble()
		var all []*signaller
		for range nodes {
			k.Join(func(to engine.Engine) engine.Engine {
				all = append(all, &signaller{Engine: to, listen: listen})
				return all[len(all)-1]
			}).Start()
		}
		client, _ := connect(k)
		k.Must(client.Declare("note"))
		defer func() { k.Must(client.Shutdown(ctx)) }()
		k.After(10 * sec)
		test(t, k, all, client)
	}, durable.WithTick(time.Millisecond))
}

func claimsOf(all []*signaller) (n int64) {
	for _, s := range all {
		n += s.claims.Load()
	}
	return n
}

// hears is a Listen that hears signals from the channel.
func hears(signals <-chan struct{}) listening {
	return func(ctx context.Context, wake func(freed bool), heard func(error)) {
		heard(nil)
		for {
			select {
			case <-signals:
				wake(false)
			case <-ctx.Done():
				return
			}
		}
	}
}

// A node that hears signals claims once a second while it has nothing to do, and a task that another one adds begins as soon as
// the signal has come. Where a node hears nothing, it claims as often as one without signals, and says why.
func TestListen_nodesRestUntilASignal(t *testing.T) {
	var signals chan struct{}
	var broken chan error
	listen := func(ctx context.Context, wake func(freed bool), heard func(error)) {
		part, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case err := <-broken:
				cancel()
				heard(err)
			case <-ctx.Done():
			}
		}()
		hears(signals)(part, wake, heard)
		<-ctx.Done()
	}
	onSignals(t, 1, func() listening {
		signals, broken = make(chan struct{}), make(chan error)
		return listen
	}, func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler) {
		before := claimsOf(all)
		k.After(10 * sec)
		if n := claimsOf(all) - before; n < 9 || n > 11 {
			t.Errorf("%d claims in ten seconds", n)
		}
		if s := k.Stats(); s.Node.Unheard != "" {
			t.Errorf("the node hears signals, and says %q", s.Node.Unheard)
		}
		k.After(sec / 3)
		k.Must(client.AddTask(ctx, durable.Task{Key: "k", Kind: "note"}))
		k.RanNothing()
		signals <- struct{}{}
		for _, c := range k.RunsAfter(sec / 4) {
			if c.Late > 5*time.Millisecond {
				t.Errorf("%v begins %v late", c, c.Late)
			}
		}
		k.Gone("k")
		broken <- errors.New("the cable was cut")
		k.After(sec)
		before = claimsOf(all)
		k.After(10 * sec)
		if n := claimsOf(all) - before; n < 90 || n > 105 {
			t.Errorf("%d claims in ten seconds without signals", n)
		}
		if s := k.Stats(); !strings.Contains(s.Node.Unheard, "cable") || !strings.Contains(s.String(), "cable") {
			t.Errorf("the node hears nothing, and says %v", s)
		}
	})
}

// Whatever the signals do, every task runs once and soon, no pause is overlooked, and the number of claims has a bound.
func TestListen_signalsThatLie(t *testing.T) {
	always := func(every time.Duration, freed bool) listening {
		return func(ctx context.Context, wake func(freed bool), heard func(error)) {
			heard(nil)
			for ctx.Err() == nil {
				wake(freed)
				time.Sleep(every)
			}
		}
	}
	for name, c := range map[string]struct {
		listen listening
		most   int64 // claims of two nodes in ten seconds with nothing to do
	}{
		"never":           {hears(nil), 2 * 11},
		"all the time":    {always(time.Millisecond, false), 2 * 2 * 11},
		"now and then":    {always(300*time.Millisecond, false), 2 * 2 * 11},
		"freed for ever":  {always(time.Millisecond, true), 2 * 210},
		"heard and not":   {func(ctx context.Context, _ func(bool), heard func(error)) { flicker(ctx, heard) }, 2 * 105},
		"none is offered": {func(context.Context, func(bool), func(error)) {}, 2 * 105},
	} {
		t.Run(name, func(t *testing.T) {
			onSignals(t, 2, func() listening { return c.listen }, func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler) {
				before := claimsOf(all)
				k.After(10 * sec)
				if n := claimsOf(all) - before; n > c.most {
					t.Errorf("%d claims in ten seconds, and there may be %d", n, c.most)
				}
				const n = 40
				for i := range n {
					k.Must(client.AddTask(ctx, durable.Task{Key: fmt.Sprint("now", i), Kind: "note"},
						durable.Task{Key: fmt.Sprint("soon", i), Kind: "note", Delay: sec * 3 / 2},
						durable.Task{Key: fmt.Sprint("later", i), Kind: "note", Delay: 3 * sec}))
					k.After(130 * time.Millisecond)
				}
				calls := k.RunsAfter(5 * sec)
				for _, call := range calls {
					if most := time.Second + 20*time.Millisecond; call.Late > most || call.Late > 20*time.Millisecond && !strings.HasPrefix(call.Key, "now") {
						t.Errorf("%v is %v late", call, call.Late)
					}
				}
				if len(calls) != 3*n {
					t.Errorf("%d runs, want %d", len(calls), 3*n)
				}
				for i := range n { // two seconds after a pause on another node nothing runs
					k.Must(client.AddTask(ctx, durable.Task{Key: fmt.Sprint("paused", i), Kind: "note", Delay: 5*sec + time.Duration(i)*sec/8}))
				}
				k.After(4 * sec)
				k.Must(client.PauseKind(ctx, "note"))
				k.RunsAfter(2 * sec)
				k.After(10 * sec)
				k.RanNothing()
			})
		})
	}
}

// flicker says again and again that a node hears signals, and that it does not.
func flicker(ctx context.Context, heard func(error)) {
	for ctx.Err() == nil {
		heard(nil)
		time.Sleep(50 * time.Millisecond)
		heard(errors.New("gone"))
		time.Sleep(50 * time.Millisecond)
	}
}

// All nodes hear a signal, and one of them gets the task. The others heed fewer signals, so idle nodes do not all claim for
// each task.
func TestListen_manyIdleNodes(t *testing.T) {
	const nodes, seconds = 10, 30
	var signals chan struct{}
	onSignals(t, nodes, func() listening {
		signals = make(chan struct{})
		return hears(signals)
	}, func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler) {
		before := claimsOf(all)
		k.After(seconds * sec)
		idle := claimsOf(all) - before
		before = claimsOf(all)
		for i := range seconds {
			k.Must(client.AddTask(ctx, durable.Task{Key: fmt.Sprint(i), Kind: "note"}))
			for range nodes {
				signals <- struct{}{}
			}
			k.After(sec)
		}
		late := 0
		for _, c := range k.Runs() {
			if c.Late > 5*time.Millisecond {
				late++
			}
		}
		// It is 404 to 440 claims, as chance has it, where all nodes would make 600.
		if n := claimsOf(all) - before; n > idle+5*seconds || late > 1 {
			t.Errorf("%d claims for %d tasks, and %d without any; %d runs were late", n, seconds, idle, late)
		}
	})
}
