// SPDX-License-Identifier: MIT

// Package pebble provides an on-disk store for package [durable]. A store is one local directory and needs no server.
// [Open] returns an engine on it.
//
//	e, err := pebble.Open(ctx, "/var/lib/shop/tasks")
//	...
//	s, err := durable.New(ctx, e) // Shutdown closes it
//
// # Durability
//
// When a method of the scheduler has returned nil, its effect survives a crash of the process or of the system. It
// survives a power cut if the disk retains the data that it reports as synced. README.md, in the directory of this
// package, has a table of what survives what, including full disks and missing file descriptors.
//
// # Damage
//
// The store reports damage and never uses damaged data. Every error caused by damage wraps [durable.ErrCorrupt] and
// names the file or the key. The files INVENTORY and COMMITTED record which files must exist and what they must
// contain. Pebble alone cannot tell a truncated file from one that a crash cut short.
//
//	MANIFEST, OPTIONS, marker or      Open reports it before writing or deleting anything
//	log: changed, missing, shorter
//	or replaced by an older copy
//	table: missing, shorter or        Open reports it in the same way
//	replaced by an older copy
//	table: changed block              the first read or background operation that reaches the block reports it; Err
//	                                  returns the error, and the scheduler stops
//	tasks missing from the store      the engine's reading of all tasks after Open reports it; until that is complete,
//	                                  the store deletes no file that it considers obsolete
//	log damaged after a power cut     Open reports it, unless only the last commit is damaged: that damage looks
//	                                  the same as a commit torn by the power cut
//	older copy of the whole           not detected: it is a valid store from an earlier time
//	directory
//
// Restoring the original bytes restores every task. If there is no copy of them, [Salvage] recovers the tasks that are
// still readable.
//
// # Backup
//
// [durable.Scheduler.Backup] writes a copy of an open store as a tar archive. It first copies the files to BACKUP, a
// subdirectory of the store, using hard links where possible. It removes the copies once the archive has been written.
// After a crash, the next Open removes them. Unpacked into an empty directory, the archive is a store that Open can
// open.
//
// # Implementation
//
// Pebble is a log-structured merge tree. A store is an ordered map of bytes in the tree, on which package kv builds the
// engine. These are its rows:
//
//	t key                                    the revision of the task with this key, its due time, kind and group
//	f kind, grouped or not, due time, key    the same, and the task's data
//	g kind, group, due time, key             the version of the data of a task with a group
//	x key                                    empty; it exists if an attempt of the task's run has failed
//	s key                                    the confirmed starts of a task, if they are stored
//	n name                                   the note with this name: the pauses, a part of the history of runs, or the last hour of a process
//	c                                        the number of tasks, the sum of the hashes of the t rows, and the last
//	                                         reserved revision
//
// The tasks of a kind are therefore stored and read in due order. A look-up by key takes two reads, and the keys alone
// can be listed quickly. Due times have their sign bit flipped so that their bytes sort in numeric order.
//
// Pebble owns its files and accesses them through the guard (guard.go). The guard maintains the inventory
// (inventory.go) and is the first to detect a failure. The store owns the directory, including its lock, FORMAT
// (directory.go) and the watermark (watermark.go). A store is in one of these states:
//
//	open      it serves reads and commits
//	failed    reads still work, commits return the cause, and nothing is written to the disk
//	closed    it is not usable
//
// The engine reads all tasks once and compares them with the c row. Files that Pebble has removed are deleted only after
// this check.
package pebble
