// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	ours       = "durable/postgres"
	riverName  = "River"
	polledName = "polled table"
)

// peerNames are the peers in the order of the tables.
var peerNames = []string{ours, riverName, polledName}

var peers = map[string]peer{
	ours: oursPeer{}, riverName: riverPeer{}, polledName: polled{},
	limitedCase: oursPeer{options: limited}, "keeps": oursPeer{options: keeps}, "kinds": oursPeer{kinds: slowKinds}, "kinds keep": oursPeer{slowKinds, keeps},
}

// A peer runs tasks later, on nodes over one PostgreSQL.
type peer interface {
	// migrate makes its tables.
	migrate(ctx context.Context, url string) error

	// open returns a client that adds and removes tasks, but does not run them.
	open(ctx context.Context, url string) (client, error)

	// start starts a node that calls run with the payload of each due task. stop ends it gracefully.
	start(
		ctx context.Context, url, name string, lease time.Duration, run func([]byte),
	) (stop func() error, err error)

	// claims returns a claimer that takes due tasks from the peer's tables, without a node.
	claims(ctx context.Context, url string) (claimer, error)
}

// A client adds and removes tasks. It is safe for concurrent use.
type client interface {
	add(ctx context.Context, tasks ...task) error
	addTx(ctx context.Context, tx pgx.Tx, t task) error
	remove(ctx context.Context, id int) error    // id of a task that this client has added
	live(ctx context.Context) (n int, err error) // tasks that have not yet run
	close()
}

// A claimer changes the tables as nodes do: it takes due tasks, and ends them.
type claimer interface {
	put(ctx context.Context, tasks []task) error
	claim(ctx context.Context, most int) (n int, err error) // claims the earliest due tasks
	finish(ctx context.Context) error                       // ends the claimed tasks
	close()
}

// A task is due by the clock of this machine, which is also PostgreSQL's clock.
type task struct {
	id  int
	due time.Time
}

func (t task) key() string { return fmt.Sprintf("order:%010d", t.id) }

// payloadLen is the number of bytes in each payload.
const payloadLen = 100

// payload returns a payload that begins with the number of the task.
func (t task) payload() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(t.id)), make([]byte, payloadLen-8)...)
}

func idOf(payload []byte) int { return int(binary.BigEndian.Uint64(payload)) }

// tasksFrom returns n tasks, numbered from from.
func tasksFrom(from, n int, due func(id int) time.Time) []task {
	all := make([]task, n)
	for i := range all {
		all[i] = task{from + i, due(from + i)}
	}
	return all
}

// far returns a due time after the end of the benchmark.
func far(id int) time.Time {
	return time.Now().Add(2*time.Hour + time.Duration(id%1_000_000)*time.Millisecond)
}

// fill adds n tasks, numbered from from, in batches.
func fill(c client, from, n int, due func(id int) time.Time) error {
	_, _, err := together(batchers, (n+batch-1)/batch, limit, func(ctx context.Context, i int) error {
		return c.add(ctx, tasksFrom(from+i*batch, min(batch, n-i*batch), due)...)
	})
	return err
}
