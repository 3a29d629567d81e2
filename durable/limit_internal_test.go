// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A report without room for all kinds says that the node may have any.
func TestReport_withoutRoom_mayHaveAnyKind(t *testing.T) {
	var r NodeReport
	for i := range 100 {
		r.Kinds = append(r.Kinds, strings.Repeat(string('a'+rune(i%26)), 100))
	}
	if cut := reportOf(engine.Membership{Report: r.encode(1)}); !cut.More || !cut.has("missing") || len(cut.Kinds) == 0 {
		t.Errorf("%+v", cut)
	}
	r.Kinds = r.Kinds[:3]
	if whole := reportOf(engine.Membership{Report: r.encode(1)}); whole.More || whole.has("missing") || !whole.has(r.Kinds[0]) {
		t.Errorf("%+v", whole)
	}
}

// A report contains the latest takeovers that it has room for.
func TestReport_ofTakeovers(t *testing.T) {
	names := []string{"a", strings.Repeat("\x01", 1000), "\xff"}
	for range 10 {
		names = append(names, strings.Repeat("<", 1000), "last")
	}
	r := NodeReport{Kinds: []string{"mail"}, TakenOver: takenOver([]Takeover{{Node: "before"}}, names, time.Now())}
	got := reportOf(engine.Membership{Report: r.encode(1)})
	if n := len(got.TakenOver); n == 0 || n >= mostTakeovers || got.TakenOver[n-1].Node != "last" || !got.has("mail") || got.More {
		t.Errorf("%+v", got)
	}
	few := takenOver(nil, []string{"a"}, time.Now())
	if more := takenOver(few, []string{"b"}, time.Now()); len(few) != 1 || len(more) != 2 || more[0] != few[0] || more[1].Node != "b" {
		t.Errorf("%v, and then %v", few, more)
	}
}

// JSON cannot hold a kind that is not UTF-8, so its report says that the node may have any.
func TestReport_ofAKindThatIsNotUTF8_mayHaveAnyKind(t *testing.T) {
	r := NodeReport{Kinds: []string{"a", "\xff"}}
	if got := reportOf(engine.Membership{Report: r.encode(1)}); !got.More || !got.has("\xff") || !slices.Equal(got.Kinds, []string{"a"}) {
		t.Errorf("%+v", got)
	}
}

// However many groups are cut and hold nothing, the number of groups that a limiter knows is bounded.
func TestShares_ofGroupsThatHoldNothing_areBounded(t *testing.T) {
	s := newShares()
	for i := range 3 * limit.HeldTasks {
		group := fmt.Sprint(i)
		one := &limit.Task{Rec: &task.Record{Group: group, Key: group, Due: 1}}
		s.Add(one)
		s.Add(&limit.Task{Rec: &task.Record{Group: group, Key: group, Due: 2}})
		s.leave(0)
		s.Remove(one)
	}
	if len(s.of) > limit.HeldTasks || !s.beyond(&task.Record{Group: "x", Key: "x", Due: 2}) {
		t.Errorf("%d groups", len(s.of))
	}
}

// The remaining tasks of a group and of the other groups are read in turn, however long that takes.
func TestShares_readingsTakeTurns(t *testing.T) {
	s := newShares()
	for due, group := range []string{"a", "a", "b", "c"} {
		if s.Add(&limit.Task{Rec: &task.Record{Group: group, Key: "k", Due: int64(due)}}); due%2 == 1 {
			s.leave(0) // of a, and then of the rest
		}
	}
	var last *share
	for range 4 {
		r, _ := s.begin(10, engine.Position{Due: 20}, true)
		if (r.of == &s.rest) == (last == &s.rest) {
			t.Errorf("two readings in a row for %q", r.of.group)
		}
		last = r.of
		s.end(r, r.from, engine.Position{Due: 20})
	}
}

// A reading moves the cuts that it has met to its own position. It never moves a cut back, nor one that was made during
// the reading, and it lifts the cuts when it has read all that the feed has passed.
func TestShares_readingMovesCuts(t *testing.T) {
	taskOf := func(group string, due int64) *limit.Task {
		return &limit.Task{Rec: &task.Record{Group: group, Key: "k", Due: due}}
	}
	cut := func(s *shares, at map[string]int64) {
		for group, due := range at {
			s.Add(taskOf(group, 1))
			s.cutBefore(s.of[group], engine.Position{Due: due, Key: "k"})
		}
	}
	for _, c := range []struct {
		name string
		at   int64 // the position of the reading
		want map[string]int64
	}{
		{"begun", 20, map[string]int64{"before": 10, "a": 20, "further": 50, "far": 200, "full": 19}},
		{"beyond a cut", 70, map[string]int64{"before": 10, "a": 70, "further": 70, "far": 200, "full": 19}},
		{"at the end", 100, map[string]int64{"before": 10, "a": task.Never, "further": task.Never, "far": 200, "full": 19}},
	} {
		s := newShares()
		cut(s, map[string]int64{"before": 10, "a": 20, "further": 50, "far": 200, "full": 40})
		fed := engine.Position{Due: 100, Key: "k"}
		r := s.readFor(s.of["a"], fed)
		if s.beyond(taskOf("further", 100).Rec) || !s.beyond(taskOf("before", 11).Rec) || r.full() {
			t.Errorf("%s: what is read is left, or what is not", c.name)
		}
		s.cutBefore(s.of["full"], engine.Position{Due: 19, Key: "k"})
		s.end(r, engine.Position{Due: c.at, Key: "k"}, fed)
		for group, due := range c.want {
			if at := s.of[group].cut; at.Due != due {
				t.Errorf("%s: %s is cut at %d, want %d", c.name, group, at.Due, due)
			}
		}
	}
}

// A task takes no room from a group that has no further tasks than its own, so that groups of one size do not displace
// each other.
func TestShares_ofOneSize_doNotDisplaceEachOther(t *testing.T) {
	s := newShares()
	for due, group := range []string{"a", "b", "b", "a"} {
		s.Add(&limit.Task{Rec: &task.Record{Group: group, Key: "k", Due: int64(due)}})
	}
	if out := s.leave(10); out.Rec.Group != "a" {
		t.Errorf("a task of the group a has taken the room of one of %q", out.Rec.Group)
	}
}
