// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrSchema is returned by Open and OpenPool if the schema does not exist or has an older version, and they are not
// allowed to migrate it. It is also returned if the schema belongs to another cluster. For a schema with a later
// version, the error is durable.ErrVersion instead.
var ErrSchema = errors.New("postgres: the schema does not fit")

// The migrations are numbered from 1. They remove no table or column that the previous version uses, so its programs
// can continue to use the schema. Applying a migration again changes nothing. Released migrations never change.
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
CREATE INDEX IF NOT EXISTS task_failing ON $schema.task (key) WHERE due OPERATOR(pg_catalog.=) 9223372036854775807
	OR failing OPERATOR(pg_catalog.=) due;
`, `
-- What the schedulers keep in addition to the tasks: what is paused. Programs of the version before do not know it, and run
-- what is paused.
CREATE TABLE IF NOT EXISTS $schema.settings (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	revision bigint  NOT NULL,
	data     bytea   NOT NULL
);
-- What members are asked, and their answers. There are rows only while something asks.
CREATE TABLE IF NOT EXISTS $schema.question (
	id     bigint  NOT NULL,
	member bigint  NOT NULL,
	asked  bigint  NOT NULL,               -- when, in nanoseconds since 1970
	data   bytea   NOT NULL,
	answer bytea,
	last   boolean NOT NULL DEFAULT false, -- the answer is the last one
	PRIMARY KEY (id, member)
);
`, `
-- The group of the task, or NULL. What a program of the version before writes has none until it is written again.
ALTER TABLE $schema.task ADD COLUMN IF NOT EXISTS grp bytea;
-- The free tasks of a kind in order of due time, so that a claim passes over none of another kind. Those with a
-- group are apart, because they are claimed in turns by the second index, too. The third has the few tasks that a
-- member holds. A program of the version before reads the entries of all tasks of its kinds at each claim, and sorts
-- what is due: 0.2 s for a million that wait, 1 s while half of them are due.
CREATE INDEX IF NOT EXISTS task_free ON $schema.task (kind, (grp IS NULL), due, key) WHERE owner IS NULL;
CREATE INDEX IF NOT EXISTS task_group ON $schema.task (kind, grp, due, key) WHERE owner IS NULL AND grp IS NOT NULL;
CREATE INDEX IF NOT EXISTS task_held ON $schema.task (owner, due, key) WHERE owner IS NOT NULL;
DROP INDEX IF EXISTS $schema.task_owner_due_key;
`, `
-- When a start of the task was confirmed last, in nanoseconds since 1970, or NULL. A program of the version before leaves it
-- as it is, when it writes the task and when it confirms a start. So it is that of an earlier record if it is before due.
ALTER TABLE $schema.task ADD COLUMN IF NOT EXISTS started bigint;
`, `
-- The notes of the schedulers, such as the questions that one asks the others. What is paused remains in the table settings,
-- where programs of the version before read and write it. Those ask their questions in the table question. Questions
-- are not answered across these versions: while both run, a scheduler waits in vain for the answers of the others.
CREATE TABLE IF NOT EXISTS $schema.note (
	name     bytea  PRIMARY KEY,
	revision bigint NOT NULL,
	data     bytea  NOT NULL
);
`, `
-- The index has the newest version of a member's row before those that its renewals have left. With a unique index each
-- renewal would look at all of them. The numbers of members are unique without it, since the server gives them.
CREATE INDEX IF NOT EXISTS member_lease ON $schema.member (id, until);
ALTER TABLE $schema.member REPLICA IDENTITY FULL;
ALTER TABLE $schema.member DROP CONSTRAINT IF EXISTS member_pkey;
-- The system identifier and the timeline of the primary, and since when an engine knows it, in nanoseconds since 1970.
ALTER TABLE $schema.version ADD COLUMN IF NOT EXISTS server text;
ALTER TABLE $schema.version ADD COLUMN IF NOT EXISTS since bigint NOT NULL DEFAULT 0;
`, `
-- The free tasks of all kinds in order of due time. A claim of many kinds looks here first, and into each kind only if
-- something is due. The sum keeps the planner from using the index for the statements of a single kind, in this and in
-- earlier programs: they would pass over the tasks of all other kinds.
CREATE INDEX IF NOT EXISTS task_due ON $schema.task ((due OPERATOR(pg_catalog.+) 0)) WHERE owner IS NULL;
`}

// head runs before the migrations. The row in its table records which migrations have been applied to the schema.
const head = `
CREATE TABLE IF NOT EXISTS $schema.version (
	one     boolean PRIMARY KEY DEFAULT true CHECK (one),
	version integer NOT NULL,
	cluster text    NOT NULL
);
`

// Schema returns the SQL that creates the schema or migrates an older one. It is for programs that use their own
// migration tool and open the engine with WithoutMigration. Run the SQL in one transaction. Running it again changes
// nothing.
//
// If nodes are running, set a lock_timeout of less than a second, and run the SQL again when the timeout expires. While
// the SQL waits for an open transaction, the nodes wait for the SQL. They also wait while the SQL creates an index,
// unless you first run its CREATE INDEX statement with CONCURRENTLY. If CREATE INDEX CONCURRENTLY fails, it leaves an
// invalid index: drop the index and create it again.
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
// Migrate waits for open transactions. While it waits, it delays the nodes by at most 0.2 s in each second. It opens a
// second connection to create indexes without delaying the nodes. The given connection must not be in a transaction.
// Its role must own the schema, or have permission to create a schema in the database.
func Migrate(ctx context.Context, conn *pgx.Conn, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	return c.migrateOn(ctx, conn)
}

func (c config) migrateOn(ctx context.Context, conn *pgx.Conn) error {
	for try := 1; ; try++ {
		err := c.addAhead(ctx, conn)
		if err == nil {
			err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return c.migrateIn(ctx, tx) })
		}
		switch {
		// If several programs create the same object at the same time, all but one fail.
		case is(err, "23505", "42P06", "42P07", "42710") && try < 10:
			continue
		case is(err, "55P03", "40P01"): // another transaction holds a lock
			waited := wait(ctx)
			if waited == nil {
				continue
			}
			err = errors.Join(waited, err)
		}
		return explain("migrate schema "+c.schema, err)
	}
}

// wait waits for migrateAgain. If the context is done first, wait returns the context's error.
func wait(ctx context.Context) error {
	select {
	case <-time.After(migrateAgain):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addition matches a statement in a migration that changes a table or creates an index. It captures the name of the
// index.
var addition = regexp.MustCompile(`(?m)^(?:ALTER TABLE .*?|CREATE INDEX IF NOT EXISTS (\w+) ON .*?);`)

// addAhead applies the table changes and creates the indexes of missing migrations in an existing schema, so that the
// nodes do not wait for an index. It uses CREATE INDEX CONCURRENTLY, which waits for open transactions and cannot run
// in a transaction itself. If that statement fails, it leaves an invalid index.
func (c config) addAhead(ctx context.Context, conn *pgx.Conn) error {
	version, err := c.check(ctx, conn)
	if err != nil || version == 0 || version == len(migrations) {
		return err
	}
	guard, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return err
	}
	defer func() { _ = guard.Close(context.WithoutCancel(ctx)) }()
	// Two programs that create indexes at the same time would wait for each other, so a lock admits one program at a
	// time. CONCURRENTLY waits for every session that has a snapshot, including a session that is waiting for a lock.
	// The other programs therefore poll the lock. The lock belongs to a transaction, because a pooler may change the
	// session. The simple protocol leaves no portal open, and therefore no snapshot.
	return pgx.BeginTxFunc(ctx, guard, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for alone := false; !alone; {
			err := tx.QueryRow(ctx, "SELECT pg_catalog.pg_try_advisory_xact_lock("+
				"pg_catalog.hashtextextended($1, 0)), pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true)", pgx.QueryExecModeSimpleProtocol,
				c.sql("$schema.version")).Scan(&alone, nil)
			if err == nil && !alone {
				err = wait(ctx)
			}
			if err != nil {
				return err
			}
		}
		for _, m := range migrations[version:] {
			for _, found := range addition.FindAllStringSubmatch(m, -1) {
				if err := c.add(ctx, conn, found[0], found[1]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// add changes a table, or creates an index if the index name is not empty.
func (c config) add(ctx context.Context, conn *pgx.Conn, text, index string) error {
	if index == "" {
		_, err := conn.Exec(ctx, fmt.Sprintf("%s; SET LOCAL lock_timeout = %d; ", ownPath, migrateWait)+c.sql(text),
			pgx.QueryExecModeSimpleProtocol) // runs as one transaction
		return err
	}
	var valid bool
	err := conn.QueryRow(ctx, "SELECT indisvalid FROM pg_catalog.pg_index "+
		"WHERE indexrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)",
		c.sql("$schema."+index)).Scan(&valid)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // the index does not exist
	case err != nil, valid:
		return err
	default:
		if _, err := conn.Exec(ctx, c.sql("DROP INDEX CONCURRENTLY IF EXISTS $schema."+index)); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, c.sql(strings.Replace(text, "INDEX", "INDEX CONCURRENTLY", 1)))
	return err
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
