// SPDX-License-Identifier: MIT

package task

import (
	"strconv"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Policy is how the tasks of a kind are run.
type Policy struct {
	Attempts    uint64        // of a run, before its task is parked
	Least, Most time.Duration // wait after the first failed attempt, and the longest wait
	Missed      Missed
	MissedAge   time.Duration // 0 means no bound
	Timeout     time.Duration // of an attempt; 0 means none
	Version     int           // of the payloads that the handler takes; 0 is the first
	Upgrade     func(payload []byte, from int) ([]byte, error)
}

// A Missed says which of the missed runs of a task are made, as the type Missed of package durable.
type Missed int

// The policies for missed runs, in the order of those of package durable.
const (
	MissedOnce Missed = iota
	MissedSkip
	MissedAll
)

// MostVersion is the last version of a payload. A node claims each version by its name.
const MostVersion = 1000

// Takes reports whether the handler takes the version of the task's payload.
func (p *Policy) Takes(r *Record) bool { return r.Version <= p.Version }

// Classes returns the classes of the tasks that the handler takes.
func (p *Policy) Classes(name string) (all []string) {
	for version := range max(p.Version, 1) {
		all = append(all, class(name, version+1))
	}
	return all
}

// class is the kind of the task as an engine has it: with the version of the payload, if that is not the
// first. Nodes claim by it, so that none claims a payload that is newer than its handler.
func class(kind string, version int) string {
	if version <= 1 {
		return kind
	}
	return kind + ClassMark + strconv.Itoa(version)
}

// ClassMark separates the two in a class. No kind has it.
const ClassMark = "\x1f"

// over returns up to when the runs of a repeating task are not made any more once it has run.
func (p *Policy) over(now int64) int64 {
	if p.Missed == MissedAll {
		return p.tooOld(now)
	}
	return now
}

// PassesOver returns up to when the missed runs of a task are passed over that has been due since then, or
// engine.None. old says that the kind does not run those with MissedSkip.
func (p *Policy) PassesOver(due, now int64, old bool) int64 {
	switch {
	case p.Missed == MissedSkip && old:
		return now
	case due <= p.tooOld(now):
		return p.tooOld(now)
	}
	return engine.None
}

// tooOld returns up to when missed runs are too old for the kind to be made.
func (p *Policy) tooOld(now int64) int64 {
	if p.MissedAge == 0 {
		return engine.None
	}
	return now - int64(p.MissedAge) - 1
}

// wait returns how long to wait after a number of failures: at most doubled with each, less a part of up to a
// half for which a number from 0 to 1 is drawn.
func (p *Policy) wait(failures uint64, draw float64) time.Duration {
	d := p.Most
	if shift := failures - 1; shift < 63 && p.Least <= p.Most>>shift {
		d = p.Least << shift
	}
	return d - time.Duration(draw*float64(d/2))
}
