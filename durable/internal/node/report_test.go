// SPDX-License-Identifier: MIT

package node

import (
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
	var r Report
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

// Limits that do not fit are left out before kinds are.
func TestReport_ofLimits(t *testing.T) {
	r := Report{Kinds: []string{"mail"}, Limits: []KindLimits{{"mail", limit.Bound{}, limit.Bound{Concurrency: 1}}, {"\xff", limit.Bound{Rate: 1}, limit.Bound{}}}}
	got := reportOf(engine.Membership{Report: r.encode(1)})
	if !slices.Equal(got.Limits, r.Limits[:1]) || got.More {
		t.Errorf("%+v", got)
	}
	for range 50 {
		r.Limits = append(r.Limits, KindLimits{Kind: strings.Repeat("x", 100)})
	}
	got = reportOf(engine.Membership{Report: r.encode(1)})
	if n := len(got.Limits); n == 0 || n >= 50 || got.More || !got.has("mail") {
		t.Errorf("%+v", got)
	}
}

// A report contains the latest takeovers that it has room for.
func TestReport_ofTakeovers(t *testing.T) {
	names := []string{"a", strings.Repeat("\x01", 1000), "\xff"}
	for range 10 {
		names = append(names, strings.Repeat("<", 1000), "last")
	}
	r := Report{Kinds: []string{"mail"}, TakenOver: takenOver([]Takeover{{Node: "before"}}, names, time.Now())}
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
	r := Report{Kinds: []string{"a", "\xff"}}
	if got := reportOf(engine.Membership{Report: r.encode(1)}); !got.More || !got.has("\xff") || !slices.Equal(got.Kinds, []string{"a"}) {
		t.Errorf("%+v", got)
	}
}

func TestDistinct(t *testing.T) {
	rec := func(key string) *task.Record { return &task.Record{Token: task.Token{Key: key}} }
	first, twice := Distinct([]*task.Record{rec("a"), rec("b"), rec("a"), rec("c"), rec("a"), rec("b")})
	keys := ""
	for _, r := range first {
		keys += r.Key
	}
	if keys != "abc" || len(twice) != 2 || !twice["a"] || !twice["b"] {
		t.Errorf("distinct returns %s, %v", keys, twice)
	}
}

func TestAfterDue_isBeyondEveryKey(t *testing.T) {
	last := engine.Position{Due: 7, Key: strings.Repeat("\xff", task.MaxKey)}
	if !last.Before(AfterDue(7)) || !AfterDue(7).Before(engine.Position{Due: 8}) {
		t.Error("a task that is due then is behind the end")
	}
}
