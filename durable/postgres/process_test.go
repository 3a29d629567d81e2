// SPDX-License-Identifier: MIT

package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The test program is a node of a cluster if the environment has its settings.
const processEnv = "TIMEWHEEL_TEST_NODE"

// A process is the settings of a node.
type process struct {
	Name, URL, Schema, Ledger string
	Sabotage                  string // what of the product is broken on purpose
}

// lease is that of the nodes.
const lease = time.Second

// An event is a line of the ledger that a process keeps outside the product. Its time is the system's, which is
// the server's, too.
type event struct {
	At    int64
	Node  string
	What  string // add, remove, move: a verb has returned; call, confirm, start, end
	Verb  string `json:",omitempty"` // of call
	Key   string
	From  int64         // when the verb was called, or Confirm
	Delay time.Duration // of add and move
	Err   string        `json:",omitempty"`
	Fence int64         `json:",omitempty"`
	Due   int64         `json:",omitempty"`
	Token string        `json:",omitempty"`
}

// A ledger writes each event as it happens, so that it survives the end of the process.
type ledger struct {
	mu   sync.Mutex // protects file
	file *os.File
	node string
}

func (l *ledger) note(ev event) {
	ev.At, ev.Node = time.Now().UnixNano(), l.node
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

// A watched engine notes the decisions to start, and is broken on purpose if the test says so.
type watched struct {
	*postgres.Engine
	ledger   *ledger
	sabotage string
}

func (w *watched) Confirm(ctx context.Context, by durable.MemberID, claims []durable.Claim,
) (held []bool, now int64, err error) {
	from := time.Now().UnixNano()
	if w.sabotage == "no start fence" {
		if now, _, err = w.Renew(ctx, by, nil); err == nil {
			held = slices.Repeat([]bool{true}, len(claims))
		}
	} else {
		held, now, err = w.Engine.Confirm(ctx, by, claims)
	}
	for i, ok := range held {
		if ok {
			w.ledger.note(event{What: "confirm", Key: claims[i].Key, Fence: claims[i].Revision, From: from})
		}
	}
	return held, now, err
}

func (w *watched) Commit(ctx context.Context, by durable.MemberID, batches []durable.Batch,
) ([]durable.Result, error) {
	if w.sabotage == "acknowledgement at any revision" {
		for i := range batches {
			for j, write := range batches[i] {
				if write.If == durable.IfUnchanged {
					batches[i][j].If = durable.IfPresent
				}
			}
		}
	}
	return w.Engine.Commit(ctx, by, batches)
}

func (w *watched) Claimed(ctx context.Context, by durable.MemberID) ([]durable.Stored, error) {
	if w.sabotage == "no reconciliation" {
		return nil, errors.New("sabotage")
	}
	return w.Engine.Claimed(ctx, by)
}

// run is the node. It does verbs until it reads a line, and ends at the end of its input.
func (p process) run() error {
	ctx := context.Background()
	file, err := os.OpenFile(p.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	ledger := &ledger{file: file, node: p.Name}
	pool, err := pgxpool.New(ctx, p.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	var engine *postgres.Engine
	var s *durable.Scheduler
	for s == nil { // the server may be away
		engine, err = postgres.OpenPool(ctx, pool, postgres.WithSchema(p.Schema), postgres.WithConnections(8))
		if err != nil {
			continue
		}
		s, err = durable.Join(ctx, &watched{engine, ledger, p.Sabotage},
			durable.WithNode(p.Name), durable.WithLease(lease), durable.WithPoolSize(16),
			durable.WithLogger(testkit.Quiet()))
		if err != nil {
			engine.Close()
		}
	}
	defer engine.Close()
	handle := func(kind string, effect func(ctx context.Context, run durable.Run) error) error {
		return s.Handle(kind, func(ctx context.Context, run durable.Run) error {
			ev := event{What: "start", Key: run.Key, Fence: run.Fence, Due: run.Due.UnixNano(),
				Token: run.Token.String()}
			ledger.note(ev)
			time.Sleep(rand.N(20 * time.Millisecond))
			if err := effect(ctx, run); err != nil {
				return err
			}
			ev.What = "end"
			ledger.note(ev)
			return nil
		}, durable.WithRetry(100, 10*time.Millisecond, 200*time.Millisecond))
	}
	err = errors.Join(
		handle("work", func(context.Context, durable.Run) error {
			if rand.N(10) == 0 {
				return errors.New("one in ten fails")
			}
			return nil
		}),
		handle("effect", func(ctx context.Context, run durable.Run) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", run.Key); err != nil {
					return err
				}
				if p.Sabotage == "completion outside the transaction" {
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
	verbs, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for caller := range 4 {
		all.Go(func() { p.verbs(verbs, s, ledger, caller) })
	}
	input := bufio.NewReader(os.Stdin)
	_, _ = input.ReadString('\n')
	stop()
	all.Wait()
	_, _ = input.ReadString('\n')
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.Shutdown(within)
}

// verbs adds tasks, and removes or moves some of them about when they are due.
func (p process) verbs(ctx context.Context, s *durable.Scheduler, ledger *ledger, caller int) {
	call := func(ev event, verb func(ctx context.Context) error) error {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ev.From = time.Now().UnixNano()
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
		kind := []string{"work", "effect"}[i%2]
		begun := time.Now()
		err := call(event{What: "add", Key: key, Delay: delay}, func(ctx context.Context) error {
			return s.AddTask(ctx, durable.Task{Key: key, Kind: kind, Delay: delay})
		})
		wait := delay - time.Since(begun) + rand.N(10*time.Millisecond) - 5*time.Millisecond
		if err == nil && i%3 > 0 {
			later.Go(func() {
				time.Sleep(wait)
				if i%3 == 1 {
					_ = call(event{What: "remove", Key: key}, func(ctx context.Context) error {
						return s.RemoveTask(ctx, key)
					})
					return
				}
				_ = call(event{What: "move", Key: key, Delay: delay}, func(ctx context.Context) error {
					return s.Reschedule(ctx, key, delay)
				})
			})
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
}

const notFound = "not found"
