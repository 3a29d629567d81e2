// SPDX-License-Identifier: MIT

// Package pebble is the store of package [durable] on the disk: one directory of this machine, no server.
//
//	store, err := pebble.Open("/var/lib/shop/tasks")
//	...
//	s, err := durable.New(store) // closes the store in Shutdown
//
// # What survives what
//
//	a crash of the process, kill -9   everything that a verb has returned nil for
//	a crash of the system             the same
//	a power cut                       the same, if the disk keeps what it reports as synced
//	loss of the disk                  nothing: the store is one directory on one disk
//	a full or failing disk            what was acknowledged. The scheduler stops writing and running within a
//	                                  second, [durable.Scheduler.Err] returns the cause, and look-ups still work
//	a full disk at the start          everything; Open returns the cause
//	a directory that is removed       nothing; the next verb that writes returns an error
//
// # Damage
//
// A damaged store is reported, never believed. Every error that means damage wraps [durable.ErrCorrupt] and names
// the file. The store keeps its own record (INVENTORY and COMMITTED) of which files must exist and what they hold,
// because Pebble takes a file that lacks its end for one that a crash has cut off.
//
//	MANIFEST, OPTIONS, markers, logs:
//	a changed, missing or shorter     Open reports it, before it writes or deletes anything
//	file, an older copy of it
//	tables: missing, shorter, older   Open reports it as well
//	tables: a changed block           the read, or the work in the background, that meets the block reports
//	                                  it; Err returns it, and the scheduler stops
//	tasks missing from the whole      the walk over all keys after New reports it; nothing that the store
//	                                  believes obsolete is deleted before the end of that walk
//	a power cut, and a damaged log    Open reports it, unless only the last commit is damaged: that looks like
//	                                  a commit that the power cut has torn
//	an older copy of the whole        not noticed: it is a store, of that time
//	directory
//
// A store that was reported damaged has every task again when the undamaged bytes are put back. If there is no
// copy of them, [Salvage] reads what can be read.
//
// # Inside
//
// Pebble is a log-structured merge tree. The rows of a store in it:
//
//	m commits   how many commits there were, how many records there are, and the sum of the hashes of the
//	            names of their d rows
//	k key       the due time of the record of the key
//	d due key   the data of that record
//
// So the records lie in due order and are read one after the other, a look-up by key takes two reads, and the
// keys alone can be read quickly. Numbers are big-endian; due times have their sign bit flipped, so that the
// order of the bytes is that of the numbers.
//
// Pebble owns its files and works on them through the guard (guard.go), which keeps the inventory (inventory.go)
// and is where a failure is known first. The store owns the directory: its lock, FORMAT (directory.go), and the
// watermark (watermark.go). Its states:
//
//	open      serves
//	failed    reads still work; commits return the cause; nothing is written to the disk
//	closed    unusable
//
// A store that was opened is checked by the first walk over its keys: only then what Pebble has removed is
// deleted.
package pebble
