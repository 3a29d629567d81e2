// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// farAway runs a test on nodes whose engine takes as long to answer as that of another continent, or longer than a search
// may take.
func farAway(t *testing.T, nodes int, do func(t *testing.T, k *kit.Kit), opts ...durable.Option) {
	for _, takes := range []time.Duration{100, 120, 200, 300, 600} {
		takes *= time.Millisecond
		t.Run(takes.String(), func(t *testing.T) {
			kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) {
				for _, n := range k.Nodes {
					n.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: takes} })
				}
				do(t, k)
			}, opts...)
		})
	}
}

// A search of an engine that is far away continues from page to page, and ends.
func TestFarAway_searchesEnd(t *testing.T) {
	farAway(t, 1, func(t *testing.T, k *kit.Kit) {
		s := k.Nodes[0]
		const tasks = 250
		var all []durable.Task
		for i := range tasks {
			all = append(all, durable.Task{Key: fmt.Sprintf("%03d", i), Kind: "note", Delay: time.Hour})
		}
		if err := s.AddTask(ctx, all...); err != nil {
			t.Fatal(err)
		}
		found := 0
		for q := (durable.Query{}); ; {
			page, err := s.Find(ctx, q)
			if err != nil || page.Next == q.After && page.Next != "" || page.Looked == 0 {
				t.Fatalf("after %d tasks a page looks at %d and leads to %q: %v", found, page.Looked, page.Next, err)
			}
			found += len(page.Tasks)
			if q.After = page.Next; page.Next == "" {
				break
			}
		}
		if found != tasks {
			t.Errorf("found %d tasks", found)
		}
		if g, err := s.Groups(ctx, durable.Query{}); err != nil || g.Looked != tasks {
			t.Errorf("Groups looks at %d tasks, %v", g.Looked, err)
		}
		if f, err := s.Failures(ctx); err != nil || f.Cut {
			t.Errorf("the failures are %+v, %v", f, err)
		}
		if n, next, err := s.BulkStep(ctx, durable.Query{}, durable.DoPause); err != nil || n == 0 {
			t.Errorf("a step changes %d tasks and leads to %q: %v", n, next, err)
		}
	})
}

// A node that is far from its engine runs its tasks, and does not say that none starts.
func TestFarAway_noOutageIsReported(t *testing.T) {
	log := testkit.Quiet()
	var lines []string
	log.AddHook(callingHook(func(e *logrus.Entry) { lines = append(lines, e.Message) }))
	farAway(t, 2, func(t *testing.T, k *kit.Kit) {
		lines = nil
		for i := range 20 {
			if err := k.Nodes[0].AddTask(ctx, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Duration(i) * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		k.After(40 * time.Second)
		if n := k.Nodes[0].Stats().Started + k.Nodes[1].Stats().Started; n != 20 {
			t.Errorf("%d of 20 runs have started", n)
		}
		for _, n := range k.Nodes {
			if s := n.Stats().Node; s.Slow < 50*time.Millisecond || s.Slow > 600*time.Millisecond || s.Away {
				t.Errorf("the engine takes %v to answer, and is away: %v", s.Slow, s.Away)
			}
		}
		all := strings.Join(lines, "\n")
		if strings.Contains(all, "unavailable") || strings.Contains(all, "back") {
			t.Errorf("these were logged:\n%s", all)
		}
		if !strings.Contains(all, "slow") {
			t.Errorf("that the engine is slow is not among these:\n%s", all)
		}
	}, durable.WithLogger(log), durable.WithLease(5*time.Second))
}
