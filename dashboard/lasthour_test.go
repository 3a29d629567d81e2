// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// hourOf returns a process with these numbers in the minutes from at on.
func hourOf(node string, at time.Time, minutes map[string][][3]int) durable.NodeHour {
	h := durable.NodeHour{Node: node, Started: at}
	for kind, numbers := range minutes {
		k := durable.KindHour{Kind: kind}
		for i, n := range numbers {
			k.Minutes = append(k.Minutes, durable.KindMinute{At: at.Add(time.Duration(i) * time.Minute), Succeeded: uint64(n[0]), Failed: uint64(n[1]), Overdue: n[2]})
		}
		h.Kinds = append(h.Kinds, k)
	}
	return h
}

// The processes of several nodes, and of one node before and after its restart, are one hour.
func TestNewHourJSON_merges(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	at := func(minute int) time.Time {
		return now.Truncate(time.Minute).Add(time.Duration(minute-60) * time.Minute)
	}
	before := hourOf("a", at(10), map[string][][3]int{"mail": {{5, 0, 7}, {6, 1, -1}}})
	before.Ended = at(12).Add(-time.Second)
	old := hourOf("c", at(-5), map[string][][3]int{"mail": {{9, 9, 9}}})
	hours := []durable.NodeHour{before, hourOf("a", at(11), map[string][][3]int{"mail": {{2, 0, 0}}}),
		hourOf("b", at(11), map[string][][3]int{"mail": {{1, 0, 4}}, "": {{3, 0, 1}}}), old}
	j := newHourJSON(hours, "", now)
	if !j.First.Equal(at(0)) || !slices.Equal(j.Nodes, []string{"a", "b", "c"}) || len(j.Kinds) != 2 || len(j.Marks) != 4 ||
		j.Marks[3] != (markJSON{"a", before.Ended, true}) {
		t.Fatalf("the hour is %+v", j)
	}
	mail, others := j.Kinds[0], j.Kinds[1]
	if got := fmt.Sprint(mail.Succeeded[9:13], mail.Failed[9:13], mail.Overdue[9:13]); got != "[0 5 9 0] [0 0 1 0] [-1 7 4 -1]" {
		t.Errorf("mail has %s", got)
	}
	if others.Kind != "" || others.Succeeded[11] != 3 || others.Overdue[11] != 1 || others.Overdue[12] != -1 {
		t.Errorf("the others have %+v", others)
	}
	if j = newHourJSON(hours, "b", now); len(j.Nodes) != 3 || j.Kinds[0].runs() != 1 || len(j.Marks) != 1 {
		t.Errorf("node b has %+v", j)
	}
	if j = newHourJSON(hours, "", now.Add(-55*time.Minute)); j.Kinds[0].Succeeded[59] != 9 {
		t.Errorf("with an engine whose clock is ahead it is %+v", j)
	}
}

// The busiest kinds have their own numbers, and the others are added up.
func TestNewHourJSON_foldsKinds(t *testing.T) {
	now := time.Now()
	minutes := make(map[string][][3]int)
	for i := range 12 {
		minutes[fmt.Sprintf("kind %02d", i)] = [][3]int{{10 + i, 0, -1}}
	}
	j := newHourJSON([]durable.NodeHour{hourOf("a", now.Truncate(time.Minute).Add(-time.Minute), minutes)}, "", now)
	if len(j.Kinds) != hourKinds+1 || j.Kinds[0].Kind != "kind 11" || j.Kinds[hourKinds].Kind != "" ||
		j.Kinds[hourKinds].runs() != 10+11+12+13 || j.Kinds[hourKinds].Overdue[59] != -1 {
		t.Errorf("the kinds are %+v", j.Kinds)
	}
}

// A countedHours counts how often it is asked for the last hour.
type countedHours struct {
	*durable.Scheduler
	n int
}

func (c *countedHours) LastHour(ctx context.Context) ([]durable.NodeHour, error) {
	c.n++
	return c.Scheduler.LastHour(ctx)
}

// The last hour is there after a restart. It is read once in 30 s by all pages together.
func TestBoard_lastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New().Shared()
		run := func(key string) *durable.Scheduler {
			s := newScheduler(t, shared, durable.WithNodeName("shop"))
			if err := s.Handle("sms", works); err != nil {
				t.Fatal(err)
			}
			if err := s.AddTask(t.Context(), durable.Task{Key: key, Kind: "sms", Delay: time.Second}); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			testkit.Settle(2 * time.Minute)
			return s
		}
		if err := run("first").Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := &countedHours{Scheduler: run("second")}
		h := &handler{sources: []shown{newBoard("tasks", c, nil)}}
		for range 3 {
			for _, node := range []string{"", "shop"} {
				j := answer[hourJSON](t, ask(h, "GET", "/api/hour?"+url.Values{"node": {node}}.Encode(), nil), 200)
				if len(j.Kinds) != 1 || j.Kinds[0].Kind != "sms" || j.Kinds[0].runs() != 2 || len(j.Marks) != 3 || len(j.Nodes) != 1 {
					t.Errorf("the hour is %+v", j)
				}
			}
		}
		if j := answer[hourJSON](t, ask(h, "GET", "/api/hour?node=other", nil), 200); len(j.Kinds)+len(j.Marks) > 0 || len(j.Nodes) != 1 {
			t.Errorf("of another node it is %+v", j)
		}
		if c.n != 1 {
			t.Errorf("it was read %d times", c.n)
		}
		testkit.Settle(hourEvery)
		answer[hourJSON](t, ask(h, "GET", "/api/hour", nil), 200)
		if c.n != 2 {
			t.Errorf("after 30 s it was read %d times in all", c.n)
		}
	})
}
