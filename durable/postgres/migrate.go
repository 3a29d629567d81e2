// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrSchema is returned by Open and OpenPool if the schema does not exist or has an older version, and they are not
// allowed to migrate it. It is also returned if the schema belongs to another cluster. For a schema with a later
// version, the error is durable.ErrVersion instead.
var ErrSchema = errors.New("postgres: the schema does not fit")

// The migrations are numbered from 1. The first makes the tables. Later ones remove no table or column that the previous
// version uses, so its programs can continue to use the schema. Applying a migration again changes nothing. Released
// migrations never change.
var migrations = []string{`
CREATE TABLE IF NOT EXISTS $schema.member (
	id     bigint  GENERATED ALWAYS AS IDENTITY, -- drawn at random, and so unique without an index
	name   text    NOT NULL,
	lease  bigint  NOT NULL,               -- its length in nanoseconds
	until  bigint  NOT NULL,               -- when it runs out, in nanoseconds since 1970
	gone   boolean NOT NULL DEFAULT false, -- it has left or was reaped; the row stays while it owns tasks
	report bytea                           -- what the member says about itself
);
-- The index has the newest version of a member's row before those that its renewals have left. With a unique index each
-- renewal would look at all of them.
CREATE INDEX IF NOT EXISTS member_lease ON $schema.member (id, until);
ALTER TABLE $schema.member REPLICA IDENTITY FULL;
CREATE SEQUENCE IF NOT EXISTS $schema.revision CACHE 1; -- a greater cache would lose the order
CREATE TABLE IF NOT EXISTS $schema.task (
	key      bytea   PRIMARY KEY,
	due      bigint  NOT NULL,            -- in nanoseconds since 1970; 9223372036854775807: parked
	revision bigint  NOT NULL,
	owner    bigint,                      -- the member that holds it, or NULL
	starts   integer NOT NULL DEFAULT 0,
	kind     bytea   NOT NULL,
	data     bytea   NOT NULL,
	failing  bigint,                      -- the due time with which it was written as failing, or NULL
	grp      bytea,                       -- its group, or NULL
	started  bigint,                      -- when a start was confirmed last, in nanoseconds since 1970, or NULL
	until    bigint                       -- until when the run of that start may begin, or NULL
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS task_failing ON $schema.task (key) WHERE due OPERATOR(pg_catalog.=) 9223372036854775807
	OR failing OPERATOR(pg_catalog.=) due;
-- The free tasks of a kind in order of due time, so that a claim passes over none of another kind. Those with a
-- group are apart, because they are claimed in turns by the second index, too. The third has the few tasks that a
-- member holds.
CREATE INDEX IF NOT EXISTS task_free ON $schema.task (kind, (grp IS NULL), due, key) WHERE owner IS NULL;
CREATE INDEX IF NOT EXISTS task_group ON $schema.task (kind, grp, due, key) WHERE owner IS NULL AND grp IS NOT NULL;
CREATE INDEX IF NOT EXISTS task_held ON $schema.task (owner, due, key) WHERE owner IS NOT NULL;
-- The free tasks of all kinds in order of due time. A claim of many kinds looks here first, and into each kind only if
-- something is due. The sum keeps the planner from using the index for the statements of a single kind: they would pass
-- over the tasks of all other kinds.
CREATE INDEX IF NOT EXISTS task_due ON $schema.task ((due OPERATOR(pg_catalog.+) 0)) WHERE owner IS NULL;
-- The notes of the schedulers, such as what is paused and the questions that one asks the others.
CREATE TABLE IF NOT EXISTS $schema.note (
	name     bytea  PRIMARY KEY,
	revision bigint NOT NULL,
	data     bytea  NOT NULL
);
`}

// head runs before the migrations. The row in its table records which migrations have been applied to the schema.
const head = `
CREATE TABLE IF NOT EXISTS $schema.version (
	one     boolean PRIMARY KEY DEFAULT true CHECK (one),
	version integer NOT NULL,
	cluster text    NOT NULL,
	server  text,                     -- the system identifier and the timeline of the primary
	since   bigint NOT NULL DEFAULT 0 -- since when an engine knows it, in nanoseconds since 1970
);
`

// Schema returns the SQL that creates the schema or migrates an older one. It is for programs that use their own
// migration tool and open the engine with WithoutMigration. Run the SQL in one transaction. Running it again changes
// nothing.
//
// If nodes are running, set a lock_timeout of less than a second, and run the SQL again when the timeout expires. While
// the SQL waits for an open transaction, the nodes wait for the SQL.
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

// quote returns s as an SQL string literal.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// sql returns the text with $schema replaced by the name of the schema.
func (c config) sql(text string) string {
	return strings.ReplaceAll(text, "$schema", pgx.Identifier{c.schema}.Sanitize())
}

// Migrate creates the schema, or migrates it to the version that this package needs. Open does the same unless
// WithoutMigration is given. Any number of programs may migrate at the same time, even while nodes of the previous
// version are running.
//
// Migrate waits for open transactions. While it waits, it delays the nodes by at most 0.2 s in each second. The given
// connection must not be in a transaction. Its role must own the schema, or have permission to create a schema in the
// database.
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
		switch {
		// If several programs create the same object at the same time, all but one fail.
		case is(err, "23505", "42P06", "42P07", "42710") && try < 10:
			continue
		case is(err, "55P03", "40P01"): // another transaction holds a lock
			done := clock.PauseFor(ctx, migrateAgain)
			if done == nil {
				continue
			}
			err = errors.Join(done, err)
		}
		return explain("migrate schema "+c.schema, err)
	}
}

// While a session waits for a table lock because a user's transaction is open, all later sessions that need the table
// wait behind it. A migration therefore waits for at most migrateWait milliseconds. Then it releases its locks and
// retries after migrateAgain.
const (
	ownPath      = "SET LOCAL search_path = pg_catalog, pg_temp"
	migrateWait  = 200
	migrateAgain = time.Second
)

func (c config) migrateIn(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, ownPath); err != nil {
		return err
	}
	var there bool // a role that may not create schemas cannot use IF NOT EXISTS either
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
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", migrateWait)); err != nil {
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

// check returns the version of the schema, or 0 if the schema does not exist. It returns an error if this program must
// not use the schema.
func (c config) check(ctx context.Context, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (int, error) {
	var version int
	var cluster string
	err := on.QueryRow(ctx, c.sql("SELECT version, cluster FROM $schema.version"),
		pgx.QueryExecModeSimpleProtocol).Scan(&version, &cluster)
	switch {
	case errors.Is(err, pgx.ErrNoRows), is(err, "3F000", "42P01"): // the schema or the table does not exist
		return 0, nil
	case err != nil:
		return 0, err
	case version > len(migrations):
		return 0, fmt.Errorf("%w: schema %q has version %d, and this program knows %d and earlier",
			engine.ErrVersion, c.schema, version, len(migrations))
	case cluster != c.cluster:
		return 0, fmt.Errorf("%w: schema %q is that of cluster %q, and not of %q", ErrSchema, c.schema, cluster,
			c.cluster)
	}
	return version, nil
}

// is reports whether the error came from the server and has one of the codes.
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

// explain adds the action that failed to the error, and the reason if the error code shows it.
func explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case is(err, "42501"):
		return fmt.Errorf("postgres: %s: the role lacks a right: %w", what, err)
	case is(err, "25006"):
		return fmt.Errorf("postgres: %s: the server is a standby or read-only: %w", what, err)
	case errors.Is(err, ErrSchema), errors.Is(err, engine.ErrVersion):
		return err
	}
	return fmt.Errorf("postgres: %s: %w", what, err)
}
