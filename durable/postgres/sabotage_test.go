// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// The checker detects every deliberate breach. The numbers refer to the details in the design of the cluster. The
// missing details are broken in TestReap_whileMembersClaim_leavesNothingWithTheDead (6, 7),
// TestCommit_groupsInOppositeOrder_meetNoDeadlock (8) and TestClaim_underAForgottenTransaction_readsNoMore (11).
// Details without a number are broken in TestStatements_haveOnePlan, TestEngine_severalHosts_sabotage,
// TestReap_afterAPromotion_noMemberThatLives and TestChaos_failoverSabotage_isFound, and in package durable in
// TestD2_startsThatAreConfirmedTogether and TestSimulation_findsFaults.
func TestChaos_sabotage_isFound(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	const tries = 10
	for _, c := range []struct {
		sabotage string
		faults   []string
		breaks   string
		long     bool // TestSimulation_findsFaults also finds it
	}{
		{"1 no start fence", []string{""}, "D2", false},
		{"2 the fence checks neither owner nor lease", slices.Repeat([]string{"stall"}, 6), "D4", true},
		{"3 acknowledgement at any revision", []string{""}, "D6", false},
		{"4 a clock of the node's own", []string{""}, "D1", true},
		{"5 no reconciliation", []string{"lost answers", "lost answers"}, "D3", false},
		{"9 a cursor over due times", []string{"", ""}, "D3", true},
		{"10 reaping right after an outage", slices.Repeat([]string{"outage"}, 4), "D4", true},
		{"a pause is forgotten", []string{""}, "D2", true},
		{"nobody waits for a run that may begin", []string{""}, "D2", false},
		{"12 completion outside the transaction", []string{"kill", "pause", "kill"}, "D7", false},
	} {
		t.Run(c.sabotage, func(t *testing.T) {
			if c.long && os.Getenv("CHAOS") == "" {
				t.Skip("not without CHAOS")
			}
			f := newFleet(t, c.sabotage)
			for range tries { // a breach shows in most of them, unless the machine is busy
				v := f.run(3, c.faults, func() time.Duration { return time.Second })
				t.Logf("%v; faults %v", v.counts, f.faults)
				i := slices.IndexFunc(v.details, func(b string) bool { return strings.HasPrefix(b, c.breaks) })
				if i >= 0 {
					t.Log("found ", fmt.Sprint(v.broken), ", such as ", v.details[i])
					return
				}
				t.Logf("found is only %.20q", v.details)
			}
			t.Error("the checker has not found it")
		})
	}
}

// A reap that was called before the server came back may have been decided before it went away: its caller was stopped
// in between, and records it late. A reap that was called afterwards is a breach until the server has been up for a
// lease.
func TestJudge_reapNotedAfterAnOutage(t *testing.T) {
	const restart = int64(time.Hour)
	for _, c := range []struct {
		called, noted time.Duration // since the restart
		broken        int
	}{
		{-2 * lease, lease * 3 / 4, 0},
		{lease / 2, lease * 3 / 4, 1},
		{lease / 2, lease + 1, 0},
		{-2 * lease, -lease, 0},
	} {
		reap := event{What: "reap", Key: "node1", From: restart + int64(c.called), At: restart + int64(c.noted)}
		if v := judge([]event{reap}, nil, nil, []int64{restart}, nil); v.broken["D4"] != c.broken {
			t.Errorf("called %v and noted %v after the restart: %d breaches, want %d", c.called, c.noted,
				v.broken["D4"], c.broken)
		}
	}
}

// A process that was stopped may enter a run that was confirmed just before, and no other.
func TestJudge_aStoppedProcess(t *testing.T) {
	const ms = int64(time.Millisecond)
	const confirmed, other, start = 1000 * ms, 3000 * ms, 4000 * ms
	for _, clocks := range []string{"", suspend, suspendAll} { // the answer arrives afterwards
		v := judge([]event{
			{What: "confirm", Node: "b", Key: "k", Fence: 2, At: other}, {What: "start", Node: "b", Key: "k", Fence: 2, At: other + ms},
			{What: "confirm", Node: "a", Key: "k", Fence: 1, From: confirmed, At: start}, {What: "start", Node: "a", Key: "k", Fence: 1, At: start + ms},
			{What: "stop", Verb: clocks, Node: "a", From: confirmed + ms, At: start - ms},
		}, nil, nil, nil, nil)
		if found := strings.Contains(strings.Join(v.details, "\n"), "fence"); found == (clocks == suspendAll) {
			t.Errorf("%q: %v", clocks, v.details)
		}
	}
	for _, c := range []struct {
		node     string
		from, to int64 // it was stopped
		breaks   bool
	}{
		{"a", confirmed + 50*ms, start - ms, false}, {"a", confirmed - ms, start - ms, false},
		{"a", confirmed + 500*ms, start - ms, true}, {"a", confirmed - 500*ms, confirmed - ms, true}, {"b", confirmed + 50*ms, start - ms, true},
		{"a", confirmed + 50*ms, start + ms, true},
	} {
		v := judge([]event{
			{What: "confirm", Node: "a", Key: "k", Fence: 1, At: confirmed}, {What: "start", Node: "b", Key: "k", Fence: 2, At: other},
			{What: "start", Node: "a", Key: "k", Fence: 1, At: start}, {What: "stop", Node: c.node, From: c.from, At: c.to},
		}, nil, nil, nil, nil)
		if got := strings.Contains(strings.Join(v.details, "\n"), "fence"); got != c.breaks {
			t.Errorf("%+v: %v", c, v.details)
		}
	}
}

// No run begins after a verb of another node has returned, however shortly before it was confirmed.
func TestJudge_aRunThatBeginsLate(t *testing.T) {
	const confirmed, returned = int64(time.Hour), int64(time.Hour + time.Second)
	for _, c := range []struct {
		verb   event
		begins int64
		broken int
	}{
		{event{What: "remove", Node: "b"}, returned + 1, 1},
		{event{What: "remove", Node: "b"}, returned, 0},
		{event{What: "remove", Node: "a"}, returned + 1, 0},
		{event{What: "remove", Node: "b", Err: "unknown"}, returned + 1, 0},
		{event{What: "pause", Node: "b"}, returned + 1, 1},
		{event{What: "move", Node: "b", From: returned - 1, Delay: time.Minute}, returned + 1, 1},
		{event{What: "move", Node: "b", From: confirmed, Delay: -time.Minute}, returned + 1, 0}, // the run is that of the new state
	} {
		verb := c.verb
		verb.Key, verb.At = "k", returned
		v := judge([]event{
			{What: "confirm", Node: "a", Key: "k", Fence: 1, From: confirmed, At: confirmed}, verb,
			{What: "start", Node: "a", Key: "k", Fence: 1, At: c.begins, Due: confirmed},
		}, nil, nil, nil, nil)
		if v.broken["D2"] != c.broken {
			t.Errorf("%+v: %d breaches, want %d: %v", verb, v.broken["D2"], c.broken, v.details)
		}
	}
}

// A run may begin after a verb of another node has returned if the server's clock was set since it was confirmed.
func TestJudge_aRunThatBeginsLate_afterTheClockWasSet(t *testing.T) {
	const confirmed, returned = int64(time.Hour), int64(time.Hour + time.Second)
	for set, broken := range map[int64]int{confirmed - 1: 1, confirmed: 0, returned + 1: 0, returned + 2: 1} {
		v := judge([]event{
			{What: "confirm", Node: "a", Key: "k", Fence: 1, From: confirmed, At: confirmed}, {What: "remove", Node: "b", Key: "k", At: returned},
			{What: "start", Node: "a", Key: "k", Fence: 1, At: returned + 1, Due: confirmed},
		}, nil, nil, nil, clock{{set, set, time.Second}})
		if v.broken["D2"] != broken {
			t.Errorf("set %v after the confirmation: %d breaches, want %d: %v", time.Duration(set-confirmed), v.broken["D2"], broken, v.details)
		}
	}
}

// Tasks are due by the clock of the server, even when another server with another clock replaces it.
func TestJudge_theServersClock(t *testing.T) {
	const at, promoted = int64(time.Hour), int64(time.Hour - 10*time.Second)
	for _, c := range []struct {
		ahead, due time.Duration // how far the promoted server's clock is ahead, and how long after the start the run is due
		broken     int
	}{
		{0, 0, 0}, {0, 1, 1},
		{10 * time.Second, 10 * time.Second, 0}, {10 * time.Second, 11 * time.Second, 1},
		{-10 * time.Second, -10 * time.Second, 0}, {-10 * time.Second, -9 * time.Second, 1},
	} {
		start := event{What: "start", Key: "k", At: at, Due: at + int64(c.due)}
		if v := judge([]event{start}, nil, nil, nil, clock{{promoted, promoted, c.ahead}}); v.broken["D1"] != c.broken {
			t.Errorf("the clock is %v ahead, and the run is due %v after its start: %d breaches, want %d", c.ahead, c.due,
				v.broken["D1"], c.broken)
		}
	}
}

// Two seconds after a kind was paused or a node drained, until that is undone, nothing of it is decided to start.
func TestJudge_pausedAndDrained(t *testing.T) {
	const at, undone = int64(time.Hour), int64(time.Hour + 10*time.Second)
	for _, c := range []struct {
		verb, key string
		after     time.Duration // the verb
		breaks    string
	}{
		{"pause kind", "work", settingsFor, ""}, {"pause kind", "work", settingsFor + 1, "D11"}, {"pause kind", "effect", settingsFor + 1, ""},
		{"drain", "a", settingsFor, ""}, {"drain", "a", settingsFor + 1, "D12"}, {"drain", "b", settingsFor + 1, ""},
		{"drain", "a", 11 * time.Second, ""},
	} {
		asked := at + int64(c.after)
		v := judge([]event{
			{What: "confirm", Node: "a", Key: "k", Fence: 1, From: asked, At: asked + 1}, {What: "start", Node: "a", Key: "k", Kind: "work", Fence: 1, At: asked + 2},
			{What: c.verb, Key: c.key, At: at}, {What: "call", Verb: "undo " + c.verb, Key: c.key, At: undone},
		}, nil, nil, nil, nil)
		if n := v.broken["D11"] + v.broken["D12"]; n != v.broken[c.breaks] || (n > 0) != (c.breaks != "") {
			t.Errorf("%+v: %v", c, v.details)
		}
	}
}

// A delay that was given just after a suspension may be a little too short, and no other.
func TestJudge_aSuspendedProcess(t *testing.T) {
	const at, delay = int64(time.Hour), time.Minute
	for _, c := range []struct {
		node         string
		ended, early time.Duration // the end of the suspension, before the call
		broken       int
	}{
		{"a", 1, engine.MaxStale, 0}, {"a", 1, engine.MaxStale + 1, 1}, {"b", 1, 1, 1}, {"a", 2 * lease, 1, 1},
		{"a" + ofClient, 1, engine.MaxStale, 0}, {"b" + ofClient, 1, 1, 1},
	} {
		due := at + int64(delay-c.early)
		v := judge([]event{
			{What: "add", Node: c.node, Key: "k", From: at, At: at + 1, Delay: delay}, {What: "start", Key: "k", At: due, Due: due},
			{What: "stop", Verb: suspend, Node: "a", From: at - int64(time.Minute), At: at - int64(c.ended)},
		}, nil, nil, nil, nil)
		if v.broken["D1"] != c.broken {
			t.Errorf("%+v: %v", c, v.details)
		}
	}
}
