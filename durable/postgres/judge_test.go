// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A story contains the events of one key in the ledgers. A key is used once.
type story struct {
	add, remove, move *event
	pause, resuming   *event // resuming is the first call of a resumption
	confirms, starts  []event
	removing, moving  bool // the verb was called
	ended             bool
}

// A clock is how far the server's clock is ahead of the machine's: zero at first, then according to each step.
type clock []step

// A step sets the server's clock, at some time between from and to.
type step struct {
	from, to int64
	ahead    time.Duration
}

// known returns the least and the most by which it is ahead between the two times, from the view of a node, which may
// not know of a step for up to a lease.
func (c clock) known(from, to int64) (least, most int64) {
	for _, s := range c {
		switch ahead := int64(s.ahead); {
		case s.to+int64(lease) <= from:
			least, most = ahead, ahead
		case s.from <= to:
			least, most = min(least, ahead), max(most, ahead)
		}
	}
	return least, most
}

// A verdict is the result of judging the ledgers.
type verdict struct {
	counts  map[string]int // events by type; failed events, and events with an unknown outcome, are separate
	broken  map[string]int // how often each promise is broken
	details []string       // about the broken promises
	disk    int64          // bytes of the server's files and of the ledgers
}

// unknown marks the counts of events whose verb has returned an error.
const unknown = "?"

// promises are the promises that a run checks.
var promises = []string{"D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D11", "D12"}

// judge returns the broken promises in the ledgers:
//
//	D1  a run starts before it is due, or is due before its delay is over
//	D2  a start is decided after a removal or a move has returned, or after a pause and before its resumption is
//	    called; or a run begins then, and the verb was called on another node, unless the server's clock was set
//	D3  a task is left over
//	D4  a start is decided after the member's lease; the fences of the starts of a key do not rise, except that a
//	    process which was stopped just before the handler is called enters that run; a member is reaped before the server has
//	    been up, or the primary, for its lease
//	D5  two runs of a task that was not moved have different tokens
//	D6  a task was added, was not removed, and was never completed; or is reported as a duplicate of itself
//	D7  the effect of a run happens twice
//	D8  a node claims a task of a kind that it does not handle
//	D11 a run is confirmed and starts more than two seconds after its kind was paused
//	D12 the same after its node was drained
//
// After a suspension of its machine, a node may make a delay too short by [engine.MaxStale].
func judge(events []event, effects map[string]int, left map[string]bool, restarts []int64, clock clock,
) verdict {
	v := verdict{counts: make(map[string]int), broken: make(map[string]int)}
	breaks := func(promise, key, format string, args ...any) {
		v.broken[promise]++
		v.details = append(v.details, promise+": "+key+" "+fmt.Sprintf(format, args...))
	}
	stories := make(map[string]*story)
	leases := make(map[int64][]event)
	var stops []event
	var bans bans
	for _, ev := range events {
		if ev.Err == "" {
			v.counts[ev.What]++
		} else {
			v.counts[ev.What+unknown]++
		}
		switch ev.What {
		case "stop":
			stops = append(stops, ev)
			continue
		case "pause kind", "drain":
			bans = append(bans, ban{ev.What, ev.Key, ev.At, math.MaxInt64})
			continue
		case "lease":
			leases[ev.Member] = append(leases[ev.Member], ev)
			continue
		case "reap":
			for _, start := range restarts {
				// A call made before the restart may also have been decided before it, if its caller was stopped since.
				if up := ev.At - start; ev.From > start && up < int64(lease) {
					breaks("D4", ev.Key, "is reaped when the server has been up for %v", time.Duration(up))
				}
			}
			continue
		}
		if what, undone := strings.CutPrefix(ev.Verb, "undo "); undone {
			bans.end(what, ev)
			continue
		}
		s := stories[ev.Key]
		if s == nil {
			s = &story{}
			stories[ev.Key] = s
		}
		switch ev.What {
		case "call":
			s.removing = s.removing || ev.Verb == "remove"
			s.moving = s.moving || ev.Verb == "move"
			if ev.Verb == "resume" && (s.resuming == nil || ev.At < s.resuming.At) {
				s.resuming = &ev
			}
		case "add", "late add":
			s.add = &ev
		case "remove":
			s.remove = &ev
		case "move":
			s.move = &ev
		case "pause":
			s.pause = &ev
		case "alien":
			breaks("D8", ev.Key, "is claimed by %s, which does not handle its kind", ev.Node)
		case "confirm":
			s.confirms = append(s.confirms, ev)
		case "start":
			s.starts = append(s.starts, ev)
		case "end":
			s.ended = true
		}
	}
	for key, s := range stories {
		for _, ev := range s.confirms { // Confirm was called after the verb had returned
			if r := s.remove; r != nil && r.Err == "" && ev.From > r.At {
				breaks("D2", key, "is decided to start %v after its removal", time.Duration(ev.From-r.At))
			}
			if p := s.pause; p != nil && p.Err == "" && ev.From > p.At && (s.resuming == nil || ev.At < s.resuming.At) {
				breaks("D2", key, "is decided to start %v after its pause", time.Duration(ev.From-p.At))
			}
			if after := afterLease(ev, leases[ev.Member], clock); after > 0 {
				breaks("D4", key, "is decided to start %v after the lease of %s", after, ev.Node)
			}
		}
		s.judgeStarts(clock, stops, bans, func(promise, format string, args ...any) { breaks(promise, key, format, args...) })
		happened := s.ended || effects[key] > 0
		added := s.add != nil && s.add.Err == ""
		switch {
		case s.add != nil && strings.Contains(s.add.Err, "duplicate"):
			breaks("D6", key, "is reported as a duplicate of itself")
		case left[key]:
			breaks("D3", key, "is left over")
		case added && !happened && (!s.removing || s.remove != nil && s.remove.Err == notFound):
			breaks("D6", key, "was added, not removed, and never completed")
		case s.move != nil && s.move.Err == "" && !s.movedRan(clock, stops):
			breaks("D6", key, "was moved, and has not run since")
		case s.pause != nil && s.pause.Err == "" && !s.pausedRan():
			breaks("D6", key, "was paused, and has not run since")
		case effects[key] > 1:
			breaks("D7", key, "has had its effect %d times", effects[key])
		}
	}
	return v
}

// order describes the two starts up to the given one, and when each was decided.
func (s *story) order(last int) string {
	var b strings.Builder
	end := s.starts[last].At
	for _, ev := range s.starts[last-1 : last+1] {
		fmt.Fprintf(&b, "on %s %v before%s; ", ev.Node, time.Duration(end-ev.At), s.decided(ev, end))
	}
	return b.String()
}

// decided describes when a start was decided, before the given time.
func (s *story) decided(start event, end int64) string {
	var b strings.Builder
	for _, c := range s.confirms {
		if c.Fence == start.Fence {
			fmt.Fprintf(&b, " (asked %v, decided %v before on %s)", time.Duration(end-c.From), time.Duration(end-c.At), c.Node)
		}
	}
	return b.String()
}

// wasStopped reports whether the process was stopped between the decision to start and the start. A node looks at its
// lease just before it calls the handler, and a process can be stopped in between. If all clocks stood still, that can be
// as soon as the server has decided.
func (s *story) wasStopped(start event, stops []event) bool {
	const fresh = 150 * time.Millisecond // a confirmation is used for 100 ms
	return slices.ContainsFunc(stops, func(stop event) bool {
		return stop.Node == start.Node && stop.At <= start.At && slices.ContainsFunc(s.confirms, func(c event) bool {
			return c.Fence == start.Fence && stop.From-int64(fresh) <= c.At && (c.At <= stop.At || stop.Verb == suspendAll && c.From <= stop.At)
		})
	})
}

// wasSet reports whether the server's clock was set between the decision to start and the start. The verb then does not know
// how long the run may still begin.
func (s *story) wasSet(clock clock, start event) bool {
	return slices.ContainsFunc(clock, func(set step) bool {
		return set.from <= start.At && slices.ContainsFunc(s.confirms, func(c event) bool { return c.Fence == start.Fence && c.From <= set.to })
	})
}

// judgeStarts checks the runs of one key.
func (s *story) judgeStarts(clock clock, stops []event, bans bans, breaks func(promise, format string, args ...any)) {
	for i, ev := range s.starts {
		if _, ahead := clock.known(ev.At, ev.At); ev.At+ahead < ev.Due {
			breaks("D1", "starts %v early", time.Duration(ev.Due-ev.At-ahead))
		}
		if s.add != nil && ev.Due < s.add.least(clock, ev.At)-s.add.stale(stops) {
			breaks("D1", "is due %v early", time.Duration(s.add.least(clock, ev.At)-ev.Due))
		}
		if i := slices.IndexFunc(s.confirms, func(c event) bool { return c.Fence == ev.Fence }); i >= 0 {
			bans.judge(ev, s.confirms[i].From, breaks)
		}
		if s.isOver(clock, stops, ev) && !s.wasStopped(ev, stops) && !s.wasSet(clock, ev) {
			breaks("D2", "begins on %s after the verb has returned%s", ev.Node, s.decided(ev, ev.At))
		}
		if i > 0 && ev.Fence <= s.starts[i-1].Fence && !s.wasStopped(ev, stops) {
			breaks("D4", "starts with the fence %d after %d: %s", ev.Fence, s.starts[i-1].Fence, s.order(i))
		}
		if i > 0 && ev.Token != s.starts[i-1].Token && !s.moving {
			breaks("D5", "has the tokens %s and %s", ev.Token, s.starts[i-1].Token)
		}
		if m := s.move; m != nil && m.Err == "" {
			decided := slices.IndexFunc(s.confirms, func(c event) bool { return c.Fence == ev.Fence })
			if decided >= 0 && s.confirms[decided].From > m.At && ev.Due < m.least(clock, ev.At)-m.stale(stops) {
				breaks("D2", "is decided to start at its old time after it was moved")
			}
		}
	}
}

// isOver reports whether a verb that was called on another node had ended the run when it began. On the node of the verb
// some time may pass between the beginning and the handler's first statement, which notes it.
func (s *story) isOver(clock clock, stops []event, start event) bool {
	over := func(verb *event) bool {
		return verb != nil && verb.Err == "" && start.At > verb.At && start.Node != verb.Node
	}
	return over(s.remove) || over(s.pause) && (s.resuming == nil || start.At < s.resuming.At) ||
		over(s.move) && start.Due < s.move.least(clock, start.At)-s.move.stale(stops)
}

// A ban is the time in which a node or a kind must start nothing: from the return of the verb to the call of its undoing.
type ban struct {
	verb, key string
	from, to  int64
}

type bans []ban

// end ends the last ban of the verb and the key.
func (b bans) end(verb string, by event) {
	for i := range b {
		if b[i].verb == verb && b[i].key == by.Key {
			b[i].to = min(b[i].to, by.At)
		}
	}
}

// judge checks a start whose confirmation was asked for at the given time.
func (b bans) judge(start event, asked int64, breaks func(promise, format string, args ...any)) {
	for _, ban := range b {
		late := time.Duration(asked - ban.from)
		switch {
		case late <= settingsFor || start.At >= ban.to:
		case ban.verb == "pause kind" && start.Kind == ban.key:
			breaks("D11", "is decided to start on %s %v after its kind was paused", start.Node, late)
		case ban.verb == "drain" && start.Node == ban.key:
			breaks("D12", "is decided to start %v after %s was drained", late, start.Node)
		}
	}
}

// stale returns by how much the delay may be too short, because the machine of the caller was suspended just before. Its
// node has asked the engine for its time a quarter of a lease later.
func (ev event) stale(stops []event) int64 {
	for _, stop := range stops {
		if strings.HasPrefix(stop.Verb, suspend) && stop.Node == strings.TrimSuffix(ev.Node, ofClient) && stop.At < ev.At && ev.From < stop.At+int64(lease) {
			return int64(engine.MaxStale)
		}
	}
	return 0
}

// least returns the earliest due time of an added or moved task that started at the given time. Its due time may have
// been computed again, by a clock that was set meanwhile.
func (ev event) least(clock clock, started int64) int64 {
	ahead, _ := clock.known(ev.From, started)
	return ev.From + ahead + int64(ev.Delay)
}

// movedRan reports whether the run to which the task was moved has started.
func (s *story) movedRan(clock clock, stops []event) bool {
	return slices.ContainsFunc(s.starts, func(ev event) bool { return ev.Due >= s.move.least(clock, ev.At)-s.move.stale(stops) })
}

// pausedRan reports whether a start was decided since the task was paused: such a run does not count.
func (s *story) pausedRan() bool {
	return slices.ContainsFunc(s.confirms, func(ev event) bool { return ev.At > s.pause.From })
}

// afterLease returns how long after the end of its member's lease a start was decided, by the server's clock, or less
// than 0. The server answered a renewal between From and At, so the lease ends at most one lease after At. A renewal
// without an answer may have arrived much later.
func afterLease(decided event, renewals []event, clock clock) time.Duration {
	least := time.Duration(1 << 62)
	now, _ := clock.known(decided.From, decided.At)
	for _, r := range renewals {
		_, ahead := clock.known(r.From, r.At)
		until := r.At + ahead + int64(lease)
		if r.Err != "" {
			until += int64(4 * lease)
		}
		if r.From < decided.At {
			least = min(least, time.Duration(decided.From+now-until))
		}
	}
	return least
}
