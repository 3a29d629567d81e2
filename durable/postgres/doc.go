// SPDX-License-Identifier: MIT

// Package postgres implements an engine for package [durable] on PostgreSQL 14 or later. Any number of processes can
// share the tasks in one database schema.
//
//	engine, err := postgres.Open(ctx, "postgres://shop@db/shop")
//	...
//	s, err := durable.New(ctx, engine)
//	...
//	err = s.Shutdown(ctx)
//	engine.Close()
//
// # Transactions
//
// [Engine.AddTaskTx], [Engine.RemoveTaskTx], [Engine.RescheduleTx] and [Engine.CompleteTx] make their changes in one of
// the program's own transactions. This is either a pgx transaction or a database/sql transaction wrapped with [SQL].
// The changes and the program's own rows are committed together or not at all. If a handler completes its run with
// CompleteTx, its effects in that database happen exactly once.
//
// # The schema
//
// The tables are in a separate schema, which is named "timewheel" unless [WithSchema] sets another name. [Open] creates
// and migrates the schema. Alternatively, call [Migrate] explicitly, or run the SQL returned by [Schema] with another
// migration tool.
//
// Migrations remove no table or column that the previous version uses, so programs of that version continue to work
// during a deploy. A program refuses a schema with a later version.
//
// # Connections
//
// An engine opens its own connections, at most 16 unless [WithConnections] sets another limit. It does not use LISTEN,
// temporary tables or session locks.
//
//   - On a direct connection, each statement is prepared once, and the planner settings apply to the whole connection.
//   - Behind a pooler in transaction mode, such as PgBouncer, the engine keeps no state in a session. Its statements
//     are unnamed, and its settings apply to one transaction. The server then plans each statement on every call, which
//     takes several times as much CPU. A pooler in session mode is treated as if it were in transaction mode.
//
// [Open] detects a pooler by comparing the connection's process number with pg_backend_pid: behind a pooler they
// differ. A URL may name both servers and poolers. If the first connection is direct, the engine refuses later
// connections through a pooler. The URL parameter default_query_exec_mode selects one of these modes explicitly:
//
//   - cache_statement uses named statements, even behind a pooler. The pooler must support them, as PgBouncer 1.21 or
//     later does with max_prepared_statements.
//   - cache_describe keeps no state in a session, even on a direct connection.
//
// [OpenPool] uses the mode of the pool. The default is cache_statement, which older versions of PgBouncer do not
// support.
//
// A server may act late on the request to cancel a statement. Behind a pooler, that may be while another client uses the
// session, whose statement then ends with SQLSTATE 57014. The engine repeats such commits and reads, up to three times.
// A transaction of your program may have to be repeated by the program.
//
// Transactions use the read committed isolation level. On a direct connection, the engine sets this level if it is not
// the default. Behind a pooler, it must be the default of the role, because PgBouncer refuses the setting. Otherwise,
// Open returns an error.
//
// # Several servers
//
// A URL may name a primary and its standbys: postgres://shop@db1,db2,db3/shop?target_session_attrs=read-write. Each
// connection goes to the first host that is a primary. After a failover, this is the promoted standby.
//
// A node never returns to an old primary that was not stopped. On each new connection, the engine reads the server's
// system identifier and its timeline, which increases with every promotion. When the engine sees a later timeline, it
// closes all other connections. It refuses the following servers with an error that wraps [ErrNotPrimary]:
//
//   - a server in recovery
//   - a server with an older timeline than the engine has seen, or with another system identifier; [Engine.Health]
//     reports the number of these refusals
//
// The check has these limitations:
//
//   - A newly opened engine has not seen a timeline yet, so it may connect to the old primary first.
//   - Behind a pooler, the check runs once for each connection to the pooler, which may later switch to another server.
//   - The role needs permission to call pg_control_system, pg_walfile_name and pg_current_wal_lsn, which every role has
//     unless it was revoked. Without it, the engine does not read the timeline and refuses only servers in recovery.
//   - The program's own connections are not checked. AddTaskTx writes to the server of its transaction.
//   - After a move to another database cluster, for example with pg_upgrade, the engines must be reopened.
//
// The first engine that connects to a promoted server records the time in the database. A member is reaped only after
// its full lease has passed since that time, so live members have time to renew their leases.
//
// # Server requirements
//
//   - The server's clock is the engine's clock. If it is set forward or back, due times and leases shift with it.
//   - fsync and synchronous_commit must be on. Committed changes are as durable as PostgreSQL makes them.
//   - A standby must have every commit when it takes over, so it must be synchronous. Set synchronous_standby_names,
//     for example to 'ANY 1 (b, c)' with two standbys. If a promoted standby lacks commits, it may reuse a revision,
//     and a later run may have the same fence as an earlier one.
//   - Autovacuum must be on, because changes leave dead rows behind. A transaction that stays open for hours prevents
//     vacuum from removing them, which costs disk space. No query plan depends on table statistics.
//
// # Costs
//
// A waiting task with a 16-byte key and a 100-byte payload takes about 400 bytes, including its index entries. Adding,
// claiming or starting a task takes about as long with ten million waiting tasks as with 100,000. A count takes 70
// times as long with ten million as with 100,000; see [Engine.Count]. Each process with a dashboard or metrics counts
// separately, which keeps a core of the server busy for up to a tenth of the time.
package postgres
