// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// oursPeer is durable.New over durable/postgres, both with their defaults. Its tasks are of one kind, or take turns
// between several.
type oursPeer struct {
	kinds   int // 0 means one
	options []durable.KindOption
}

const oursKind = "recheck"

// kind returns the kind of a task.
func (p oursPeer) kind(id int) string {
	if p.kinds == 0 {
		return oursKind
	}
	return fmt.Sprint(oursKind, "-", id%p.kinds)
}

func (oursPeer) migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(postgres.Migrate(ctx, conn), conn.Close(ctx))
}

// join returns a node without starting it.
func (p oursPeer) join(
	ctx context.Context, url string, run durable.Handler, opts ...durable.Option,
) (*oursClient, error) {
	engine, err := postgres.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	s, err := durable.New(ctx, engine, opts...)
	if err != nil {
		engine.Close()
		return nil, err
	}
	c := &oursClient{engine, s, p}
	for i := range max(p.kinds, 1) {
		if err := s.Handle(p.kind(i), run, p.options...); err != nil {
			return nil, errors.Join(err, c.shutdown())
		}
	}
	return c, nil
}

func (p oursPeer) open(ctx context.Context, url string) (client, error) {
	return p.join(ctx, url, func(context.Context, durable.Run) error { return errors.New("not started") })
}

// renewals creates n versions of each member's row, like renewals of its lease.
func (oursPeer) renewals(ctx context.Context, url string, n int) error {
	return execute(ctx, url, fmt.Sprintf(`DO $$ BEGIN
		FOR i IN 1..%d LOOP UPDATE timewheel.member SET until = until + 1; COMMIT; END LOOP; END $$`, n))
}

// copyIn adds n tasks, numbered from from, to the table in one statement. The rows are as AddTask writes them.
func (oursPeer) copyIn(ctx context.Context, url string, from, n int, due func(id int) time.Time) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	rows := pgx.CopyFromSlice(n, func(i int) ([]any, error) {
		w, err := oursWrite(task{from + i, due(from + i)})
		return []any{[]byte(w.Key), w.Due, i + 1, []byte(w.Kind), w.Data}, err
	})
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"timewheel", "task"},
		[]string{"key", "due", "revision", "kind", "data"}, rows)
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT setval('timewheel.revision', $1)`, n)
	}
	return errors.Join(err, conn.Close(ctx))
}

func oursWrite(t task) (engine.Write, error) {
	const delay = 1
	return author.Add(durable.Task{Key: t.key(), Kind: oursKind, Payload: t.payload(), Delay: delay},
		t.due.UnixNano()-delay)
}

type oursClient struct {
	engine *postgres.Engine
	node   *durable.Scheduler
	peer   oursPeer
}

func (c *oursClient) task(t task) durable.Task {
	return durable.Task{Key: t.key(), Kind: c.peer.kind(t.id), Payload: t.payload(), At: t.due}
}

func (c *oursClient) add(ctx context.Context, tasks ...task) error {
	all := make([]durable.Task, len(tasks))
	for i, t := range tasks {
		all[i] = c.task(t)
	}
	return c.node.AddTask(ctx, all...)
}

func (c *oursClient) addTx(ctx context.Context, tx pgx.Tx, t task) error {
	return c.engine.AddTaskTx(ctx, tx, c.task(t))
}

func (c *oursClient) remove(ctx context.Context, id int) error {
	return c.node.RemoveTask(ctx, task{id: id}.key())
}

func (c *oursClient) live(ctx context.Context) (n int, err error) {
	kinds, err := c.engine.Count(ctx)
	for _, k := range kinds {
		n += k.Tasks
	}
	return n, err
}

func (c *oursClient) shutdown() error {
	err := c.node.Shutdown(context.Background())
	c.engine.Close()
	return err
}

func (c *oursClient) close() { _ = c.shutdown() }

func (p oursPeer) start(
	ctx context.Context, url, name string, lease time.Duration, run func([]byte),
) (func() error, error) {
	handler := func(_ context.Context, r durable.Run) error {
		run(r.Payload)
		return nil
	}
	c, err := p.join(ctx, url, handler, durable.WithNodeName(name), durable.WithLease(lease))
	if err != nil {
		return nil, err
	}
	return c.shutdown, c.node.Start()
}

// oursClaimer makes the calls of a node.
type oursClaimer struct {
	engine *postgres.Engine
	member engine.MemberID
	held   []engine.Stored
	cursor int64 // due time of the last claimed overdue task
}

func (oursPeer) claims(ctx context.Context, url string) (claimer, error) {
	engine, err := postgres.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	c := &oursClaimer{engine: engine}
	c.member, _, err = engine.Join(ctx, "bench", time.Hour)
	return c, err
}

func (c *oursClaimer) put(ctx context.Context, tasks []task) error {
	var batch engine.Batch
	for _, t := range tasks {
		w, err := oursWrite(t)
		if err != nil {
			return err
		}
		batch = append(batch, w)
	}
	results, err := c.engine.Commit(ctx, 0, []engine.Batch{batch})
	if err == nil && len(results[0].Written) != len(batch) {
		err = fmt.Errorf("tasks were not added: %+v", results[0])
	}
	return err
}

// claim claims tasks due now or soon, as a node does ten times a second. If there are none it claims overdue tasks,
// starting where the last such claim ended.
func (c *oursClaimer) claim(ctx context.Context, most int) (int, error) {
	now := time.Now()
	soon, late := now.Add(time.Second).UnixNano(), now.Add(-time.Second).UnixNano()
	got, err := c.engine.Claim(ctx, c.request(late, soon, most))
	if err == nil && len(got.Tasks) == 0 {
		got, err = c.engine.Claim(ctx, c.request(c.cursor, late, most))
		if n := len(got.Tasks); n > 0 {
			c.cursor = got.Tasks[n-1].Due - 1
		}
	}
	c.held = append(c.held, got.Tasks...)
	return len(got.Tasks), err
}

func (c *oursClaimer) request(after, until int64, most int) engine.ClaimRequest {
	return engine.ClaimRequest{
		By: c.member, Kinds: []string{oursKind}, After: after, Until: until, Most: most, Readable: math.MaxUint8,
	}
}

// overdue claims overdue tasks, from the beginning, as a node does every second.
func (c *oursClaimer) overdue(ctx context.Context) error {
	late := time.Now().Add(-time.Second).UnixNano()
	_, err := c.engine.Claim(ctx, c.request(engine.None, late, claimSize))
	return err
}

func (c *oursClaimer) finish(ctx context.Context) error {
	var batches []engine.Batch
	for _, s := range c.held {
		w := engine.Write{Record: engine.Record{Key: s.Key}, If: engine.IfUnchanged, Revision: s.Revision}
		batches = append(batches, engine.Batch{w})
	}
	c.held = nil
	if len(batches) == 0 {
		return nil
	}
	_, err := c.engine.Commit(ctx, c.member, batches)
	return err
}

func (c *oursClaimer) close() {
	_ = c.engine.Leave(context.Background(), c.member)
	c.engine.Close()
}
