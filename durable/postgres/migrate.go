// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed581295f1/timewheel/durable"
)

// ErrSchema is the error of Open and OpenPool for a schema that is not there, or not of the version that this
// package needs, when they may not migrate it. It is also that for a schema of another cluster. A schema of a
// later version is durable.ErrVersion.
var ErrSchema = errors.New("postgres: the schema does not fit")

// The migrations are numbered from 1, by their place. They only add, so that programs of the version before can
// go on with the schema, and doing one again changes nothing. Released ones never change.
var migrations = []string{`
CREATE TABLE IF NOT EXISTS $schema.member (
	id    bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name  text    NOT NULL,
	lease bigint  NOT NULL,               -- its length in nanoseconds
	until bigint  NOT NULL,               -- when it runs out, in nanoseconds since 1970
	gone  boolean NOT NULL DEFAULT false  -- it has left or was reaped; the row stays while it owns tasks
);
CREATE SEQUENCE IF NOT EXISTS $schema.revision CACHE 1; -- a greater cache would lose the order
CREATE TABLE IF NOT EXISTS $schema.task (
	key      bytea   PRIMARY KEY,
	due      bigint  NOT NULL,            -- in nanoseconds since 1970; 9223372036854775807: parked
	revision bigint  NOT NULL,
	owner    bigint,                      -- the member that holds it, or NULL
	starts   integer NOT NULL DEFAULT 0,
	kind     bytea   NOT NULL,
	data     bytea   NOT NULL
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS task_owner_due_key ON $schema.task (owner, due, key);
`, `
ALTER TABLE $schema.member ADD COLUMN IF NOT EXISTS report bytea; -- what the member says about itself
-- The due time with which the task was written as failing, or NULL. What a program of the version before has written
-- since has another due time, as a rule, and so is not failing by mistake. What that has parked is found by its due
-- time; what that retries is found after its next attempt.
ALTER TABLE $schema.task ADD COLUMN IF NOT EXISTS failing bigint;
CREATE INDEX IF NOT EXISTS task_failing ON $schema.task (key) WHERE due = 9223372036854775807 OR failing = due;
`, `
-- What the schedulers keep with the tasks: what is paused. Programs of the version before do not know it, and run
-- what is paused.
CREATE TABLE IF NOT EXISTS $schema.settings (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	revision bigint  NOT NULL,
	data     bytea   NOT NULL
);
`}

// head is what comes before the migrations. The row of the table says which of them the schema has.
const head = `
CREATE TABLE IF NOT EXISTS $schema.version (
	one     boolean PRIMARY KEY DEFAULT true CHECK (one),
	version integer NOT NULL,
	cluster text    NOT NULL
);
`

// Schema returns the SQL that makes the schema, or brings an older one to the present version. It is for
// programs with a migration tool of their own, which open the engine with WithoutMigration. It is to be run in
// one transaction. To run it again changes nothing.
func Schema(opts ...Option) (string, error) {
	c, err := newConfig(opts)
	if err != nil {
		return "", err
	}
	text := "CREATE SCHEMA IF NOT EXISTS $schema;" + head + strings.Join(migrations, "") +
		fmt.Sprintf("INSERT INTO $schema.version (version, cluster) VALUES (%d, %s)\n\tON CONFLICT (one) "+
			"DO UPDATE SET version = greatest($schema.version.version, %[1]d);\n",
			len(migrations), quote(c.cluster))
	return c.sql(text), nil
}

// quote returns s as a constant of SQL.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// sql puts the name of the schema into a text.
func (c config) sql(text string) string {
	return strings.ReplaceAll(text, "$schema", pgx.Identifier{c.schema}.Sanitize())
}

// Migrate makes the schema, or brings it to the version that this package needs. Open does so, too, without
// WithoutMigration. Any number of programs may migrate at the same time. The connection must not be in a
// transaction. The role needs the right to create a schema in the database, or else to own the schema.
func Migrate(ctx context.Context, conn *pgx.Conn, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	return c.migrateOn(ctx, conn)
}

func (c config) migrateOn(ctx context.Context, conn *pgx.Conn) error {
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return c.migrateIn(ctx, tx) })
		// Of programs that create the same thing at the same time, all but one fail.
		if is(err, "23505", "42P06", "42P07", "42710") && try < 10 {
			continue
		}
		return explain("migrate schema "+c.schema, err)
	}
}

func (c config) migrateIn(ctx context.Context, tx pgx.Tx) error {
	var there bool // who may not create schemas may not say IF NOT EXISTS either
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", c.schema).Scan(&there)
	if err != nil {
		return err
	}
	if !there {
		if _, err := tx.Exec(ctx, c.sql("CREATE SCHEMA $schema")); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, c.sql(head), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, c.sql("LOCK TABLE $schema.version IN EXCLUSIVE MODE")); err != nil {
		return err
	}
	version, err := c.check(ctx, tx)
	if err != nil || version == len(migrations) {
		return err
	}
	for _, m := range migrations[version:] {
		if _, err := tx.Exec(ctx, c.sql(m), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, c.sql("INSERT INTO $schema.version (version, cluster) VALUES ($1, $2)"+
		" ON CONFLICT (one) DO UPDATE SET version = $1"), len(migrations), c.cluster)
	return err
}

// check returns the version of the schema, or 0 if there is none. The error says why this program must not use
// it.
func (c config) check(ctx context.Context, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (int, error) {
	var version int
	var cluster string
	err := on.QueryRow(ctx, c.sql("SELECT version, cluster FROM $schema.version")).Scan(&version, &cluster)
	switch {
	case errors.Is(err, pgx.ErrNoRows), is(err, "3F000", "42P01"): // no such schema, no such table
		return 0, nil
	case err != nil:
		return 0, err
	case version > len(migrations):
		return 0, fmt.Errorf("%w: schema %q has version %d, and this program knows %d and earlier",
			durable.ErrVersion, c.schema, version, len(migrations))
	case cluster != c.cluster:
		return 0, fmt.Errorf("%w: schema %q is that of cluster %q, and not of %q", ErrSchema, c.schema, cluster,
			c.cluster)
	}
	return version, nil
}

// is reports whether the error is the server's, with one of the codes.
func is(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, code := range codes {
		if pg.Code == code {
			return true
		}
	}
	return false
}

// explain returns the error with what was done, and with what helps against it.
func explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case is(err, "42501"):
		return fmt.Errorf("postgres: %s: the role lacks a right: %w", what, err)
	case is(err, "25006"):
		return fmt.Errorf("postgres: %s: the server is a standby or read-only: %w", what, err)
	case errors.Is(err, ErrSchema), errors.Is(err, durable.ErrVersion):
		return err
	}
	return fmt.Errorf("postgres: %s: %w", what, err)
}
