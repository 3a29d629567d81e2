// SPDX-License-Identifier: MIT

package durable

import (
	"strconv"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A policy is how the tasks of a kind are run.
type policy struct {
	attempts    uint64        // of a run, before its task is parked
	least, most time.Duration // wait after the first failed attempt, and the longest wait
	missed      missedRuns
	missedAge   time.Duration // 0 means no bound
	timeout     time.Duration // of an attempt; 0 means none
	version     int           // of the payloads that the handler takes; 0 is the first
	upgrade     func(payload []byte, from int) ([]byte, error)
}

// A missedRuns says which of the missed runs of a task are made, as the type Missed of package durable.
type missedRuns int

const (
	missedOnce missedRuns = iota
	missedSkip
	missedAll
)

// mostVersion is the last version of a payload. A node claims each version by its name.
const mostVersion = 1000

// takes reports whether the handler takes the version of the task's payload.
func (p *policy) takes(r *record) bool { return r.version <= p.version }

// classes returns the classes of the tasks that the handler takes.
func (p *policy) classes(name string) (all []string) {
	for version := range max(p.version, 1) {
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
	return kind + classMark + strconv.Itoa(version)
}

const classMark = "\x1f"

// over returns up to when the runs of a repeating task are not made any more once it has run.
func (p *policy) over(now int64) int64 {
	if p.missed == missedAll {
		return p.tooOld(now)
	}
	return now
}

// passesOver returns up to when the missed runs of a task are passed over that has been due since then, or
// None. old says that the kind does not run those with missedSkip.
func (p *policy) passesOver(due, now int64, old bool) int64 {
	switch {
	case p.missed == missedSkip && old:
		return now
	case due <= p.tooOld(now):
		return p.tooOld(now)
	}
	return engine.None
}

// tooOld returns up to when missed runs are too old for the kind to be made.
func (p *policy) tooOld(now int64) int64 {
	if p.missedAge == 0 {
		return engine.None
	}
	return now - int64(p.missedAge) - 1
}

// wait returns how long to wait after a number of failures: at most doubled with each, less a part of up to a
// half for which a number from 0 to 1 is drawn.
func (p *policy) wait(failures uint64, draw float64) time.Duration {
	d := p.most
	if shift := failures - 1; shift < 63 && p.least <= p.most>>shift {
		d = p.least << shift
	}
	return d - time.Duration(draw*float64(d/2))
}
