// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// committers is the number of concurrent committers in the second half of the case.
const committers = 16

// txSlices is how many slices of each variant alternate, so that foreign load hits both.
const txSlices = 10

const shopSchema = `
CREATE TABLE shop_order (id bigint PRIMARY KEY, placed timestamptz NOT NULL, note text NOT NULL)`

// measureTx measures the cost of a task in a user's transaction that inserts one row: the median latency of one caller,
// and the commits per second of 16 callers. The cost of an empty statement is the lower bound for any.
func measureTx(p peer, _ string, size sizes) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (figures, error) {
		ctx := context.Background()
		if err := execute(ctx, s.URL(), shopSchema); err != nil {
			return nil, err
		}
		c, err := p.open(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		pool, err := openPool(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		shop := &shop{pool: pool}
		empty := func(ctx context.Context, tx pgx.Tx, _ int) error {
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}
		var tasks atomic.Int64
		withTask := func(ctx context.Context, tx pgx.Tx, id int) error {
			tasks.Add(1)
			return c.addTx(ctx, tx, task{id, far(id)})
		}
		f := figures{}
		slice := size.commits / (2 * txSlices)
		for _, half := range []struct {
			name    string
			callers int
		}{{"one", 1}, {"many", committers}} {
			var plain, nothing, with commits
			for range txSlices {
				for _, variant := range []struct {
					sum  *commits
					then func(ctx context.Context, tx pgx.Tx, id int) error
				}{{&plain, nil}, {&nothing, empty}, {&with, withTask}} {
					if err := shop.commit(half.callers, slice, variant.then, variant.sum); err != nil {
						return nil, err
					}
				}
			}
			f[half.name+"_plain_ms"], f[half.name+"_with_ms"] = plain.median(), with.median()
			f[half.name+"_ratio"] = with.median() / plain.median()
			f[half.name+"_empty_ratio"] = nothing.median() / plain.median()
			f[half.name+"_plain_ops"], f[half.name+"_with_ops"] = plain.ops(), with.ops()
			f[half.name+"_ops_ratio"] = plain.ops() / with.ops()
			f[half.name+"_empty_ops_ratio"] = plain.ops() / nothing.ops()
		}
		return counted(c, int(tasks.Load()), f)
	})
}

// commits are the commits of one variant.
type commits struct {
	mu   sync.Mutex
	took []time.Duration // protected by mu

	during time.Duration
}

func (c *commits) median() float64 {
	slices.Sort(c.took)
	return ms(quantile(c.took, 0.5))
}

func (c *commits) ops() float64 { return float64(len(c.took)) / c.during.Seconds() }

// A shop is the user's program.
type shop struct {
	pool   *pgxpool.Pool
	orders atomic.Int64
}

// commit places orders for a while, each in a transaction, in which it also makes the call, if any.
func (s *shop) commit(callers int, during time.Duration, then func(context.Context, pgx.Tx, int) error, sum *commits,
) error {
	began := time.Now()
	_, _, err := together(callers, math.MaxInt, during, func(ctx context.Context, _ int) error {
		id := int(s.orders.Add(1))
		began := time.Now()
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO shop_order VALUES ($1, now(), 'six pairs of socks')`, id)
			if err == nil && then != nil {
				err = then(ctx, tx, id)
			}
			return err
		})
		took := time.Since(began)
		if err != nil {
			return err
		}
		sum.mu.Lock()
		defer sum.mu.Unlock()
		sum.took = append(sum.took, took)
		return nil
	})
	sum.during += time.Since(began)
	return err
}
