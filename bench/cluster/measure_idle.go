// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

const (
	idleNodes    = 3
	idleAdds     = 300              // adds from one caller, one after another
	statsLate    = 12 * time.Second // how late the server may count the work of a connection that is now idle
	idleRenewals = 20_000           // lease renewals of each node, under a forgotten transaction
)

// measureIdle measures the load that three nodes put on the server while nothing is due. Peers with leases are measured
// again under a forgotten transaction, after as many renewals as nodes make in hours.
func measureIdle(p peer, name string, size sizes) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (_ figures, err error) {
		ctx := context.Background()
		w := &idle{p: p}
		w.s = s
		if err := w.client(func() error { return fill(w.c, 0, size.live, far) }); err != nil {
			return nil, err
		}
		w.added = size.live
		nodes, err := startCluster(idleNodes, name, s.URL(), lease, 0)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, nodes.close()) }()
		w.nodes = nodes
		f, err := w.watch(size.idle)
		if err != nil {
			return nil, err
		}
		p, ok := p.(interface {
			renewals(ctx context.Context, url string, n int) error
		})
		if !ok {
			return f, nil
		}
		release, err := holdOpen(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, release()) }()
		if err := p.renewals(ctx, s.URL(), idleRenewals); err != nil {
			return nil, err
		}
		held, err := w.watch(size.idle)
		if err != nil {
			return nil, err
		}
		for figure, v := range held {
			f["held_"+figure] = v
		}
		f["server_ratio"], f["add_ratio"] = f["held_server_pct"]/f["server_pct"], f["held_add_p50_ms"]/f["add_p50_ms"]
		return f, nil
	})
}

// An idle is a cluster without due tasks.
type idle struct {
	load
	p     peer
	added int
}

// client opens the client while do runs.
func (w *idle) client(do func() error) (err error) {
	if w.c, err = w.p.open(context.Background(), w.s.URL()); err != nil {
		return err
	}
	defer w.c.close()
	return do()
}

// watch measures the load of the nodes for a while, and then adds a few far tasks.
func (w *idle) watch(during time.Duration) (figures, error) {
	err := errors.Join(analyze(w.s), execute(context.Background(), w.s.URL(), `CHECKPOINT`))
	if err != nil {
		return nil, err
	}
	time.Sleep(statsLate)
	if err := profileFrom(w.s); err != nil {
		return nil, err
	}
	began := time.Now()
	before, err := commitsOf(w.s.URL())
	if err != nil {
		return nil, err
	}
	nodesBefore, serverBefore, err := w.used()
	if err != nil {
		return nil, err
	}
	time.Sleep(during)
	nodesAfter, serverAfter, err := w.used()
	if err != nil {
		return nil, err
	}
	after, err := commitsOf(w.s.URL())
	if err != nil {
		return nil, err
	}
	of := time.Since(began).Seconds()
	f := figures{
		"server_pct": 100 * (serverAfter - serverBefore).Seconds() / of,
		"nodes_pct":  100 * (nodesAfter - nodesBefore).Seconds() / of,
		"commits":    (after - before) / of,
	}
	return f, w.client(func() error {
		took, err := repeat(idleAdds, func() (time.Duration, error) {
			began := time.Now()
			err := w.c.add(context.Background(), task{w.added, far(w.added)})
			w.added++
			return time.Since(began), err
		})
		f["add_p50_ms"] = ms(quantile(took, 0.5))
		return err
	})
}

// commitsOf returns how many transactions the server has committed.
func commitsOf(url string) (float64, error) {
	return numberOf(url, `SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()`)
}

// numberOf returns the number that the query selects, on a connection of its own.
func numberOf(url, query string) (n float64, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, query).Scan(&n)
	return n, errors.Join(err, conn.Close(ctx))
}
