// SPDX-License-Identifier: MIT

package browser

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

var outage = flag.Duration("outage", 5*time.Second, "how long PostgreSQL is away, more than two seconds")

// runs counts the runs of each key.
type runs struct {
	mu  sync.Mutex // protects below
	of  map[string]int
	all int
}

func (r *runs) handle(_ context.Context, run durable.Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[run.Key]++
	r.all++
	return nil
}

// count returns the number of runs, and the number of keys with a run.
func (r *runs) count() (all, keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all, len(r.of)
}

// PostgreSQL crashes under two nodes, and is restarted.
func TestScheduler_postgreSQLAway(t *testing.T) {
	server, err := pgtest.Start()
	pgtest.Must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	ran := &runs{of: make(map[string]int)}
	var nodes []*durable.Scheduler
	var sources []dashboard.Source
	for i := range 2 {
		engine, err := postgres.Open(t.Context(), server.URL())
		must(t, err)
		t.Cleanup(engine.Close)
		s, source := newNode(t, engine, fmt.Sprint("web-", i+1))
		must(t, s.Handle("order", ran.handle), s.Start())
		nodes, sources = append(nodes, s), append(sources, source)
	}
	const ticks, orders = 4, 50
	putMany(t, nodes[1], ticks, durable.Task{Key: "tick", Kind: "order", Interval: time.Second, Times: durable.Forever})
	p := open(t, chrome(t), serve(t, dashboard.Handler(sources[:1])), 1200, "light")
	p.until(`/^Working: .* 2 nodes\.$/.test(document.querySelector("#tasks-health .verdict")?.textContent)`)
	var due []durable.Task // while it is away, unless the machine is slow
	for i := range orders {
		due = append(due, durable.Task{Key: fmt.Sprint("order-", i), Kind: "order", Delay: *outage / 2})
	}
	must(t, nodes[0].AddTask(t.Context(), due...))
	must(t, server.Stop(pgtest.Immediate))
	p.says(`^The engine has not served this node( for \d+ s)?(, and nothing starts here)?: .*` + server.Addr())
	p.sinceIsSaid("Nodes")
	p.until(`/the time left is unknown/.test($("nodes").textContent)`)
	p.picture("postgres-away")
	before, _ := ran.count()
	p.within(*outage+limit, fmt.Sprintf(`Date.now() - new Date(page.tasks.health.findings[0].since) > %d`, outage.Milliseconds()))
	if after, _ := ran.count(); after != before {
		t.Errorf("while it was away %d tasks were run", after-before)
	}

	must(t, server.Restart())
	p.until(`/^Working: .* 2 nodes\.$/.test(document.querySelector("#tasks-health .verdict").textContent)`)
	await(p, func() bool { _, keys := ran.count(); return keys == ticks+orders })
	p.until(fmt.Sprintf(`page.tasks.stats.pending === %d`, ticks))
	before, _ = ran.count()
	await(p, func() bool { after, _ := ran.count(); return after >= before+2*ticks })
}

// await waits until the condition is true.
func await(p *tab, is func() bool) {
	p.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("it did not come to that\nthe page is\n%s", js[string](p, "document.body.innerText"))
		}
	}
}
