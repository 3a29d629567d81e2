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
// migrates them. [Migrate] does so by hand, and [Schema] returns the SQL for another migration tool. Migrations
// only add, so programs of the version before continue to work while new ones are started. A program refuses a
// schema that a later version has made. One that knows version 2 alone and is still running does not know what is
// paused, and runs it: replace all of them before a pause is relied on. One that knows version 3 writes no
// groups, and its claims are slow while many tasks wait. One that knows version 5 does not answer the questions of a
// newer one, nor a newer one its questions.
//
// # Connections
//
// An engine opens connections of its own, 16 at most unless [WithConnections] says otherwise. It uses no LISTEN, no
// temporary table and no lock of a session.
//
// On a direct connection the statements are prepared once, and the settings of the planner are those of the
// connection. Behind a pooler in transaction mode, such as PgBouncer, the engine keeps nothing in a session: its
// statements have no names, and the settings are for one transaction. The server then plans each statement at every
// call, which takes several times its CPU. [Open] knows a pooler by the process number of the connection: a pooler
// gives its clients numbers of its own, and pg_backend_pid returns another. A pooler in session mode counts as one in
// transaction mode. After a direct connection an engine refuses those by a pooler, for a URL may name both.
//
// A URL with default_query_exec_mode=cache_statement makes the engine use named statements behind a pooler that knows
// them, such as PgBouncer 1.21 or later with max_prepared_statements. One with default_query_exec_mode=cache_describe
// makes it keep nothing in a session of a direct connection either. [OpenPool] keeps the mode of the pool: without a
// choice that is cache_statement, which an older PgBouncer does not know.
//
// The transactions are read committed, which a direct connection sets where it is not the default. Behind a pooler it
// must be the default of the role: PgBouncer refuses the setting, and Open returns an error.
//
// # Several servers
//
// A URL may name a primary and its standbys: postgres://shop@db1,db2,db3/shop?target_session_attrs=read-write. Each
// connection is to the first host that is a primary, and after a failover to the standby that was promoted.
//
// A connection reads the server's system identifier and timeline, which a promotion makes greater. An engine refuses a
// server in recovery, one with an older timeline than it has seen, and one with another system identifier: the error wraps
// [ErrNotPrimary], and [Engine.Health] counts the latter two. So a node never returns to an old primary that was not
// stopped. When one connection finds a greater timeline, the engine closes all others. The limits:
//
//   - An engine that is opened later knows no timeline yet. It may find the old primary first.
//   - Behind a pooler the check is made once for each connection to the pooler, which may change the server.
//   - A role that may not call pg_control_system, pg_walfile_name or pg_current_wal_lsn reads no timeline. Every role may,
//     unless the right was revoked. Only a server in recovery is refused then.
//   - The connections of the program itself are not checked. AddTaskTx writes where its transaction is.
//   - After a move to another database cluster, such as by pg_upgrade, open the engines again.
//
// The first engine that finds a promoted server notes the time in the database. No member is reaped until that is longer
// ago than its lease, so those that live have time to renew theirs.
//
// # What to know of the server
//
// The time is the server's. A step of the server's clock moves what is due, and the leases.
//
// What the engine has committed is as durable as PostgreSQL makes it: fsync and synchronous_commit must be on.
// A standby that takes over must have every commit, that is, be a synchronous one: set synchronous_standby_names, with
// two standbys such as 'ANY 1 (b, c)'. One that lacks commits may use a revision again, and a fence of an earlier run
// would be that of a later one.
//
// Autovacuum must be on, and removes the rows that changes leave. A transaction that stays open for hours holds back
// vacuum, and costs disk space. No plan depends on the statistics of the tables.
//
// A waiting task takes some 400 bytes with its entries in the indexes, if its key has 16 bytes and its payload 100. Adds,
// claims and starts take about as long with ten million waiting tasks as with 100,000. A count takes 100 times as long: see
// Engine.Count. Each process with a dashboard or metrics counts by itself, and then keeps a core of the server busy for up
// to a tenth of the time.
package postgres
