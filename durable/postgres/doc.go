// SPDX-License-Identifier: MIT

// Package postgres is an engine for package [durable] on PostgreSQL 14 or later: any number of processes share
// the tasks of one database schema.
//
//	engine, err := postgres.Open(ctx, "postgres://shop@db/shop")
//	...
//	s, err := durable.Join(ctx, engine)
//	...
//	err = s.Shutdown(ctx)
//	engine.Close()
//
// # In the user's transaction
//
// [Engine.AddTaskTx], [Engine.RemoveTaskTx], [Engine.RescheduleTx] and [Engine.CompleteTx] make their change in
// a transaction of the program, of pgx or by [SQL] of database/sql. The change and the program's own rows are
// committed together, or not at all. A handler that completes its run with CompleteTx has its effects in that
// database exactly once.
//
// # The schema
//
// The tables are in a schema of their own, "timewheel" unless [WithSchema] names another. [Open] makes and
// migrates them. [Migrate] does so by hand, and [Schema] returns the SQL for another migration tool.
//
// Migrations only add, so programs of the version before continue to work during a deploy. A program refuses a
// schema of a later version. Older programs that are still running have these limits:
//
//   - A program that knows version 2 alone runs paused tasks. Replace all of them before you rely on a pause.
//   - A program of version 3 writes no groups, and its claims are slow while many tasks wait.
//   - Programs of version 5 and newer ones do not answer each other's questions.
//
// # Connections
//
// An engine opens connections of its own, 16 at most unless [WithConnections] says otherwise. It uses no LISTEN, no
// temporary table and no session lock.
//
//   - On a direct connection, statements are prepared once, and the settings of the planner are those of the connection.
//   - Behind a pooler in transaction mode, such as PgBouncer, the engine keeps nothing in a session. Its statements
//     have no names, and its settings are for one transaction. The server then plans each statement at every call,
//     which takes several times its CPU. A pooler in session mode is treated as if it were in transaction mode.
//
// [Open] recognizes a pooler by the process number of the connection: it differs from pg_backend_pid. After a
// direct connection an engine refuses those by a pooler, because a URL may name both. The parameter
// default_query_exec_mode of the URL has these values:
//
//   - cache_statement: named statements behind a pooler that knows them, such as PgBouncer 1.21 or later with
//     max_prepared_statements.
//   - cache_describe: nothing is kept in a session, even on a direct connection.
//
// [OpenPool] keeps the mode of the pool. Its default is cache_statement, which an older PgBouncer does not know.
//
// The transactions are read committed. A direct connection sets that where it is not the default. Behind a pooler it
// must be the default of the role: PgBouncer refuses the setting, and Open returns an error.
//
// # Several servers
//
// A URL may name a primary and its standbys: postgres://shop@db1,db2,db3/shop?target_session_attrs=read-write. Each
// connection is to the first host that is a primary, and after a failover to the promoted standby.
//
// A node never returns to an old primary that was not stopped. On each new connection the engine reads the server's
// system identifier and its timeline, which increases at every promotion. When it finds a greater timeline, it closes
// all other connections. It refuses these servers, with an error that wraps [ErrNotPrimary]:
//
//   - a server in recovery
//   - a server with an older timeline than the engine has seen, or another system identifier: [Engine.Health] counts
//     the refusals
//
// The check has limits:
//
//   - An engine that is opened later knows no timeline yet. It may find the old primary first.
//   - Behind a pooler the check is made once for each connection to the pooler, which may change the server.
//   - A role needs the right to call pg_control_system, pg_walfile_name and pg_current_wal_lsn, which every role has
//     unless it was revoked. Without it the engine reads no timeline, and refuses only a server in recovery.
//   - The connections of the program itself are not checked. AddTaskTx writes to the server of its transaction.
//   - After a move to another database cluster, for instance by pg_upgrade, open the engines again.
//
// The first engine that finds a promoted server notes the time in the database. No member is reaped until that is
// longer ago than the member's lease, so living members have time to renew theirs.
//
// # Requirements on the server
//
//   - The server's clock is the engine's clock. A step of it moves due times and leases.
//   - fsync and synchronous_commit must be on. What the engine has committed is as durable as PostgreSQL makes it.
//   - A standby that takes over must have every commit, so it must be a synchronous one. Set synchronous_standby_names,
//     with two standbys such as 'ANY 1 (b, c)'. A standby that lacks commits may use a revision again, and the
//     fence of an earlier run would be that of a later one.
//   - Autovacuum must be on. It removes the rows that changes leave. A transaction that stays open for hours holds
//     back vacuum, and costs disk space. No plan depends on the statistics of the tables.
//
// # Costs
//
// A waiting task takes some 400 bytes with its index entries, if its key has 16 bytes and its payload 100. Adds,
// claims and starts take about as long with ten million waiting tasks as with 100,000. A count takes 100 times as
// long: see [Engine.Count]. Each process with a dashboard or metrics counts by itself. Then it keeps a core of
// the server busy for up to a tenth of the time.
package postgres
