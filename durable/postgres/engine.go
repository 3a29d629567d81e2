// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldest is the oldest supported server_version_num.
const oldest = 140000

// An Engine is an [engine.Engine] on PostgreSQL. It is also an [engine.Counter] and an [engine.HealthReporter]. Use
// [Open] or [OpenPool] to create an Engine. Any number of schedulers may share it. Close it after they have been shut
// down.
type Engine struct {
	config
	sql     statements
	primary *primary
	direct  bool // there is no pooler, so statements have names and settings belong to connections
	pooled  bool // there is a pooler

	verbs   *pgxpool.Pool // for commits and reads
	control *pgxpool.Pool // for claims, starts and leases, which must not wait for commits and reads

	freed   atomic.Bool           // the signal is about tasks that a member has held
	signals chan struct{}         // full while a signal is to be sent
	silence func()                // ends keepSignalling
	unheard atomic.Pointer[error] // why a node does not hear signals; nil if all do

	seen    atomic.Pointer[reading]
	waiting chan struct{} // limits how many waiting commits retry at the same time
}

// Open connects to the server at url, which is a URL or a keyword/value connection string, and creates or migrates the
// schema. The url may contain the parameters of package pgx, such as default_query_exec_mode, connect_timeout and
// sslmode. If the program cannot use the schema, the error wraps durable.ErrVersion or ErrSchema.
func Open(ctx context.Context, url string, opts ...Option) (*Engine, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: invalid URL: %w", err)
	}
	chosen := strings.Contains(url, "default_query_exec_mode")
	if !chosen {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return open(ctx, cfg, chosen, opts)
}

// OpenPool is like Open, but uses the server and the settings of a pool. The engine opens its own connections and does
// not use those of the pool, so a handler that occupies the pool does not delay claims.
func OpenPool(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (*Engine, error) {
	return open(ctx, pool.Config(), true, opts)
}

// open opens an engine. Unless the user has chosen a query execution mode, the engine uses named statements on direct
// connections.
func open(ctx context.Context, cfg *pgxpool.Config, chosen bool, opts []Option) (*Engine, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.OnNotification = nil // it would get the signals
	server := new(primary)
	validate := cfg.ConnConfig.ValidateConnect
	cfg.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if validate != nil { // checks target_session_attrs
			if err := validate(ctx, conn); err != nil {
				return err
			}
		}
		return server.validate(ctx, conn)
	}
	direct, err := c.prepare(ctx, cfg, server)
	if err != nil {
		return nil, err
	}
	pooled := !direct
	if direct && !chosen && cfg.ConnConfig.StatementCacheCapacity > 0 {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	}
	direct = direct && cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	own := max(c.connections/4, 2) // a claim of overdue tasks may take a long time, and a renewal must not wait for it
	e := &Engine{config: c, sql: c.statements(), primary: server, direct: direct, pooled: pooled, signals: make(chan struct{}, 1)}
	e.waiting = make(chan struct{}, min(2, c.connections-own-1))
	if direct {
		maps.Copy(cfg.ConnConfig.RuntimeParams, planning)
	}
	controls := cfg.Copy()
	if controls.ShouldPing == nil {
		controls.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	}
	if e.control, err = newPool(ctx, controls, own); err != nil {
		return nil, err
	}
	if direct {
		cfg.ConnConfig.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	}
	if e.verbs, err = newPool(ctx, cfg, c.connections-own); err != nil {
		e.control.Close()
		return nil, err
	}
	server.opened(direct, e.sql.noticeServer, func() {
		e.control.Reset()
		e.verbs.Reset()
	})
	if e.signalling {
		var ended sync.WaitGroup
		life, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended.Go(func() { e.keepSignalling(life) })
		e.silence = func() { stop(); ended.Wait() }
	}
	return e, nil
}

// prepare checks the server, and checks or migrates the schema. It completes the connection settings and reports
// whether the connections are direct.
func (c *config) prepare(ctx context.Context, cfg *pgxpool.Config, server *primary) (direct bool, err error) {
	connCfg := cfg.ConnConfig.Copy()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, connCfg); err != nil {
			return false, fmt.Errorf("postgres: connect: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, connCfg)
	if err != nil {
		return false, explain("connect", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if cfg.AfterConnect != nil {
		if err := cfg.AfterConnect(ctx, conn); err != nil {
			return false, explain("connect", err)
		}
	}
	var number int
	var pid, version, isolation, path string
	err = conn.QueryRow(ctx, "SELECT pg_catalog.current_setting('server_version_num')::int, "+
		"pg_catalog.pg_backend_pid()::text, pg_catalog.current_setting('server_version'), "+
		"pg_catalog.current_setting('default_transaction_isolation'), "+
		"pg_catalog.array_to_string(pg_catalog.current_schemas(true), ',')").
		Scan(&number, &pid, &version, &isolation, &path)
	switch {
	case err != nil:
		return false, explain("connect", err)
	case number < oldest:
		return false, fmt.Errorf("postgres: the server has version %s; %d is the oldest that works", version, oldest/10000)
	}
	direct = !isPooled(conn.PgConn(), pid)
	switch {
	case isolation == "read committed": // the statements rely on it
	case direct:
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	default:
		return false, fmt.Errorf("postgres: default_transaction_isolation is %s, and behind a pooler it must be read committed: "+
			"ALTER ROLE ... IN DATABASE ... SET default_transaction_isolation = 'read committed'", isolation)
	}
	switch { // the statements rely on the server's own functions and operators
	case direct:
		cfg.ConnConfig.RuntimeParams["search_path"] = "pg_catalog, pg_temp"
	case !strings.HasPrefix(path, "pg_catalog") && !strings.HasPrefix(path, "pg_temp"):
		return false, fmt.Errorf("postgres: search_path is %s, and behind a pooler pg_catalog must be the first of it, or not "+
			"in it (ALTER ROLE, SET search_path)", path)
	}
	if !server.known() {
		c.server = "server"
	}
	return direct, c.open(ctx, conn)
}

// open checks or migrates the schema.
func (c config) open(ctx context.Context, conn *pgx.Conn) error {
	have, err := c.check(ctx, conn)
	switch {
	case err != nil:
		return explain("open schema "+c.schema, err)
	case have < len(migrations) && c.migrate:
		if err := c.migrateOn(ctx, conn); err != nil {
			return err
		}
	case have == 0:
		return fmt.Errorf("%w: there is no schema %q: run postgres.Migrate, or what postgres.Schema returns",
			ErrSchema, c.schema)
	case have < len(migrations):
		return fmt.Errorf("%w: schema %q has version %d, and this program needs %d: run postgres.Migrate, or what "+
			"postgres.Schema returns", ErrSchema, c.schema, have, len(migrations))
	}
	sql := c.statements()
	_, err = conn.Exec(ctx, strings.Join([]string{ownPath, sql.noticeServer, sql.advance}, "; "),
		pgx.QueryExecModeSimpleProtocol) // runs as one transaction
	if is(err, "25006") { // the connection is read-only
		return nil
	}
	return explain("note the server", err)
}

func newPool(ctx context.Context, cfg *pgxpool.Config, most int) (*pgxpool.Pool, error) {
	own := cfg.Copy()
	own.MaxConns, own.MinConns, own.MinIdleConns = int32(most), 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	return pool, nil
}

// Close closes the connections after all calls in progress have finished.
func (e *Engine) Close() {
	if e.silence != nil {
		e.silence()
	}
	e.control.Close()
	e.verbs.Close()
}

// pingAfter is how long a connection for control is unused before it is checked first. A node at rest uses one each second,
// and a check each time would be a third transaction. A renewal that fails is repeated within 250 ms.
const pingAfter = 5 * time.Second

// lockTimeout is how long a statement waits for a lock held by another transaction. The commit of a single batch then
// retries.
const lockTimeout = 5 * time.Millisecond
