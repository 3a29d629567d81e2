// SPDX-License-Identifier: MIT

// Package pebble provides an on-disk store for package [durable]: one local directory, without a server.
//
//	store, err := pebble.Open("/var/lib/shop/tasks")
//	...
//	s, err := durable.New(store) // closes the store in Shutdown
//
// # What survives what
//
//	a crash of the process, kill -9   the effect of every method that has returned nil
//	a crash of the system             the same
//	a power cut                       the same, if the disk keeps what it reports as synced
//	loss of the disk                  nothing: the store is one directory on one disk
//	a full or failing disk            what was acknowledged. The scheduler stops writing and running within a
//	                                  second, [durable.Scheduler.Err] returns the cause, and look-ups still work
//	a full disk at the start          everything; Open returns the cause
//	a directory that is removed       nothing; the next method that writes returns an error
//
// # Damage
//
// Damage is reported, and damaged data is never used. Every error that means damage wraps [durable.ErrCorrupt] and
// names the file. The store keeps its own record (INVENTORY and COMMITTED) of which files must exist and what they
// contain. Pebble alone mistakes a truncated file for a file that a crash cut short.
//
//	MANIFEST, OPTIONS, markers, logs:
//	a changed, missing or shorter     Open reports it, before it writes or deletes anything
//	file, an older copy of it
//	tables: missing, shorter, older   Open reports it as well
//	tables: a changed block           the first read or background work that reaches the block reports it; Err
//	                                  returns the error, and the scheduler stops
//	tasks missing from the whole      the walk over all keys after New reports it; until that walk is complete,
//	                                  the store deletes no file that it considers obsolete
//	a power cut, and a damaged log    Open reports it, unless only the last commit is damaged: that cannot be
//	                                  distinguished from a commit that the power cut has torn
//	an older copy of the whole        not noticed: it is a valid store of an earlier time
//	directory
//
// Restoring the undamaged bytes restores every task. Without a copy of them, [Salvage] reads what is still
// readable.
//
// # Backup
//
// [Store.Backup] writes a copy of an open store, as a tar. It makes the files in the directory BACKUP within the
// store's, as hard links if possible. It removes them when the tar has been written; after a crash the next Open does.
//
// # Inside
//
// Pebble is a log-structured merge tree. The rows of a store in it:
//
//	m commits   the number of commits, the number of records, and the sum of the hashes of the keys of their
//	            d rows
//	k key       the due time of the record of the key
//	d due key   the data of that record
//	f key       the due time of the record of the key, if an attempt of its run has failed
//	m settings  what the scheduler keeps in addition to the tasks: what is paused
//	m indexed   there is an f row for each of those. The first walk over all keys makes those of an older store
//
// So records are stored and read in due order. A look-up by key takes two reads, and the keys alone can be
// listed quickly. Numbers are big-endian; due times have their sign bit flipped, so that the order of the
// bytes is that of the numbers.
//
// Pebble owns its files and accesses them through the guard (guard.go). The guard keeps the inventory
// (inventory.go) and is the first to see a failure. The store owns the directory: its lock, FORMAT
// (directory.go), and the watermark (watermark.go). Its states:
//
//	open      serves
//	failed    reads still work; commits return the cause; nothing is written to the disk
//	closed    unusable
//
// The first complete walk over the keys checks an opened store. Files that Pebble has removed are deleted
// only after it.
package pebble
