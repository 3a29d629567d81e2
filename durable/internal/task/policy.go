// SPDX-License-Identifier: MIT

package task

import (
	"strconv"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Policy specifies how the tasks of a kind are run.
type Policy struct {
	Attempts    uint64        // attempts per run before it is given up or its task is parked
	Least, Most time.Duration // wait after the first failed attempt, and maximum wait
	Missed      Missed
	MissedAge   time.Duration // greatest age of a missed run that still runs; 0 means no bound
	Timeout     time.Duration // maximum duration of an attempt; 0 means no timeout
	Version     int           // latest payload version that the handler accepts; 0 is the first
	Upgrade     func(payload []byte, from int) ([]byte, error)
	Once        time.Duration // how long the names of tasks are remembered; 0 if they have none

	ParkRepeating bool // a repeating task is parked when a run has used its last attempt
}

// Missed corresponds to the type Missed of package durable.
type Missed int

// The policies for missed runs, in the same order as in package durable.
const (
	MissedOnce Missed = iota
	MissedSkip
	MissedAll
)

// MostVersion is the greatest payload version. It is bounded because a node names every version that it accepts when it
// claims.
const MostVersion = 1000

// Takes reports whether the handler accepts the version of the task's payload.
func (p *Policy) Takes(r *Record) bool { return r.Version <= p.Version }

// Classes returns the classes of the tasks that the handler accepts.
func (p *Policy) Classes(name string) (all []string) {
	for version := range max(p.Version, 1) {
		all = append(all, class(name, version+1))
	}
	return all
}

// class returns the kind under which an engine stores a task. It includes the payload version unless that is the first.
// Nodes claim by class, so that no node claims a payload newer than its handler.
func class(kind string, version int) string {
	if version <= 1 {
		return kind
	}
	return kind + ClassMark + strconv.Itoa(version)
}

// ClassMark separates the kind from the payload version in a class. No kind contains it.
const ClassMark = "\x1f"

// over returns the time up to which runs of a repeating task are skipped after it has run.
func (p *Policy) over(now int64) int64 {
	if p.Missed == MissedAll {
		return p.tooOld(now)
	}
	return now
}

// PassesOver returns the time up to which missed runs of a task due at due are skipped, or engine.None. old reports
// whether MissedSkip applies to these runs.
func (p *Policy) PassesOver(due, now int64, old bool) int64 {
	switch {
	case p.Missed == MissedSkip && old:
		return now
	case due <= p.tooOld(now):
		return p.tooOld(now)
	}
	return engine.None
}

// tooOld returns the time up to which missed runs are too old to run, or engine.None if the kind has no MissedAge.
func (p *Policy) tooOld(now int64) int64 {
	if p.MissedAge == 0 {
		return engine.None
	}
	return now - int64(p.MissedAge) - 1
}

// wait returns the wait after the given number of failures. It doubles with each failure, up to Most, and is then
// shortened by up to half, in proportion to draw, a random number from 0 to 1.
func (p *Policy) wait(failures uint64, draw float64) time.Duration {
	d := p.Most
	if shift := failures - 1; shift < 63 && p.Least <= p.Most>>shift {
		d = p.Least << shift
	}
	return d - time.Duration(draw*float64(d/2))
}
