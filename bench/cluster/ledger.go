// SPDX-License-Identifier: MIT

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// An event is the start or the end of a call of a handler.
type event struct {
	id  int
	at  time.Time
	end bool
}

// A ledger is a file in which a node records each event as it happens, in memory that outlives a killed node. A system
// call for each event would be a large part of the CPU time of a node that has little to do: with its consequences in
// the scheduler of Go, some 8 % at 500 runs a second.
type ledger struct {
	mu     sync.Mutex // protects below
	memory []byte     // the number of events, then the events
	events uint64
}

const (
	countLen   = 8
	eventLen   = 17
	mostEvents = 1 << 21 // the file is sparse
)

func createLedger(name string) (*ledger, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const size = countLen + mostEvents*eventLen
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return &ledger{memory: memory}, err
}

func (l *ledger) note(e event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == mostEvents {
		return errors.New("the ledger is full")
	}
	b := l.memory[countLen+l.events*eventLen:][:eventLen]
	binary.BigEndian.PutUint64(b, uint64(e.id))
	binary.BigEndian.PutUint64(b[8:], uint64(e.at.UnixNano()))
	if e.end {
		b[16] = 1
	}
	l.events++
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&l.memory[0])), l.events) // after the event, for readers in other processes
	return nil
}

// countEvents returns how many events are in a ledger.
func countEvents(f io.Reader) (uint64, error) {
	var b [countLen]byte
	_, err := io.ReadFull(f, b[:])
	return binary.NativeEndian.Uint64(b[:]), err
}

// readLedgers returns the events in the files, in no particular order.
func readLedgers(names []string) (all []event, err error) {
	for _, name := range names {
		if all, err = readLedger(all, name); err != nil {
			return nil, fmt.Errorf("ledger %s: %w", name, err)
		}
	}
	return all, nil
}

func readLedger(all []event, name string) ([]event, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := countEvents(f)
	if err != nil {
		return nil, err
	}
	if n > mostEvents {
		return nil, fmt.Errorf("it counts %d events", n)
	}
	text := make([]byte, n*eventLen)
	if _, err := io.ReadFull(f, text); err != nil {
		return nil, err
	}
	for ; len(text) > 0; text = text[eventLen:] {
		all = append(all, event{
			id:  int(binary.BigEndian.Uint64(text)),
			at:  time.Unix(0, int64(binary.BigEndian.Uint64(text[8:]))),
			end: text[16] == 1,
		})
	}
	return all, nil
}

// An account sums up the runs of tasks that were due once each.
type account struct {
	lost       int             // tasks without an ended run
	early      int             // tasks with a run that started before the due time
	duplicates int             // runs of a task after its first one
	strange    int             // events of unknown tasks
	late       []time.Duration // delays of the first run of each task after its due time, sorted
	last       time.Time       // when the last of these runs started
}

// settle compares the events with the tasks, which are numbered consecutively. Events of tasks before the first one are
// left out.
func settle(tasks []task, events []event) account {
	var a account
	first := make([]time.Time, len(tasks))
	ended := make([]bool, len(tasks))
	starts := make([]int, len(tasks))
	for _, e := range events {
		i := e.id - tasks[0].id
		switch {
		case i < 0:
		case i >= len(tasks):
			a.strange++
		case e.end:
			ended[i] = true
		default:
			starts[i]++
			if starts[i] == 1 || e.at.Before(first[i]) {
				first[i] = e.at
			}
		}
	}
	for i, t := range tasks {
		if !ended[i] {
			a.lost++
		}
		if starts[i] == 0 {
			continue
		}
		a.duplicates += starts[i] - 1
		late := first[i].Sub(t.due)
		if late < 0 {
			a.early++
		}
		a.late = append(a.late, late)
		if first[i].After(a.last) {
			a.last = first[i]
		}
	}
	slices.Sort(a.late)
	return a
}

// figures returns the figures of every case with runs.
func (a account) figures() figures {
	f := figures{"lost": float64(a.lost), "early": float64(a.early), "duplicates": float64(a.duplicates)}
	if n := len(a.late); n > 0 {
		f["p50_ms"], f["p99_ms"] = ms(quantile(a.late, 0.5)), ms(quantile(a.late, 0.99))
		f["most_ms"] = ms(a.late[n-1])
	}
	return f
}

// check returns an error if the events are contradictory.
func (a account) check() error {
	if a.strange > 0 {
		return fmt.Errorf("%d events of no task", a.strange)
	}
	return nil
}

// longestWait returns the longest wait of any task: from its due time or the instant, whichever is later, to
// its last start. Tasks that were due before from are left out.
func longestWait(tasks []task, events []event, from, instant time.Time) time.Duration {
	var most time.Duration
	for _, e := range events {
		if e.end || e.id < 0 || e.id >= len(tasks) || tasks[e.id].due.Before(from) {
			continue
		}
		since := tasks[e.id].due
		if instant.After(since) {
			since = instant
		}
		most = max(most, e.at.Sub(since))
	}
	return most
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// quantile returns the q quantile of sorted, which must not be empty.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
