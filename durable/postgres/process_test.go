// SPDX-License-Identifier: MIT

package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The test program runs as a node of a cluster if the environment has its settings.
const processEnv = "TIMEWHEEL_TEST_NODE"

// A process is the settings of a node.
type process struct {
	Name, URL, Schema, Ledger string
	Lease                     time.Duration
	Version                   int    // of the program: it handles the kinds of this and earlier versions
	Sabotage                  string // the part of the product that is broken on purpose
}

// lease is the lease of the nodes.
var lease = time.Second

// An event is a line of the ledger that a process keeps outside the product. Its times follow the machine's clock, and
// Due follows the server's: see clock.
type event struct {
	At     int64
	Node   string
	What   string // add, remove, move, pause, resume: a verb has returned; call, lease, reap, alien, confirm, start, end; stop: the process was stopped, from From to At; pause kind, drain: the verb has returned, for the kind or node in Key
	Verb   string `json:",omitempty"` // of call
	Key    string
	Kind   string        `json:",omitempty"` // of start
	From   int64         `json:",omitempty"` // when the verb or the engine was called
	Delay  time.Duration `json:",omitempty"` // of add and move
	Err    string        `json:",omitempty"`
	Member int64         `json:",omitempty"` // of lease and confirm
	Fence  int64         `json:",omitempty"`
	Due    int64         `json:",omitempty"`
	Token  string        `json:",omitempty"`
}

// A ledger writes each event as it happens, so that it survives the end of the process.
type ledger struct {
	mu   sync.Mutex // protects file
	file *os.File
	node string
}

func (l *ledger) note(ev event) {
	ev.At, ev.Node = systemTime()+int64(time.Microsecond), l.node // not before that time
	line, err := json.Marshal(ev)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// systemTime is the system's time in whole microseconds. The time of package time may be wrong on purpose.
func systemTime() int64 {
	var t syscall.Timeval
	if err := syscall.Gettimeofday(&t); err != nil {
		panic(err)
	}
	return int64(t.Sec)*int64(time.Second) + int64(t.Usec)*int64(time.Microsecond)
}

// A watched engine records the decisions to start, the leases and the reaps. It is broken on purpose if the test says
// so, and holds back a start until the lease has expired if it is asked to.
type watched struct {
	*postgres.Engine
	ledger   *ledger
	sabotage string
	kinds    []string // that the node handles

	stalls atomic.Bool  // the next start is held back
	awake  sync.RWMutex // locked while a start is held back
	until  atomic.Int64 // the latest end of the lease
	cursor atomic.Int64 // of a sabotage
}

// leased records an answer of the engine that grants a lease, or a missing one.
func (w *watched) leased(id engine.MemberID, from int64, err error) {
	ev := event{What: "lease", Member: int64(id), From: from}
	if err != nil {
		ev.Err = err.Error()
	}
	w.ledger.note(ev)
	w.until.Store(systemTime() + int64(lease+time.Microsecond))
}

func (w *watched) Join(ctx context.Context, name string, d time.Duration) (engine.MemberID, int64, error) {
	from := systemTime()
	id, now, err := w.Engine.Join(ctx, name, d)
	if err == nil {
		w.leased(id, from, nil)
	}
	return id, w.wrong(now), err
}

func (w *watched) Renew(ctx context.Context, by engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	w.awake.RLock()
	defer w.awake.RUnlock()
	from := systemTime()
	members, now, err := w.Engine.Renew(ctx, by, report)
	if by != 0 && !errors.Is(err, engine.ErrMemberGone) {
		w.leased(by, from, err)
	}
	return members, w.wrong(now), err
}

func (w *watched) Look(ctx context.Context, by engine.MemberID, report []byte, r engine.LookRequest) (engine.Looked, error) {
	w.awake.RLock()
	defer w.awake.RUnlock()
	from := systemTime()
	l, err := w.Engine.Look(ctx, by, report, r)
	if !errors.Is(err, engine.ErrMemberGone) {
		w.leased(by, from, err)
	}
	l.Now = w.wrong(l.Now)
	return l, err
}

func (w *watched) Reap(ctx context.Context) ([]string, error) {
	from := systemTime()
	names, err := w.Engine.Reap(ctx)
	for _, name := range names {
		w.ledger.note(event{What: "reap", Key: name, From: from})
	}
	return names, err
}

func (w *watched) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if w.sabotage == "9 a cursor over due times" {
		r.After = max(r.After, w.cursor.Load())
		w.cursor.Store(max(w.cursor.Load(), r.Until))
	}
	c, err := w.Engine.Claim(ctx, r)
	for _, s := range c.Tasks {
		if !slices.Contains(w.kinds, s.Kind) {
			w.ledger.note(event{What: "alien", Key: s.Key})
		}
	}
	c.Now = w.wrong(c.Now)
	return c, err
}

func (w *watched) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) (held []bool, now int64, err error) {
	if w.stalls.CompareAndSwap(true, false) {
		w.awake.Lock()
		defer w.awake.Unlock()
		time.Sleep(time.Duration(w.until.Load()-systemTime()) + 20*time.Millisecond)
		ctx = context.WithoutCancel(ctx) // the request is on its way
	}
	from := systemTime()
	if w.sabotage == "1 no start fence" {
		if _, now, err = w.Engine.Renew(ctx, by, nil); err == nil {
			held = slices.Repeat([]bool{true}, len(claims))
		}
	} else {
		slow := w.sabotage == "nobody waits for a run that may begin"
		if slow {
			within = 0
		}
		held, now, err = w.Engine.Confirm(ctx, by, claims, within)
		if slow {
			time.Sleep(60 * time.Millisecond) // the answer is on its way
		}
	}
	for i, ok := range held {
		if ok {
			w.ledger.note(event{What: "confirm", Key: claims[i].Key, Fence: claims[i].Revision, From: from,
				Member: int64(by)})
		}
	}
	return held, w.wrong(now), err
}

func (w *watched) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	if w.sabotage == "3 acknowledgement at any revision" {
		for i := range batches {
			for j, write := range batches[i] {
				if write.If == engine.IfUnchanged {
					batches[i][j].If = engine.IfPresent
				}
			}
		}
	}
	if w.sabotage == "a pause is forgotten" {
		for i := range batches {
			for j := range batches[i] {
				write := &batches[i][j]
				if got, err := w.Get(ctx, write.Key); write.Due == pausedDue && len(got) == 1 && err == nil {
					write.Record, write.Hold = got[0].Record, false
				}
			}
		}
	}
	return w.Engine.Commit(ctx, by, batches)
}

func (w *watched) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if w.sabotage == "5 no reconciliation" && over.Order == engine.Held {
		return func(yield func(engine.Stored, error) bool) { yield(engine.Stored{}, errors.New("sabotage")) }
	}
	return w.Engine.Walk(ctx, over)
}

// wrong returns the engine's time as a node whose clock is ahead sees it.
func (w *watched) wrong(now int64) int64 {
	if w.sabotage == "4 a clock of the node's own" {
		return now + int64(500*time.Millisecond)
	}
	return now
}

// run runs the node. Lines of its input are orders: stop ends the verbs, stall holds back a start. It returns at the
// end of its input.
func (p process) run() error {
	ctx := context.Background()
	lease = p.Lease
	file, err := os.OpenFile(p.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	own, byClient := &ledger{file: file, node: p.Name}, &ledger{file: file, node: p.Name + ofClient}
	w := &watched{ledger: own, sabotage: p.Sabotage, kinds: []string{"work", "effect"}}
	for v := range p.Version {
		w.kinds = append(w.kinds, versionKind(v+1))
	}
	cfg, err := pgxpool.ParseConfig(p.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	var s *durable.Scheduler
	for s == nil { // the server may be away
		w.Engine, err = postgres.OpenPool(ctx, pool, postgres.WithSchema(p.Schema), postgres.WithConnections(8),
			postgres.WithServersClock())
		if err != nil {
			continue
		}
		w.Break(p.Sabotage)
		s, err = durable.New(ctx, w, durable.WithNodeName(p.Name), durable.WithLease(lease), durable.WithPoolSize(16),
			durable.WithLogger(testkit.Quiet()))
		if err != nil {
			w.Close()
		}
	}
	engine := w.Engine
	defer engine.Close()
	handle := func(kind string, effect func(ctx context.Context, run durable.Run) error) error {
		return s.Handle(kind, func(ctx context.Context, run durable.Run) error {
			ev := event{What: "start", Key: run.Key, Kind: run.Kind, Fence: run.Fence, Due: run.Due.UnixNano(),
				Token: run.Token.String()}
			own.note(ev)
			time.Sleep(rand.N(20 * time.Millisecond))
			if err := effect(ctx, run); err != nil {
				return err
			}
			ev.What = "end"
			own.note(ev)
			return nil
		}, durable.WithRetry(100, 10*time.Millisecond, 200*time.Millisecond))
	}
	work := func(context.Context, durable.Run) error {
		if rand.N(10) == 0 {
			return errors.New("one in ten fails")
		}
		return nil
	}
	for v := range p.Version {
		if err := handle(versionKind(v+1), work); err != nil {
			return err
		}
	}
	err = errors.Join(
		handle("work", work),
		handle("effect", func(ctx context.Context, run durable.Run) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", run.Key); err != nil {
					return err
				}
				if p.Sabotage == "12 completion outside the transaction" {
					return nil
				}
				return engine.CompleteTx(ctx, tx, run)
			})
		}),
		s.Start(),
	)
	if err != nil {
		return err
	}
	// Half of the callers use a client, because a verb on the node that holds the task never meets a run that is about to begin.
	// Its lease is that of the nodes, because it asks for the time of the server as often as they do.
	var client *durable.Scheduler
	for client == nil { // the server may be away
		client, _ = durable.Connect(ctx, engine, durable.WithLease(lease), durable.WithLogger(testkit.Quiet()))
	}
	err = errors.Join(client.Declare("work"), client.Declare("effect"), client.Declare(versionKind(p.Version)))
	if err != nil {
		return err
	}
	verbs, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for caller := range 4 {
		on, notes := s, own
		if caller%2 == 1 {
			on, notes = client, byClient
		}
		all.Go(func() { p.verbs(verbs, on, late{pool, engine}, notes, caller) })
	}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "stop":
			stop()
			all.Wait()
		case "stall":
			w.stalls.Store(true)
		}
	}
	stop()
	all.Wait()
	within, cancel := context.WithTimeout(ctx, time.Minute) // or it hangs
	defer cancel()
	return errors.Join(client.Shutdown(within), s.Shutdown(within))
}

// ofClient ends the name under which the client of a process notes its verbs.
const ofClient = " client"

// pausedDue is the due time of a paused task.
const pausedDue = math.MaxInt64 - 1

// versionKind returns the kind of tasks that a version of the program introduced.
func versionKind(version int) string { return fmt.Sprint("version ", version) }

// late adds tasks in transactions that are committed when the tasks are due, or later.
type late struct {
	pool   *pgxpool.Pool
	engine *postgres.Engine
}

func (l late) add(ctx context.Context, task durable.Task) error {
	return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if err := l.engine.AddTaskTx(ctx, tx, task); err != nil {
			return err
		}
		time.Sleep(task.Delay + rand.N(lease/2))
		return nil
	})
}

// verbs adds tasks, and removes, moves or pauses some of them around their due times.
func (p process) verbs(ctx context.Context, s *durable.Scheduler, late late, ledger *ledger, caller int) {
	call := func(ev event, verb func(ctx context.Context) error) error {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ev.From = systemTime()
		ledger.note(event{What: "call", Verb: ev.What, Key: ev.Key}) // the process may be killed before it returns
		err := verb(limit)
		if err != nil {
			ev.Err = err.Error()
			if errors.Is(err, durable.ErrTaskKeyNotFound) {
				ev.Err = notFound
			}
		}
		ledger.note(ev)
		return err
	}
	var later sync.WaitGroup
	defer later.Wait()
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("%s/%d/%d", p.Name, caller, i)
		delay := 100*time.Millisecond + rand.N(1500*time.Millisecond)
		kind := []string{"work", "effect", versionKind(p.Version), "effect"}[i%4]
		begun := time.Now()
		if i%100 == 0 {
			task := durable.Task{Key: key, Kind: kind, Delay: delay}
			later.Go(func() {
				_ = call(event{What: "late add", Key: key, Delay: delay}, func(ctx context.Context) error {
					return late.add(ctx, task)
				})
			})
			continue
		}
		err := call(event{What: "add", Key: key, Delay: delay}, func(ctx context.Context) error {
			return s.AddTask(ctx, durable.Task{Key: key, Kind: kind, Delay: delay})
		})
		wait := delay - time.Since(begun) + rand.N(10*time.Millisecond) - 5*time.Millisecond
		if err == nil && i%5 > 1 {
			later.Go(func() {
				time.Sleep(wait)
				switch i % 5 {
				case 2:
					_ = call(event{What: "remove", Key: key}, func(ctx context.Context) error {
						return s.RemoveTask(ctx, key)
					})
				case 3:
					_ = call(event{What: "move", Key: key, Delay: delay}, func(ctx context.Context) error {
						return s.Reschedule(ctx, key, delay)
					})
				case 4:
					_ = call(event{What: "pause", Key: key}, func(ctx context.Context) error {
						return s.Pause(ctx, key)
					})
					time.Sleep(rand.N(lease / 2))
					_ = call(event{What: "resume", Key: key}, func(ctx context.Context) error {
						return s.Resume(ctx, key)
					})
				}
			})
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
}

const notFound = "not found"
