// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A history contains the concurrent operations of some goroutines on a few keys, and the resulting runs, each with the
// time of its call and its return. It is right if a wheel with one goroutine could have executed them all in some
// order, each between its call and its return (Herlihy and Wing, "Linearizability", TOPLAS 1990). porcupine looks for
// that order.
type history struct {
	start time.Time

	mu  sync.Mutex // protects ops
	ops []porcupine.Operation
}

// verb is the called verb, or the begin of a run.
type verb int

const (
	add verb = iota
	set
	remove
	removeWait
	reschedule
	pause
	resume
	exist
	getTimes
	run
)

func (v verb) String() string {
	return [...]string{
		"AddTask", "SetTask", "RemoveTask", "RemoveWait", "Reschedule", "Pause", "Resume",
		"Exist", "GetTaskTimes", "run",
	}[v]
}

// call is the input of an operation: the verb, the key, and for an add the task, which has a unique number.
type call struct {
	verb  verb
	key   string
	task  int
	times int
}

// answer is the output: whether the verb succeeded or found the task, and what GetTaskTimes or RemoveWait
// returned.
type answer struct {
	ok      bool
	n       int
	running bool
}

// live is the state of a key: its task, and how many of its runs have not begun; 0 is none.
type live struct {
	task   int
	times  int
	paused bool
}

// model is the wheel as one goroutine sees it. A run may begin only while its task is live, and the last one ends it.
// So a removed task with one run never runs: after the begin of its run there would have been nothing to remove.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			keys := make(map[string][]porcupine.Operation)
			for _, op := range ops {
				key := op.Input.(call).key
				keys[key] = append(keys[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range keys {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return live{} },
		Step: func(state, input, output any) (bool, any) { return step(state.(live), input.(call), output.(answer)) },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v → %+v", input, output)
		},
	}
}

func step(s live, c call, a answer) (bool, any) {
	there := s.task != 0
	switch c.verb {
	case add:
		if there {
			return !a.ok, s
		}
		return a.ok, live{c.task, c.times, false}
	case set:
		return a.ok, live{c.task, c.times, false}
	case remove:
		return a.ok == there, live{}
	case removeWait: // for a key with a run in progress it does not tell whether there was a task
		return a.running || a.ok == there, live{}
	case pause, resume:
		s.paused = there && c.verb == pause
		return a.ok == there, s
	case reschedule, exist:
		return a.ok == there, s
	case getTimes:
		return a.n == s.times, s
	}
	if s.task != c.task || s.paused {
		return false, s
	}
	switch s.times {
	case 1:
		return true, live{}
	case timewheel.Forever:
		return true, s
	}
	return true, live{s.task, s.times - 1, false}
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) note(client int, c call, a answer, called int64) {
	returned := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: c, Output: a, Call: called, Return: returned,
	})
}

// makeHistory lets some goroutines do random operations by the seed on a wheel of the layout.
func makeHistory(seed uint64, layout timewheel.Layout) (*history, error) {
	const clients, keys, each = 3, 2, 7
	tw, err := timewheel.New(200*time.Microsecond, 16, timewheel.WithLayout(layout), timewheel.WithPoolSize(2))
	if err != nil {
		return nil, err
	}
	h := &history{start: time.Now()}
	tw.Start()
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for i := range each {
				c := call{verb: verb(r.IntN(int(run))), key: string(rune('a' + r.IntN(keys)))}
				c.task = 1 + client*each + i
				c.times = []int{1, 1, 2, timewheel.Forever}[r.IntN(4)]
				h.do(client, tw, c, time.Duration(r.IntN(600))*time.Microsecond)
				if r.IntN(3) == 0 {
					time.Sleep(time.Duration(r.IntN(400)) * time.Microsecond)
				}
			}
		})
	}
	wg.Wait()
	// A begun run may not have reached its first statement, where it is recorded.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return h, tw.Shutdown(ctx)
}

// do calls the verb and records the result.
func (h *history) do(client int, tw *timewheel.TimeWheel, c call, d time.Duration) {
	var a answer
	var err error
	called := h.now()
	task := &timewheel.Task{Key: c.key, Interval: max(d, 1), Times: c.times, Job: func(*timewheel.Task) {
		// It began some time between the add and now.
		h.note(client, call{verb: run, key: c.key, task: c.task}, answer{}, called)
	}}
	switch c.verb {
	case add:
		err = tw.AddTask(task)
	case set:
		err = tw.SetTask(task)
	case remove:
		err = tw.RemoveTask(c.key)
	case removeWait:
		a.running, err = tw.RemoveWait(context.Background(), c.key)
	case reschedule:
		err = tw.Reschedule(c.key, d)
	case pause:
		err = tw.Pause(c.key)
	case resume:
		err = tw.Resume(c.key)
	case exist:
		a.ok = tw.Exist(c.key)
	case getTimes:
		a.n = tw.GetTaskTimes(c.key)
	}
	if c.verb != exist && c.verb != getTimes {
		a.ok = err == nil
	}
	h.note(client, c, a, called)
}

// errNoOrder is returned by check for a history that no order explains.
var errNoOrder = errors.New("no order explains this history")

// check looks for the order. If that takes longer than limit it reports late, and the history counts as right.
func (h *history) check(limit time.Duration) (late bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(model(), h.ops, limit) {
	case porcupine.Ok:
		return false, nil
	case porcupine.Unknown:
		return true, nil
	}
	var text string
	for _, op := range h.ops {
		text += fmt.Sprintf("\n%10d %10d  %v %+v %+v", op.Call, op.Return, op.Input.(call).verb, op.Input, op.Output)
	}
	return false, fmt.Errorf("%w:%s", errNoOrder, text)
}
