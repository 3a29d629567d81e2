// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
)

// WriteTx makes the writes in a transaction of the user, or returns the keys whose condition does not hold.
func WriteTx(ctx context.Context, e *Engine, tx pgx.Tx, writes ...durable.Write) (unmet []string, err error) {
	g := group{e: e, batches: []durable.Batch{writes}, results: make([]durable.Result, 1)}
	args, _ := g.arguments([]int{0})
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 0"); err != nil {
		return nil, err
	}
	done, err := g.write(ctx, tx, args)
	if err != nil {
		return nil, err
	}
	g.settle([]int{0}, done)
	return g.results[0].Unmet, nil
}

// WithNow makes the SQL the engine's clock.
func WithNow(sql string) Option { return func(c *config) { c.now = sql } }

// Text returns the schema's name as it is in statements.
func (e *Engine) Text(sql string) string { return e.config.sql(sql) }

// ClaimSQL returns the statement of a claim.
func ClaimSQL(e *Engine) string { return e.sql.claim }

// ConfirmSQL returns the statement of a confirmation.
func ConfirmSQL(e *Engine) string { return e.sql.confirm }

// SetSQL returns the statements before that in its transaction.
func SetSQL(e *Engine) []string { return []string{e.sql.set, e.sql.setOrdered} }

// Break takes a detail out of the engine's statements, to see that the tests find it.
func (e *Engine) Break(detail string) {
	cut := func(from *string, what string) {
		without := strings.Replace(*from, what, "", 1)
		if without == *from {
			panic("there is no " + what)
		}
		*from = without
	}
	switch detail {
	case "":
	case "a claim does not lock its member":
		cut(&e.sql.claim, "FOR KEY SHARE")
	default:
		panic(detail)
	}
}

// Schema1 is the SQL that makes the schema of version 1.
var Schema1 = "CREATE SCHEMA $schema;" + head + migrations[0] + "INSERT INTO $schema.version VALUES (true, 1, '');"

// Text returns SQL with the name of the schema.
func Text(sql string, opts ...Option) string {
	c, err := newConfig(opts)
	if err != nil {
		panic(err)
	}
	return c.sql(sql)
}

// FailingSQL returns the statement of a walk over what is failing.
func FailingSQL(e *Engine) string { return e.sql.failing }

// CommitSQL returns the statement of a commit.
func CommitSQL(e *Engine) string { return e.sql.commit }
