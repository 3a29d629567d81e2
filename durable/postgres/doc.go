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
// CompleteTx, its effects in that database happen exactly once. examples/checkout is a program with all of them but
// RescheduleTx.
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
// An engine opens its own connections, at most 16 unless [WithConnections] sets another limit, and one more for signals
// (LISTEN) for each scheduler that runs tasks, unless [WithoutSignals] is given. It uses neither temporary tables nor
// session locks.
//
// A direct connection has prepared statements. [Open] detects a pooler in transaction mode, such as PgBouncer, and then
// keeps no state in a session, which costs more CPU. Transactions use the read committed isolation level. README.md, in
// the directory of this package, has the settings for poolers, isolation and permissions.
//
// # Several servers
//
// A URL may name a primary and its standbys: postgres://shop@db1,db2,db3/shop?target_session_attrs=read-write. Each
// connection goes to the first host that is a primary. An engine refuses an old primary, a server in recovery and a
// server of another cluster, with an error that wraps [ErrNotPrimary]. [Engine.Health] reports the number of refusals.
//
// # Server requirements
//
//   - The server's clock is the engine's clock. If it is set forward or back, due times and leases shift with it. If it is
//     set forward by up to [engine.MaxStale], delays may be that much too short for a quarter of the lease of the scheduler.
//   - fsync and synchronous_commit must be on. Committed changes are as durable as PostgreSQL makes them.
//   - A standby must have every commit when it takes over, so it must be synchronous.
//   - Autovacuum must be on, because changes leave dead rows behind. No query plan depends on table statistics.
//
// README.md has the settings of the servers, the limits of the refusal of an old primary, and a table of what survives
// what.
//
// # Costs
//
// A waiting task with a 16-byte key and a 100-byte payload takes about 400 bytes, including its index entries. Adding,
// claiming or starting a task takes about as long with ten million waiting tasks as with 100,000. A count takes 100
// times as long with ten million as with 100,000; see [Engine.Count]. Each process with a dashboard or metrics counts
// separately, which keeps a core of the server busy for up to a tenth of the time.
package postgres
