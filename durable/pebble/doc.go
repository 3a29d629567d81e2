// SPDX-License-Identifier: MIT

// Package pebble provides an on-disk store for package [durable]. A store is one local directory and needs no server.
//
//	store, err := pebble.Open("/var/lib/shop/tasks")
//	...
//	s, err := durable.New(store) // closes the store in Shutdown
//
// # Durability
//
// This table lists what survives each kind of failure:
//
//	process crash, kill -9     the effect of every method that has returned nil
//	system crash               the same
//	power cut                  the same, if the disk retains the data that it reports as synced
//	loss of the disk           nothing: the store is one directory on one disk
//	full or failing disk       every acknowledged change. The scheduler stops writing and running within a second,
//	                           [durable.Scheduler.Err] returns the cause, and look-ups still work
//	disk full at Open          everything; Open returns the cause
//	no file descriptor left    everything. The store waits for up to 30 seconds. If the process still has none, the store
//	                           has failed, as on a failing disk, and works again when it is opened again. Open does not
//	                           wait. A program that may run out keeps MaxDescriptors free for the store
//	directory removed          nothing; the next method that writes returns an error
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
//	tasks missing from the store      the walk over all keys after New reports it; until that walk is complete,
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
// [Store.Backup] writes a copy of an open store as a tar archive. It first copies the files to BACKUP, a subdirectory
// of the store, using hard links where possible. It removes the copies once the archive has been written. After a
// crash, the next Open removes them.
//
// # Implementation
//
// Pebble is a log-structured merge tree. A store consists of these rows in the tree:
//
//	m commits   the number of commits, the number of records, and the sum of the hashes of the d rows' keys
//	k key       the due time of the record with this key
//	d due key   the data of the record with this due time and key
//	f key       the due time of the record with this key, if an attempt of its run has failed
//	m settings  the scheduler's settings: its pauses
//	n name      the note with this name: a part of the history of runs
//	m indexed   empty; it exists once every failing record has an f row. In an older store, the first walk over
//	            all keys creates the f rows
//
// Records are therefore stored and read in due order. A look-up by key takes two reads, and the keys alone can be
// listed quickly. Numbers are big-endian. Due times have their sign bit flipped so that their bytes sort in numeric
// order.
//
// Pebble owns its files and accesses them through the guard (guard.go). The guard maintains the inventory
// (inventory.go) and is the first to detect a failure. The store owns the directory, including its lock, FORMAT
// (directory.go) and the watermark (watermark.go). A store is in one of these states:
//
//	open      it serves reads and commits
//	failed    reads still work, commits return the cause, and nothing is written to the disk
//	closed    it is not usable
//
// The first complete walk over the keys checks the opened store. Files that Pebble has removed are deleted only after
// this check.
package pebble
