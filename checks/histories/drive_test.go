// SPDX-License-Identifier: MIT

package histories

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var (
	count    = flag.Int("histories", 300, "how many histories in memory; on PostgreSQL a tenth of it")
	fromSeed = flag.Uint64("seed", 1, "what the first history is drawn from; the next ones from the next numbers")
)

const (
	clients = 2 // clients per node
	verbs   = 8 // verbs per client
	keys    = 3
	lease   = 400 * time.Millisecond
)

var allVerbs = []verb{add, add, add, set, remove, reschedule, pause, resume, resume, exist, get}

var ctx = context.Background()

// A driver makes one history on two nodes.
type driver struct {
	history
	seed  uint64
	nodes []*durable.Scheduler

	asked sync.Map // when each durable.Claim was last sent for confirmation
}

// A confirmed is the engine of a node. It records when the node asks for starts: a start lies between that time and the
// call of the handler.
type confirmed struct {
	engine.Engine
	d *driver
}

func (e confirmed) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) ([]bool, int64, error) {
	for _, c := range claims {
		c.Starts = 0 // a run does not show it
		e.d.asked.Store(c, e.d.now())
	}
	return e.Engine.Confirm(ctx, by, claims, within)
}

// draws returns the random numbers of one part of a history.
func draws(seed uint64, part ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, part...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// some returns a random duration of at most most.
func some(rnd *rand.Rand, most time.Duration) time.Duration {
	return 1 + time.Duration(rnd.Int64N(int64(most)))
}

// kind returns the kind of the tasks of this history: the nodes of other histories leave them alone.
func (d *driver) kind() string { return fmt.Sprint("history ", d.seed) }

func (d *driver) join(t *testing.T, engine engine.Engine) {
	t.Helper()
	name := fmt.Sprint("node ", len(d.nodes))
	n, err := durable.New(ctx, confirmed{engine, d}, durable.WithNodeName(name), durable.WithLease(lease),
		durable.WithPoolSize(4), durable.WithLogger(testkit.Quiet()))
	if err == nil { // waits this short are not drawn at random; no run is given up, which the model does not know
		err = n.Handle(d.kind(), d.work, durable.WithRetry(math.MaxInt32, time.Nanosecond, time.Nanosecond))
	}
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.nodes = append(d.nodes, n)
}

var errWork = errors.New("the run fails")

// work is the handler.
func (d *driver) work(ctx context.Context, run durable.Run) error {
	task, _ := strconv.Atoi(string(run.Payload))
	c := call{verb: start, key: run.Key, task: task, times: run.Times, seq: run.Seq, fence: run.Fence}
	if c.times != durable.Forever {
		c.times++
	}
	asked, ok := d.asked.Load(engine.Claim{Key: run.Key, Revision: run.Fence})
	if !ok {
		asked, c.fence = int64(0), 0 // the model refuses a start without a fence
	}
	c.began = d.instant()
	d.note(0, asked.(int64), c, answer{ok: true})
	rnd := draws(d.seed, "work", run.Key, run.Seq, run.Payload)
	took := some(rnd, 20*time.Millisecond)
	if rnd.IntN(10) == 0 {
		took = some(rnd, 2*lease)
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
		if rnd.IntN(2) == 0 {
			return ctx.Err()
		}
	}
	if rnd.IntN(10) == 0 {
		return errWork
	}
	c.verb = end
	d.note(0, d.now(), c, answer{unknown: true})
	return nil
}

// drive lets the clients of all nodes call their verbs at the same time.
func (d *driver) drive(t *testing.T) {
	var all sync.WaitGroup
	for client := range clients * len(d.nodes) {
		all.Go(func() {
			rnd := draws(d.seed, "client", client)
			for i := range verbs {
				time.Sleep(some(rnd, 60*time.Millisecond))
				c := call{verb: allVerbs[rnd.IntN(len(allVerbs))], key: fmt.Sprint(d.seed, " ", rnd.IntN(keys))}
				if c.verb == add || c.verb == set {
					c.task, c.times = 1+client*verbs+i, []int{1, 1, 2, durable.Forever}[rnd.IntN(4)]
				}
				patience := 10 * time.Second
				if rnd.IntN(4) == 0 {
					patience = some(rnd, 30*time.Millisecond)
				}
				d.do(t, client, c, some(rnd, 120*time.Millisecond), patience)
			}
		})
	}
	all.Wait()
	time.Sleep(lease) // more runs
}

// settle reads every key on every node. No further fault may happen.
func (d *driver) settle(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for i := range len(d.nodes) * keys {
		c := call{verb: get, key: fmt.Sprint(d.seed, " ", i%keys)}
		for !d.do(t, i/keys*clients, c, 0, 10*time.Second) {
			if time.Now().After(deadline) {
				t.Errorf("seed %d: the engine does not answer, and there are no faults any more", d.seed)
				break
			}
		}
	}
	for _, n := range d.nodes {
		if err := n.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}
}

// do calls the verb and records it. after is when the task is due. It reports whether the outcome is known.
func (d *driver) do(t *testing.T, client int, c call, after, patience time.Duration) bool {
	n := d.nodes[client/clients]
	task := durable.Task{Key: c.key, Kind: d.kind(), Delay: after, Times: c.times}
	task.Payload = strconv.AppendInt(nil, int64(c.task), 10)
	if task.Times != 1 {
		task.Interval = 50*time.Millisecond + after
	}
	var a answer
	var err error
	called := d.now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch c.verb {
	case add:
		err = n.AddTask(ctx, task)
	case set:
		err = n.SetTask(ctx, task)
	case remove:
		err = n.RemoveTask(ctx, c.key)
	case reschedule:
		err = n.Reschedule(ctx, c.key, after)
	case pause:
		err = n.Pause(ctx, c.key)
	case resume:
		err = n.Resume(ctx, c.key)
	case exist:
		a.ok, err = n.Exist(ctx, c.key)
	case get:
		var info durable.Info
		if info, a.ok, err = n.Get(ctx, c.key); a.ok {
			a.task, _ = strconv.Atoi(string(info.Payload))
			a.times, a.seq, a.paused = info.Times, info.Seq, info.State == durable.Paused
		}
	}
	reads := c.verb == exist || c.verb == get
	switch {
	case err == nil:
		a.ok = a.ok || !reads
	case errors.Is(err, durable.ErrDuplicateTaskKey) && c.verb == add:
	case errors.Is(err, durable.ErrTaskKeyNotFound) && !reads && c.verb != add && c.verb != set:
	case errors.Is(err, durable.ErrUnavailable), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		if reads {
			return false // it carries no information
		}
		a.unknown = true
	default:
		t.Errorf("seed %d: %v %+v: %v", d.seed, c.verb, c, err)
	}
	d.note(client, called, c, a)
	return !a.unknown
}
