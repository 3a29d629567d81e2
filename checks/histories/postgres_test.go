// SPDX-License-Identifier: MIT

package histories

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/anishathalye/porcupine"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// Several histories at a time, each on two nodes that reach one PostgreSQL through separate proxies. The test is
// skipped where no server is installed, unless POSTGRES_REQUIRED is set.
func TestHistories_onPostgreSQL_areLinearizable(t *testing.T) {
	const atOnce = 10
	rounds := max(*count/10/atOnce, 1)
	if testing.Short() {
		rounds = 1
	}
	server, err := pgtest.Start()
	pgtest.Must(t, err)
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	var engines []*postgres.Engine
	var proxies []*proxy
	for range 2 {
		p := newProxy(t, server)
		e, err := postgres.Open(ctx, p.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		engines, proxies = append(engines, e), append(proxies, p)
	}
	seed := *fromSeed
	// round makes histories on the engines returned by wrap.
	round := func(wrap func(engine.Engine) engine.Engine) (drivers [atOnce]*driver) {
		for i := range drivers {
			drivers[i] = &driver{seed: seed}
			seed++
			for _, e := range engines {
				drivers[i].join(t, wrap(e))
			}
		}
		inParallel := func(do func(*driver)) {
			var all sync.WaitGroup
			for _, d := range drivers {
				all.Go(func() { do(d) })
			}
			all.Wait()
		}
		for i, p := range proxies {
			p.trouble(draws(seed, "proxy", i))
		}
		inParallel(func(d *driver) { d.drive(t) })
		for _, p := range proxies {
			p.Disturb(nil)
		}
		inParallel(func(d *driver) { d.settle(t) })
		return drivers
	}
	const most = 20
	var all tally
	// On a loaded machine a whole round may pass in which no lease lasts long enough to start a run.
	for i := 0; i < rounds || all.tame() && i < most; i++ {
		for _, d := range round(func(e engine.Engine) engine.Engine { return e }) {
			all.check(t, &d.history, fmt.Sprint("seed ", d.seed))
		}
	}
	all.report(t)
	for i, p := range proxies {
		t.Logf("proxy %d: %d connections cut, %d answers lost, %d messages late", i, p.cut, p.lost, p.late)
	}
	for range most {
		for _, d := range round(func(e engine.Engine) engine.Engine { return again{e} }) {
			if d.check() == porcupine.Illegal {
				return
			}
		}
	}
	t.Errorf("%d histories have not found that a commit whose answer is lost is sent again", most*atOnce)
}

// A proxy is a pgtest.Proxy with random faults, which it counts.
type proxy struct {
	*pgtest.Proxy
	cut, lost, late int
}

func newProxy(t *testing.T, to *pgtest.Server) *proxy {
	t.Helper()
	p, err := pgtest.NewProxy(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &proxy{Proxy: p}
}

// trouble starts random faults. Messages that commit a write are hit more often.
func (p *proxy) trouble(rnd *rand.Rand) {
	p.Disturb(func(message []byte) (pgtest.Fault, time.Duration) {
		one := 100
		if bytes.Contains(message, []byte("commit\x00")) || bytes.Contains(message, []byte("INSERT INTO")) {
			one = 20
		}
		switch rnd.IntN(one) {
		case 0:
			p.cut++
			return pgtest.Cut, 0
		case 1, 2:
			p.lost++
			return pgtest.Lose, 0
		case 3, 4:
			p.late++
			return pgtest.None, some(rnd, 50*time.Millisecond)
		}
		return pgtest.None, 0
	})
}
