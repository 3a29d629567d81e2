// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
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

// A signaller is an engine with signals, which counts claims, looks and walks.
type signaller struct {
	engine.Engine
	listen               listening
	claims, looks, walks atomic.Int64
	takes                atomic.Int64 // how long a claim takes
	noLook               atomic.Bool  // looks fail
	hangs                atomic.Bool  // looks do not return
}

func (s *signaller) Listen(ctx context.Context, wake func(freed bool), heard func(error)) {
	s.listen(ctx, wake, heard)
}

func (s *signaller) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	s.claims.Add(1)
	time.Sleep(time.Duration(s.takes.Load()))
	return s.Engine.Claim(ctx, r)
}

func (s *signaller) Look(ctx context.Context, by engine.MemberID, report []byte, r engine.LookRequest) (l engine.Looked, err error) {
	s.looks.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
	}
	if s.noLook.Load() {
		return l, errors.New("no look")
	}
	if l.Members, l.Now, err = s.Engine.Renew(ctx, by, report); err != nil {
		return l, err
	}
	for note, err := range s.Engine.Walk(ctx, engine.Range{Order: engine.Notes, From: r.Notes}) {
		if err != nil {
			return l, err
		}
		l.Notes = append(l.Notes, note)
	}
	for task, err := range s.Engine.Walk(ctx, engine.Range{Order: engine.ByDue, After: engine.Position{Due: engine.None}, Until: r.Until}) {
		if err != nil {
			return l, err
		}
		l.Due = l.Due || task.Owner == 0 && slices.Contains(r.Kinds, task.Kind)
	}
	return l, nil
}

func (s *signaller) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	s.walks.Add(1)
	return s.Engine.Walk(ctx, over)
}

// onSignals runs the test with a number of nodes that hear signals, on a machine where nothing is due, after they have come to
// rest. Another node adds tasks and runs none.
func onSignals(t *testing.T, nodes int, bubble func() listening,
	test func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler), opts ...durable.Option,
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
	}, append(opts, durable.WithTick(time.Millisecond))...)
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

// A node that hears signals and has nothing to do asks its engine once a second, and a task that another one adds begins as soon
// as the signal has come. Where a node hears nothing, it claims as often as one without signals, and says why.
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
		looks, others := all[0].looks.Load(), all[0].claims.Load()+all[0].walks.Load()
		k.After(10 * sec)
		looks, others = all[0].looks.Load()-looks, all[0].claims.Load()+all[0].walks.Load()-others
		if looks < 9 || looks > 11 || others > 2 { // the node sometimes checks what it holds
			t.Errorf("%d looks, and %d claims and reads in ten seconds", looks, others)
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
		before := claimsOf(all)
		k.After(10 * sec)
		if n := claimsOf(all) - before; n < 90 || n > 105 {
			t.Errorf("%d claims in ten seconds without signals", n)
		}
		if s := k.Stats(); !strings.Contains(s.Node.Unheard, "cable") || !strings.Contains(s.String(), "cable") {
			t.Errorf("the node hears nothing, and says %v", s)
		}
	})
}

// A node at rest hears of a run that another node asks for, of a pause, and of tasks without a signal.
func TestListen_nodeAtRest_hearsOfAll(t *testing.T) {
	onSignals(t, 2, func() listening { return hears(nil) }, func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler) {
		for range 5 {
			began := time.Now()
			if ran, err := k.Nodes[1].RemoveTaskWait(ctx, "none"); ran || !errors.Is(err, durable.ErrTaskKeyNotFound) {
				t.Errorf("a key without a task: %v, %v", ran, err)
			}
			if took := time.Since(began); took > 2*sec {
				t.Errorf("the nodes answer after %v", took)
			}
			k.After(3 * sec)
			k.Must(client.AddTask(ctx, durable.Task{Key: "k", Kind: "note"}))
			k.After(sec + 20*time.Millisecond)
			k.Ran("k")
			k.Must(client.PauseKind(ctx, "note"))
			k.After(2 * sec)
			k.Must(client.AddTask(ctx, durable.Task{Key: "k", Kind: "note"}))
			k.After(5 * sec)
			k.RanNothing()
			k.Must(client.ResumeKind(ctx, "note"))
			k.After(3 * sec)
			k.Ran("k")
		}
	})
}

// A node whose looks fail, or would delay its renewals, does without them.
func TestListen_withoutLooks(t *testing.T) {
	for name, spoil := range map[string]func(s *signaller){
		"they fail":         func(s *signaller) { s.noLook.Store(true) },
		"they are too slow": func(s *signaller) { s.takes.Store(int64(30 * time.Millisecond)) },
	} {
		t.Run(name, func(t *testing.T) {
			onSignals(t, 1, func() listening { return hears(nil) }, func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler) {
				spoil(all[0])
				k.Must(client.AddTask(ctx, durable.Task{Key: "first", Kind: "note"}))
				k.RunsAfter(5 * sec)
				looks, claims := all[0].looks.Load(), all[0].claims.Load()
				for range 10 {
					k.After(5 * sec)
					k.Must(client.AddTask(ctx, durable.Task{Key: "k", Kind: "note"}))
					k.After(sec + 100*time.Millisecond)
					k.Ran("k")
				}
				looks, claims = all[0].looks.Load()-looks, all[0].claims.Load()-claims
				if s := k.Stats(); looks > 1 || claims < 50 || claims > 130 || s.Node.Away {
					t.Errorf("%d looks and %d claims in a minute; is it away: %v", looks, claims, s.Node.Away)
				}
			})
		})
	}
}

// A look that hangs delays no task by more than two seconds, however long the lease is.
func TestListen_lookThatHangs(t *testing.T) {
	onSignals(t, 1, func() listening { return hears(nil) }, func(t *testing.T, k *kit.Kit, all []*signaller, client *durable.Scheduler) {
		k.Must(client.AddTask(ctx, durable.Task{Key: "later", Kind: "note", Delay: 10 * sec}))
		all[0].hangs.Store(true)
		k.After(5 * sec)
		k.Must(client.AddTask(ctx, durable.Task{Key: "now", Kind: "note"}))
		k.After(2 * sec)
		k.Ran("now")
		k.After(3*sec + 5*time.Millisecond)
		k.Ran("later")
	}, durable.WithLease(40*sec))
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
		"seldom":          {always(1310*time.Millisecond, false), 2 * 2 * 11}, // so the second of a rest begins at any time
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
		asked := func() (n int64) {
			for _, s := range all {
				n += s.claims.Load() + s.looks.Load()
			}
			return n
		}
		before := asked()
		k.After(seconds * sec)
		idle := asked() - before
		before = asked()
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
		// It is 390 to 415, as chance has it, where all nodes would make 600.
		if n := asked() - before; n > idle+5*seconds || late > 1 {
			t.Errorf("%d claims and looks for %d tasks, and %d without any; %d runs were late", n, seconds, idle, late)
		}
	})
}
