// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// The primary is lost with its machine while nodes work, and its synchronous standby is promoted. Nothing acknowledged
// is lost, and nothing runs with an old fence. Nothing runs early by the clock of the server that decided it, although
// the promoted server's clock is 10 s ahead or behind. The old primary comes back and is refused. With CHAOS it happens
// 20 times, each time to the previously promoted server, which has one or two standbys.
func TestChaos_failover_losesNothing(t *testing.T) {
	f := newFleet(t, "")
	times := 2
	if testing.Short() {
		times = 1
	}
	if os.Getenv("CHAOS") != "" {
		times = 20
	}
	var longest time.Duration
	for i := range times {
		v, silent := f.failover(1+i%2, time.Duration(i%3)*lease, []time.Duration{10 * time.Second, 0, 0}[i%3])
		longest = max(longest, silent)
		t.Logf("%v without an acknowledgement after the promotion; %v", silent, v.counts)
		for _, b := range v.details {
			t.Error(b)
		}
		if v.counts["add"] < 10 || v.counts["end"] < 10 {
			t.Error("there was too little")
		}
	}
	t.Logf("at most %v without an acknowledgement after the promotion, in %d fail-overs", longest, times)
}

// The checker detects the promotion of an asynchronous standby, and a node that reaps the others right after a
// promotion.
func TestChaos_failoverSabotage_isFound(t *testing.T) {
	if os.Getenv("CHAOS") == "" {
		t.Skip("not without CHAOS")
	}
	for sabotage, breaks := range map[string]string{asynchronous: "D6", "reaping right after a promotion": "D4"} {
		t.Run(sabotage, func(t *testing.T) {
			f := newFleet(t, sabotage)
			for range 10 {
				v, _ := f.failover(1, lease*5/4, 0)
				if i := slices.IndexFunc(v.details, func(b string) bool { return strings.HasPrefix(b, breaks) }); i >= 0 {
					t.Log("found ", v.broken, ", such as ", v.details[i])
					return
				}
			}
			t.Error("the checker has not found it")
		})
	}
}

// asynchronous is the sabotage in which a standby lags when its primary is lost.
const asynchronous = "an asynchronous standby"

// failover runs two processes on the server and its standbys, one of which must have a commit before it is
// acknowledged. It kills the server, and after a while promotes the standby that has received the most. That becomes
// the server of the fleet, with a clock ahead of the machine's by ahead. failover returns the broken promises, and the
// longest time without an acknowledgement after the promotion.
func (f *fleet) failover(standbys int, after, ahead time.Duration) (verdict, time.Duration) {
	f.t.Helper()
	ctx, old := f.t.Context(), f.server
	var all []*pgtest.Server
	for range standbys {
		all = append(all, startFor(f.t, old.Standby, fmt.Sprint("chaos.clock=", int64(ahead))))
	}
	if f.sabotage != asynchronous {
		f.ask(func(conn *pgx.Conn) { synchronous(f.t, conn) })
	}
	f.url = hosts(append(all, old)...) + "&target_session_attrs=read-write"
	witness, err := postgres.Open(ctx, f.url, postgres.WithSchema("chaos"), postgres.WithServersClock())
	check(f.t, err)
	defer witness.Close()
	for range 2 {
		f.start()
	}
	time.Sleep(2 * time.Second)
	if f.sabotage == asynchronous {
		check(f.t, all[0].Pause())
		time.Sleep(lease / 4)
	}
	check(f.t, old.Kill())
	if f.sabotage == asynchronous {
		check(f.t, all[0].Resume())
	}
	time.Sleep(after)
	standby := furthest(f.t, all)
	begun := systemTime()
	f.restarts = append(f.restarts, begun)
	check(f.t, standby.Promote())
	f.server = standby
	from := systemTime()
	f.clock = append(f.clock, step{begun, from, ahead})
	time.Sleep(3 * lease)
	to := systemTime()
	v, events := f.settle()

	await(f.t, func() error {
		_, err := witness.Get(ctx, "k")
		return err
	})
	check(f.t, old.Restart())
	check(f.t, standby.Stop(pgtest.Fast))
	witness.Reconnect()
	if _, err := witness.Get(ctx, "k"); !errors.Is(err, postgres.ErrNotPrimary) {
		f.t.Errorf("the old primary is not refused: %v", err)
	}
	check(f.t, old.Close())
	for _, other := range all {
		if other != standby {
			check(f.t, other.Close())
		}
	}
	check(f.t, standby.Restart())
	return v, silence(events, from, to)
}

// furthest returns the standby that has received the most.
func furthest(t *testing.T, standbys []*pgtest.Server) (best *pgtest.Server) {
	t.Helper()
	most := int64(-1)
	for _, s := range standbys {
		var received int64
		check(t, connect(t, s.URL()).QueryRow(t.Context(), "SELECT pg_last_wal_receive_lsn() - '0/0'").Scan(&received))
		if received > most {
			best, most = s, received
		}
	}
	return best
}

// silence returns the longest time between from and to in which no verb has returned without an error.
func silence(events []event, from, to int64) time.Duration {
	longest, last := int64(0), from
	for _, ev := range events { // in order of time, except the calls at the end
		if ev.Err == "" && slices.Contains([]string{"add", "late add", "remove", "move", "pause", "resume"}, ev.What) &&
			ev.At > last && ev.At < to {
			longest, last = max(longest, ev.At-last), ev.At
		}
	}
	return time.Duration(max(longest, to-last))
}
