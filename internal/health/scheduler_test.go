// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestJudgeScheduler(t *testing.T) {
	type r = SchedulerReading
	const s, m, h = time.Second, time.Minute, time.Hour
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	kinds := func(d time.Duration, all ...KindReading) r { return r{Time: ago(d), Kinds: all} }
	recheck := func(succeeded, failed uint64, failure string) KindReading {
		return KindReading{Kind: "recheck", Succeeded: succeeded, Failed: failed, Failure: failure}
	}
	node := func(name string, id int64, left time.Duration) NodeReading {
		return NodeReading{Name: name, ID: id, Lease: 4 * s, Left: left}
	}
	nodes := func(d time.Duration, all ...NodeReading) r { return r{Time: ago(d), Nodes: all} }
	full := r{Broken: "durable: the store has failed: write 000042.log: no space left on device", Full: true, Parked: 3}
	at := func(d time.Duration, x r) r {
		x.Time = ago(d)
		return x
	}
	busy := r{Waiting: 492, Running: 8, Workers: 8, OldestWait: 5 * s}
	behind := r{Left: Backlog{12400, ago(3 * h)}, Done: noon.Add(40 * s)}
	restarted := NodeReading{Name: "b", ID: 3, Lease: 4 * s, Left: 4 * s, Started: ago(s)}
	older := func(n NodeReading, by time.Duration) NodeReading { n.Started = n.Started.Add(-by); return n }
	cut := func(kind string, n uint64) KindReading { return KindReading{Kind: kind, Interrupted: n} }
	still := func(k KindReading) KindReading { k.Failing = true; return k }
	drainedNode := func(name string, left time.Duration) NodeReading {
		return NodeReading{Name: name, ID: int64(name[0]), Lease: 4 * s, Left: left, Drained: true}
	}
	unrenewed := node("a", 1, s)
	unrenewed.Self = true
	again, before := node("b", 3, 4*s), node("b", 2, 4*s)
	again.Started, before.Started = ago(h), ago(h)
	stuck := r{Running: 8, Workers: 8, OldestWait: 41 * s, SinceStart: 38 * s, Busiest: KindRuns{"x", 7, 41 * s, 0},
		Left: Backlog{438, ago(41 * s)}}
	stuckNode := node("b", 2, 4*s)
	stuckNode.Running, stuckNode.Workers, stuckNode.OldestWait, stuckNode.SinceStart = 4, 4, 30*s, 29*s
	stuckNode.Busiest = KindRuns{"y", 4, 30 * s, 0}
	lateNode, self := stuckNode, stuckNode
	lateNode.Left, self.Self = s, true
	both, onlyThis := at(0, stuck), at(0, stuck)
	both.Nodes, onlyThis.Nodes = []NodeReading{self, stuckNode}, []NodeReading{self, node("b", 2, 4*s)}
	for _, c := range []struct {
		name string
		now  r
		past []r
		want []Finding
	}{
		{"nothing", at(0, r{Tasks: 9}), []r{at(s, r{})}, nil},
		{"stopped", at(0, r{Stopped: true, Parked: 1}), []r{at(9*s, r{}), at(5*s, r{Stopped: true})},
			[]Finding{{Stopped, ago(5 * s), "Stopped: it was shut down"}}},
		{"the disk is full", at(0, full), []r{at(9*s, r{}), at(5*s, full)}, []Finding{{StoreFailed, ago(5 * s),
			"The disk is full, and nothing has run for 5 s (make room, then restart the process): " + full.Broken}}},
		{"the store failed just now", at(0, r{Broken: "b\nc"}), []r{at(9*s, r{})}, []Finding{{StoreFailed, noon,
			"The store has failed, and nothing has run (restart the process): b c"}}},
		{"the store failed before", at(0, r{Broken: "b"}), nil, []Finding{{StoreFailed, time.Time{},
			"The store has failed, and nothing has run (restart the process): b"}}},
		{"tasks can be lost", at(0, r{Unflushed: true}), []r{at(9*s, r{}), at(5*s, r{Unflushed: true})},
			[]Finding{{Unflushed, ago(5 * s),
				"A crash of the engine's server can lose acknowledged tasks: synchronous_commit or fsync is off"}}},
		{"an old primary", at(0, r{Refused: 5}), []r{at(2*m, r{Refused: 2}), at(41*s, r{Refused: 3}), at(9*s, r{Refused: 5})},
			[]Finding{{Refused, ago(41 * s), "3 connections to the wrong database server were refused, the latest 9 s ago: " +
				"it is an old primary, or another cluster. Stop it, or make it a standby of the primary"}}},
		{"it is refused just now", at(0, r{Refused: 1}), []r{at(9*s, r{}), at(5*s, r{Refused: -1})},
			[]Finding{{Refused, noon, "1 connection to the wrong database server was refused, the latest just now: " +
				"it is an old primary, or another cluster. Stop it, or make it a standby of the primary"}}},
		{"it was refused a minute ago", at(0, r{Refused: 5}), []r{at(65*s, r{}), at(m, r{Refused: 5}), at(5*s, r{Refused: 5})}, nil},
		{"before the first reading", at(0, r{Refused: 5}), []r{at(9*s, r{Refused: -1})}, nil},
		{"it is not known", at(0, r{Refused: -1}), []r{at(9*s, r{Refused: 5})}, nil},
		{"the engine is away", at(0, r{Away: "claims: refused", AwayFor: 61 * s, Unread: "refused", Nodes: []NodeReading{node("a", 1, -m)}, Left: Backlog{Tasks: 1}}),
			[]r{nodes(70*s, node("a", 1, 4*s), node("b", 2, 4*s)), at(61*s, r{Unread: "refused"}), at(5*s, r{Away: "x"})},
			[]Finding{{EngineAway, ago(61 * s), "The engine has not served this node for 1 m 1 s, and nothing starts here: claims: refused"}}},
		{"the engine is away, and starts are not known yet", at(0, r{Away: "x", AwayFor: s, Started: 5}), []r{at(2*s, r{Started: 5})},
			[]Finding{{EngineAway, ago(s), "The engine has not served this node for 1 s: x"}}},
		{"the engine takes no renewals", at(0, r{Away: "renewals: locked", AwayFor: 7 * s, Started: 45, Nodes: []NodeReading{unrenewed, node("b", 2, -s)}}),
			[]r{at(4*s, r{Started: 3}), at(2*s, r{Started: 40})}, []Finding{
				{EngineAway, ago(7 * s), "The engine has not served this node for 7 s; runs go on, 11 a second: renewals: locked"},
				{NodeLate, ago(3 * s), "Node a has not renewed its lease for 3 s"},
				{NodeLate, ago(5 * s), "Node b has not renewed its lease for 5 s: it has expired, and no other node takes over its tasks"},
			}},
		{"another node cannot run tasks", at(0, r{Nodes: []NodeReading{node("a", 1, -s), {Name: "b", ID: 2, Lease: 4 * s, Left: 3 * s, Away: true}}}),
			[]r{nodes(5*s, node("a", 1, s))}, []Finding{
				{NodeLate, ago(5 * s), "Node a has not renewed its lease for 5 s: it has expired, and no other node takes over its tasks"},
			}},
		{"the page cannot read", at(0, r{Unread: "too many connections", UnreadSince: ago(16 * s), Started: 4, Parked: 1, Nodes: []NodeReading{node("a", 1, -m)}}),
			[]r{at(20*s, r{}), at(10*s, r{Started: 3})},
			[]Finding{{Unread, ago(16 * s), "This page cannot read the engine for 16 s; runs go on: too many connections"}}},
		{"nor does anything start", at(0, r{Unread: "no answer", UnreadSince: noon, Started: 4}), []r{at(20*s, r{Started: 4})},
			[]Finding{{Unread, noon, "This page cannot read the engine: no answer"}}},
		{"a pause that may be forgotten", at(0, r{Paused: []DueReading{{Due: 12, Paused: ago(h)}, {Kind: "mail", Due: 1, Paused: ago(h - s)}}}), nil,
			[]Finding{{Paused, ago(h), "All kinds are paused for 1 h: 12 due tasks wait"}}},
		{"all nodes are drained", at(0, r{Nodes: []NodeReading{drainedNode("a", 2*s), drainedNode("b", 3*s), node("c", 3, -m)}, Left: Backlog{12400, ago(3 * h)}, Orphans: []DueReading{{Kind: "o", Due: 1, More: false, Oldest: ago(m)}}}),
			[]r{at(9*s, r{}), at(5*s, r{Nodes: []NodeReading{drainedNode("a", 2*s)}})}, []Finding{
				{NodeLate, ago(m + 4*s), "Node c has not renewed its lease for 1 m 4 s: it has expired, and no other node takes over its tasks"},
				{Drained, ago(5 * s), "All 2 nodes are drained, and nothing starts: 12,401 due tasks wait"},
			}},
		{"a node is drained, and the other leaves", at(0, r{Nodes: []NodeReading{drainedNode("a", 2*s), {Name: "b", ID: 2, Lease: 4 * s, Left: 3 * s, Leaving: true}}}),
			[]r{at(9*s, r{})}, []Finding{{Drained, noon, "All 2 nodes are drained or leaving, and nothing starts"}}},
		{"the other node leaves", at(0, r{Nodes: []NodeReading{node("a", 1, -s), {Name: "b", ID: 2, Lease: 4 * s, Left: 3 * s, Leaving: true}}}),
			[]r{nodes(5*s, node("a", 1, s))}, []Finding{
				{NodeLate, ago(5 * s), "Node a has not renewed its lease for 5 s: it has expired, and no other node takes over its tasks"},
			}},
		{"the other node handles other kinds", at(0, r{Nodes: []NodeReading{{Name: "a", ID: 1, Lease: 4 * s, Left: -s, Kinds: []string{"x"}, AllKinds: true},
			{Name: "b", ID: 2, Lease: 4 * s, Left: 3 * s, Kinds: []string{"y"}, AllKinds: true}}}),
			[]r{nodes(5*s, node("a", 1, s))}, []Finding{
				{NodeLate, ago(5 * s), "Node a has not renewed its lease for 5 s: it has expired, and no other node takes over its tasks"},
			}},
		{"the other node handles a kind of it", at(0, r{Nodes: []NodeReading{{Name: "a", ID: 1, Lease: 4 * s, Left: -s, Kinds: []string{"x", "y"}, AllKinds: true},
			{Name: "b", ID: 2, Lease: 4 * s, Left: 3 * s, Kinds: []string{"y"}, AllKinds: true}}}),
			[]r{nodes(5*s, node("a", 1, s))}, []Finding{
				{NodeLate, ago(5 * s), "Node a has not renewed its lease for 5 s: it has expired, and other nodes take over its tasks"},
			}},
		{"the only node is drained", at(0, r{Nodes: []NodeReading{drainedNode("a", 2*s)}}), []r{at(9*s, r{})},
			[]Finding{{Drained, noon, "The only node is drained, and nothing starts"}}},
		{"one of two nodes is drained", at(0, r{Nodes: []NodeReading{drainedNode("a", 2*s), node("b", 2, 3*s)}}), nil, nil},
		{"the only drained node has no lease", at(0, r{Nodes: []NodeReading{drainedNode("a", -m)}, Unread: "x", UnreadSince: noon}), nil,
			[]Finding{{Unread, noon, "This page cannot read the engine: x"}}},
		{"the first count", at(0, r{Counting: true}), []r{at(9*s, r{}), at(5*s, r{Counting: true})},
			[]Finding{{Counting, ago(5 * s), "The tasks are being counted"}}},
		{"a count after an outage", at(0, r{Counting: true, Counted: ago(40 * s), Tasks: 1204, Parked: 1}), []r{at(9*s, r{Parked: 1})}, []Finding{
			{Parked, time.Time{}, "1 task is parked, waiting for an operator, counted 40 s ago"},
			{Counting, noon, "The tasks are being counted again: 1,204 tasks 40 s ago"},
		}},
		{"a late lease", nodes(0, node("a", 1, 4*s), node("b", 2, 1900*time.Millisecond), node("c", 3, -s)), nil, []Finding{
			{NodeLate, ago(2100 * time.Millisecond), "Node b has not renewed its lease for 2 s"},
			{NodeLate, ago(5 * s), "Node c has not renewed its lease for 5 s: it has expired, and other nodes take over its tasks"},
		}},
		{"overloaded", at(0, busy), []r{at(50*s, r{}), at(36*s, busy), at(5*s, busy)}, []Finding{{Overloaded, ago(41 * s),
			"Overloaded for 41 s: 8 of 8 workers busy, 492 runs wait, the oldest for 5 s"}}},
		{"overloaded at the first reading", at(0, busy), nil, []Finding{{Overloaded, ago(5 * s),
			"Overloaded for 5 s: 8 of 8 workers busy, 492 runs wait, the oldest for 5 s"}}},
		{"a burst", at(0, r{Waiting: 492, Running: 8, Workers: 8, OldestWait: s / 2}), []r{at(s, busy)}, nil},
		{"all workers stuck", at(0, stuck), []r{at(5*s, stuck)}, []Finding{{Overloaded, ago(46 * s), "Overloaded for 46 s: 8 of 8 workers busy, " +
			"438 due tasks wait, the oldest for 41 s; none has started for 38 s; 7 workers run kind x, the longest for 41 s"}}},
		{"and not all of the tasks are counted", at(0, r{Running: 1, Workers: 8, OldestWait: 9 * s, SinceStart: 9 * s, Busiest: KindRuns{"x", 1, 9 * s, 0},
			Left: Backlog{9, ago(9 * s)}, LeftMore: true}), nil, []Finding{{Overloaded, ago(9 * s), "Overloaded for 9 s: 1 of 8 workers busy, " +
			"at least 9 due tasks wait, the oldest for 9 s; none has started for 9 s; 1 worker has run kind x for 9 s"}}},
		{"none of them is", at(0, r{Running: 8, Workers: 8, OldestWait: 5 * s, SinceStart: s / 2, Busiest: KindRuns{"x", 8, s / 2, 0}}), nil,
			[]Finding{{Overloaded, ago(5 * s), "Overloaded for 5 s: 8 of 8 workers busy, due tasks wait, the oldest for 5 s"}}},
		{"two nodes, all workers stuck", both, nil, []Finding{
			{Overloaded, ago(41 * s), "Overloaded for 41 s: 8 of 8 workers busy, 438 due tasks wait, the oldest for 41 s; " +
				"none has started for 38 s; 7 workers run kind x, the longest for 41 s"},
			{Overloaded, ago(30 * s), "Node b is overloaded: 4 of 4 workers busy, due tasks wait, the oldest for 30 s; " +
				"none has started for 29 s; 4 workers run kind y, the longest for 30 s"}}},
		{"another works", at(0, r{Nodes: []NodeReading{node("a", 1, 4*s), stuckNode}, Left: Backlog{438, ago(41 * s)}}), nil, []Finding{
			{Overloaded, ago(30 * s), "Node b is overloaded: 4 of 4 workers busy, due tasks wait, the oldest for 30 s; " +
				"none has started for 29 s; 4 workers run kind y, the longest for 30 s"},
			{CatchingUp, time.Time{}, "Catching up: 438 overdue tasks left, the oldest due 41 s ago"}}},
		{"only this one is stuck", onlyThis, nil, []Finding{
			{Overloaded, ago(41 * s), "Overloaded for 41 s: 8 of 8 workers busy, 438 due tasks wait, the oldest for 41 s; " +
				"none has started for 38 s; 7 workers run kind x, the longest for 41 s"},
			{CatchingUp, time.Time{}, "Catching up: 438 overdue tasks left, the oldest due 41 s ago"}}},
		{"many nodes are overloaded", nodes(0, stuckNode, stuckNode, stuckNode, stuckNode), nil, []Finding{
			{Overloaded, ago(30 * s), "4 nodes are overloaded: b, b, b and 1 other"}}},
		{"many nodes are late", nodes(0, node("a", 1, 0), node("b", 2, 0), node("c", 3, s), node("d", 4, 0), node("e", 5, 0)), nil, []Finding{
			{NodeLate, ago(4 * s), "5 nodes have not renewed their leases in time: a, b, c and 2 others"}}},
		{"all of many nodes are late", nodes(0, node("a", 1, 0), node("b", 2, 0), node("c", 3, -s), node("d", 4, 0)), nil, []Finding{
			{NodeLate, ago(5 * s), "4 nodes have not renewed their leases in time, and no other node takes over their tasks: a, b, c and 1 other"}}},
		{"a node that is late says nothing new", nodes(0, lateNode), nil, []Finding{
			{NodeLate, ago(3 * s), "Node b has not renewed its lease for 3 s"}}},
		{"busy, and nothing waits", at(0, r{Running: 8, Workers: 8}), []r{at(m, r{Running: 8, Workers: 8})}, nil},
		{"a kind without a handler", at(0, r{Orphans: []DueReading{{Kind: "mail", Due: 12, More: false, Oldest: ago(3 * m)}, {Kind: "sms", Due: 0, More: false, Oldest: noon}}}), nil,
			[]Finding{{Unhandled, ago(3 * m), "Kind mail has no handler here: 12 due tasks wait, the oldest for 3 m"}}},
		{"on any node", at(0, r{Orphans: []DueReading{{Kind: "mail", Due: 1, More: true, Oldest: time.Time{}}}, Nodes: []NodeReading{node("a", 1, 4*s), node("b", 2, 4*s)}}),
			nil, []Finding{{Unhandled, time.Time{}, "Kind mail has no handler on any node: at least 1 due task waits"}}},
		{"a handler that always fails", kinds(0, recheck(196, 1304, "connection refused")), []r{
			kinds(6*m, recheck(0, 0, "")), kinds(4*m, recheck(100, 100, "")), kinds(3*m, recheck(190, 100, "")), kinds(2*m, recheck(190, 101, "")),
		}, []Finding{{Failing, ago(2 * m), "Kind recheck: 1,204 of 1,300 attempts failed in the last 5 m: connection refused"}}},
		{"it has begun just now", kinds(0, recheck(0, 3, "")), []r{kinds(s)}, []Finding{{Failing, noon,
			"Kind recheck: 3 of 3 attempts failed in the last 5 m"}}},
		{"on this node", r{Time: noon, Kinds: []KindReading{recheck(0, 3, "")}, Nodes: []NodeReading{node("a", 1, 4*s), node("b", 2, 4*s)}},
			[]r{at(s, r{})}, []Finding{{Failing, noon, "Kind recheck: 3 of 3 attempts on this node failed in the last 5 m"}}},
		{"it has begun to fail after many successes", kinds(0, recheck(9_001, 4, "")), []r{
			kinds(4*m, recheck(0, 0, "")), kinds(m, recheck(8_900, 0, "")), kinds(3*s, recheck(9_000, 0, "")), kinds(s, recheck(9_001, 3, "")),
		}, []Finding{{Failing, ago(s), "Kind recheck: 4 of 5 attempts failed in the last 3 s"}}},
		{"one in three fails", kinds(0, recheck(60, 30, "")), []r{
			kinds(m, recheck(0, 0, "")), kinds(30*s, recheck(30, 15, "")), kinds(3*s, recheck(56, 28, ""))}, nil},
		{"it was failing, and half of them fail", kinds(0, recheck(20, 20, "")), []r{
			kinds(51*s, recheck(0, 3, "")), kinds(50*s, still(recheck(0, 6, ""))), kinds(30*s, still(recheck(10, 10, ""))), kinds(s, still(recheck(20, 19, "")))}, []Finding{
			{Failing, ago(50 * s), "Kind recheck: 17 of 37 attempts failed in the last 51 s"}}},
		{"it was failing, and a quarter of them fail", kinds(0, recheck(43, 16, "")), []r{
			kinds(50*s, recheck(0, 3, "")), kinds(s, still(recheck(43, 15, "")))}, nil},
		{"it was failing, and a quarter of them have failed for a minute", kinds(0, recheck(400, 300, "")), []r{
			kinds(2*m, still(recheck(0, 3, ""))), kinds(58*s, still(recheck(350, 290, ""))), kinds(s, still(recheck(399, 300, "")))}, nil},
		{"two failures", kinds(0, recheck(0, 2, "")), []r{kinds(s)}, nil},
		{"half of them", kinds(0, recheck(3, 3, "")), []r{kinds(s)}, nil},
		{"failures before the first reading", kinds(0, recheck(0, 9, "")), nil, nil},
		{"failures long ago", kinds(0, recheck(0, 9, "")), []r{kinds(6 * m), kinds(m, recheck(0, 9, ""))}, nil},
		{"many kinds fail", kinds(0, KindReading{Kind: "a", Failed: 3}, KindReading{Kind: "b", Failed: 3}, KindReading{Kind: "c", Failed: 3},
			KindReading{Kind: "d", Failed: 3}), []r{kinds(s)}, []Finding{
			{Failing, noon, "Kind a: 3 of 3 attempts failed in the last 5 m"}, {Failing, noon, "Kind b: 3 of 3 attempts failed in the last 5 m"},
			{Failing, noon, "Kind c: 3 of 3 attempts failed in the last 5 m (and more: kinds fail)"},
		}},
		{"parked", at(0, r{Parked: 1204, Kinds: []KindReading{{Kind: "a", Parked: 4}, {Kind: "b", Parked: 1200}}}), []r{at(m, r{}), at(s, r{Parked: 1})},
			[]Finding{{Parked, ago(s), "1,204 tasks are parked, 1,200 of them of kind b, waiting for an operator"}}},
		{"parked before the first reading", at(0, r{Parked: 1, Kinds: []KindReading{{Kind: "a", Parked: 1}}}), []r{at(m, r{Parked: 1})},
			[]Finding{{Parked, time.Time{}, "1 task is parked, of kind a, waiting for an operator"}}},
		{"parked, of kinds that are not counted yet", at(0, r{Parked: 2}), []r{at(m, r{})},
			[]Finding{{Parked, noon, "2 tasks are parked, waiting for an operator"}}},
		{"a node was taken over: it was late", nodes(0, node("a", 1, 4*s)), []r{
			nodes(9*s, node("a", 1, 4*s), node("b", 2, 4*s)), nodes(8*s, node("a", 1, 4*s), node("b", 2, s)), nodes(7*s, node("a", 1, 4*s)),
		}, []Finding{{NodeLost, ago(7 * s), "Node b was lost 7 s ago: its lease expired, and other nodes took over its tasks"}}},
		{"it left between two readings", nodes(0, node("a", 1, 4*s)), []r{nodes(5*s, node("a", 1, 4*s), node("b", 2, 4*s))}, nil},
		{"it was taken over between two readings", at(0, r{Nodes: []NodeReading{node("a", 1, 4*s)}, Lost: []LostNode{{"b", ago(s)}}}),
			[]r{nodes(5*s, node("a", 1, 4*s), node("b", 2, 4*s))},
			[]Finding{{NodeLost, ago(s), "Node b was lost 1 s ago: its lease expired, and other nodes took over its tasks"}}},
		{"it was late, and taken over", at(0, r{Lost: []LostNode{{"b", ago(2 * s)}, {"b", ago(h)}, {"old", ago(h)}}}),
			[]r{nodes(5*s, node("b", 2, s)), at(s, r{Lost: []LostNode{{"b", ago(2 * s)}}})},
			[]Finding{{NodeLost, ago(2 * s), "Node b was lost 2 s ago: its lease expired, and other nodes took over its tasks"}}},
		{"the node that took it over has left", nodes(0), []r{at(s, r{Lost: []LostNode{{"b", ago(2 * s)}}})},
			[]Finding{{NodeLost, ago(2 * s), "Node b was lost 2 s ago: its lease expired, and other nodes took over its tasks"}}},
		{"it was taken over, and is back", at(0, r{Nodes: []NodeReading{again}, Lost: []LostNode{{"b", ago(s)}}}), nil,
			[]Finding{{NodeLost, ago(s), "Node b was lost 1 s ago: its lease expired, and other nodes took over its tasks; it is back"}}},
		{"it has been back for long", at(0, r{Nodes: []NodeReading{again}, Lost: []LostNode{{"b", ago(6 * s)}}}), nil, nil},
		{"it was back, and has left", at(0, r{Lost: []LostNode{{"b", ago(20 * s)}}}), []r{nodes(9*s, again)}, nil},
		{"it was taken over, and started again", at(0, r{Nodes: []NodeReading{restarted}, Lost: []LostNode{{"b", ago(m)}}}), nil,
			[]Finding{{NodeLost, ago(m), "Node b was lost 1 m ago: its lease expired, and other nodes took over its tasks; it is back"}}},
		{"it was started again long ago", at(0, r{Nodes: []NodeReading{restarted}, Lost: []LostNode{{"b", ago(m)}}}), []r{at(9*s, r{Nodes: []NodeReading{older(restarted, 9*s)}})}, nil},
		{"runs that a loss has cut off", at(0, r{Nodes: []NodeReading{node("a", 1, 4*s)}, Lost: []LostNode{{"b", ago(s)}}, Kinds: []KindReading{cut("mail", 5), cut("sms", 1)}}),
			[]r{at(9*s, r{Kinds: []KindReading{cut("mail", 2), cut("sms", 1)}}), at(2*s, r{Kinds: []KindReading{cut("mail", 4), cut("sms", 1)}})},
			[]Finding{{NodeLost, ago(s), "Node b was lost 1 s ago: its lease expired, and other nodes took over its tasks; cut off: 3 of kind mail"}}},
		{"late leases that are not known any more", at(0, r{Nodes: []NodeReading{node("a", 1, -s)}, NodesOld: true, Lost: []LostNode{{"b", noon}}}), nil, nil},
		{"no lease could be renewed", nodes(0, node("a", 1, -9*s)), []r{nodes(20*s, node("a", 1, 4*s)), at(5*s, r{Unread: "refused"}), nodes(s, node("a", 1, -8*s))}, nil},
		{"it could be renewed by now", nodes(0, node("a", 1, -9*s), node("b", 2, s)), []r{at(5*s, r{Unread: "refused"}), nodes(2*s, node("a", 1, -7*s))}, []Finding{
			{NodeLate, ago(13 * s), "Node a has not renewed its lease for 13 s: it has expired, and other nodes take over its tasks"},
			{NodeLate, ago(3 * s), "Node b has not renewed its lease for 3 s"},
		}},
		{"the engine does not answer, and what was before it", at(0, r{Unread: "x", UnreadSince: noon, Parked: 3, Orphans: []DueReading{{Kind: "mail", Due: 12, More: false, Oldest: ago(m)}}}), []r{at(s, r{})},
			[]Finding{{Unread, noon, "This page cannot read the engine: x"}}},
		{"failures of tasks that are gone", at(0, r{Counted: noon, Kinds: []KindReading{recheck(0, 3, "")}}), []r{at(9*s, r{}), kinds(s, recheck(0, 3, ""))}, nil},
		{"failures since the tasks were counted", at(0, r{Counted: ago(4 * s), Kinds: []KindReading{recheck(0, 3, "")}}), []r{at(9*s, r{}), kinds(s, recheck(0, 3, ""))},
			[]Finding{{Failing, ago(s), "Kind recheck: 3 of 3 attempts failed in the last 5 m"}}},
		{"failures that are over", kinds(0, recheck(3, 300, "")), []r{kinds(m), kinds(10*s, recheck(0, 300, "")), kinds(5*s, recheck(2, 300, ""))}, nil},
		{"too few have succeeded since", kinds(0, recheck(2, 300, "")), []r{kinds(m), kinds(20*s, recheck(0, 300, ""))},
			[]Finding{{Failing, ago(20 * s), "Kind recheck: 300 of 302 attempts failed in the last 5 m"}}},
		{"a backlog that was counted long ago", at(0, r{Left: Backlog{40, ago(m)}, LeftAt: ago(41 * s)}), nil,
			[]Finding{{CatchingUp, time.Time{}, "Catching up: 40 overdue tasks left, the oldest due 1 m ago, counted 41 s ago"}}},
		{"it was lost, and joined again", nodes(0, again), []r{nodes(s, before)},
			[]Finding{{NodeLost, noon, "Node b was lost just now: its lease expired, and other nodes took over its tasks; it is back"}}},
		{"it was restarted", nodes(0, restarted), []r{nodes(s, before)}, nil},
		{"it left", nodes(0, node("a", 1, 4*s)), []r{nodes(2*s, node("a", 1, 4*s), node("b", 2, 4*s)), nodes(s, node("a", 1, 4*s))}, nil},
		{"lost long ago", nodes(0, node("a", 1, 4*s)), []r{nodes(7*m, node("b", 2, s)), nodes(6*m, node("a", 1, 4*s))}, nil},
		{"a backlog", at(0, behind), []r{at(m, r{}), at(30*s, behind)}, []Finding{{CatchingUp, ago(30 * s),
			"Catching up: 12,400 overdue tasks left, the oldest due 3 h ago, done in about 40 s"}}},
		{"a backlog of a kind that hangs", at(0, r{Left: Backlog{36, ago(m)}, Workers: 8, Running: 4, Busiest: KindRuns{"hang", 4, 3 * s, 0}}), nil,
			[]Finding{{CatchingUp, time.Time{}, "Catching up: 36 overdue tasks left, the oldest due 1 m ago; 4 workers run kind hang, the longest for 3 s"}}},
		{"a backlog next to that of a limit", at(0, r{Left: Backlog{40, ago(m)}, Limited: []LimitedReading{{"mail", "1 at once on each node", Backlog{300, ago(h)}}}, Done: noon.Add(h)}), nil,
			[]Finding{{CatchingUp, time.Time{}, "Catching up: 40 overdue tasks left, the oldest due 1 m ago"}}},
		{"a backlog of unknown size", at(0, r{Left: Backlog{1, ago(m)}, LeftMore: true}), nil, []Finding{{CatchingUp, time.Time{},
			"Catching up: at least 1 overdue task left, the oldest due 1 m ago"}}},
		{"due just now", at(0, r{Left: Backlog{5, ago(s / 2)}}), nil, nil},
		{"a slow kind has its share of the workers", at(0, r{Running: 4, Workers: 8, OldestWait: 38 * s, Busiest: KindRuns{"hang", 4, 39 * s, 36}}), nil,
			[]Finding{{Overloaded, ago(38 * s), "36 of kind hang wait, the oldest due task for 38 s: a slow kind gets half of the workers (4 of 8); the longest run for 39 s"}}},
		{"the worst first", at(0, r{Parked: 1, Left: Backlog{1, ago(m)}, Nodes: []NodeReading{node("a", 1, 0), node("b", 2, 4*s)}, Orphans: []DueReading{{Kind: "o", Due: 1, More: false, Oldest: ago(m)}},
			Kinds: []KindReading{recheck(0, 3, "")}, Waiting: 1, Running: 1, Workers: 1, OldestWait: 2 * s}), []r{at(2*s, r{})}, []Finding{
			{NodeLate, ago(4 * s), "Node a has not renewed its lease for 4 s: it has expired, and other nodes take over its tasks"},
			{Overloaded, ago(2 * s), "Overloaded for 2 s: 1 of 1 worker busy, 1 run waits, the oldest for 2 s"},
			{Unhandled, ago(m), "Kind o has no handler on any node: 1 due task waits, the oldest for 1 m"},
			{Failing, noon, "Kind recheck: 3 of 3 attempts on this node failed in the last 5 m"},
			{Parked, noon, "1 task is parked, waiting for an operator"},
			{CatchingUp, noon, "Catching up: 1 overdue task left, the oldest due 1 m ago"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found(t, JudgeScheduler(c.now, c.past), c.want)
		})
	}
}

// Pauses are notes, not findings.
func TestNotesOfScheduler(t *testing.T) {
	at := func(second int, paused ...DueReading) SchedulerReading {
		return SchedulerReading{Time: noon.Add(time.Duration(second) * time.Second), Paused: paused}
	}
	mail, sms := DueReading{Kind: "mail", Due: 1}, DueReading{Kind: "sms", Due: 1000, More: true}
	for name, c := range map[string]struct {
		now  SchedulerReading
		past []SchedulerReading
		want []Finding
	}{
		"nothing":             {at(0), []SchedulerReading{at(-5, mail)}, nil},
		"since the beginning": {at(0, mail), []SchedulerReading{at(-5, mail)}, []Finding{{Paused, time.Time{}, "Kind mail is paused: 1 due task waits"}}},
		"one after the other": {at(0, mail, sms), []SchedulerReading{at(-9), at(-5, mail)}, []Finding{
			{Paused, noon.Add(-5 * time.Second), "Kind mail is paused: 1 due task waits"},
			{Paused, noon, "Kind sms is paused: at least 1,000 due tasks wait"},
		}},
		"a slow engine": {SchedulerReading{Time: noon, Slow: 312 * time.Millisecond}, []SchedulerReading{at(-5)},
			[]Finding{{Slow, noon, "The engine is slow: it takes 312 ms to answer on average, and runs start that much later"}}},
		"by whom": {at(0, DueReading{Kind: "mail", Due: 3, Paused: noon.Add(-time.Minute), Who: "ann", Why: "smtp is\ndown"}), []SchedulerReading{at(-5)},
			[]Finding{{Paused, noon.Add(-time.Minute), "Kind mail is paused for 1 m by ann (smtp is down): 3 due tasks wait"}}},
		"for long, and nothing is due": {at(0, DueReading{Kind: "mail", Paused: noon.Add(-2 * time.Hour)}), nil,
			[]Finding{{Paused, noon.Add(-2 * time.Hour), "Kind mail is paused for 2 h"}}},
		"none is due": {at(0, DueReading{Kind: "mail"}), []SchedulerReading{at(-5)}, []Finding{{Paused, noon, "Kind mail is paused"}}},
		"all of them": {at(0, DueReading{Due: 12}), []SchedulerReading{at(-5, mail)}, []Finding{{Paused, noon, "All kinds are paused: 12 due tasks wait"}}},
		"a limit": {SchedulerReading{Time: noon, Limited: []LimitedReading{
			{"mail", "1 at once on all nodes", Backlog{297, noon.Add(-time.Minute)}}, {"sms", "10 per 1 s on each node", Backlog{1, noon.Add(-time.Second / 2)}},
		}}, nil, []Finding{{Limited, time.Time{}, "Kind mail: 297 due tasks wait for its limit (1 at once on all nodes), the oldest due 1 m ago"}}},
		"a limit, counted long ago": {SchedulerReading{Time: noon, LeftMore: true, LeftAt: noon.Add(-time.Minute), Limited: []LimitedReading{{"mail", "x", Backlog{1, noon.Add(-time.Hour)}}}},
			[]SchedulerReading{{Time: noon.Add(-5 * time.Second)}}, []Finding{{Limited, noon,
				"Kind mail: at least 1 due task waits for its limit (x), the oldest due 1 h ago, counted 1 m ago"}}},
		"a full disk": {SchedulerReading{Time: noon, DiskFree: 1_960_000_000, DiskSize: 40_000_000_000},
			[]SchedulerReading{{Time: noon.Add(-9 * time.Second), DiskFree: 3e9, DiskSize: 4e10}, {Time: noon.Add(-5 * time.Second), DiskFree: 19e8, DiskSize: 4e10}},
			[]Finding{{DiskLow, noon.Add(-5 * time.Second), "The disk of the store is nearly full: 2.0 GB of 40.0 GB are free"}}},
		"a drained node": {SchedulerReading{Time: noon, Nodes: []NodeReading{{Name: "web-1", ID: 1, Drained: true, Running: 3}, {Name: "web-2", ID: 2}}},
			[]SchedulerReading{{Time: noon.Add(-9 * time.Second), Nodes: []NodeReading{{ID: 1}}}, {Time: noon.Add(-5 * time.Second), Nodes: []NodeReading{{ID: 1, Drained: true}}}},
			[]Finding{{Drained, noon.Add(-5 * time.Second), "Node web-1 is drained; runs in progress: 3"}}},
		"drained nodes, of which one can be stopped": {SchedulerReading{Time: noon, Nodes: []NodeReading{
			{Name: "a", ID: 1, Drained: true, Held: 2, Lease: 4, Left: 4}, {Name: "b", ID: 2, Drained: true, Lease: 4, Left: 1},
			{Name: "c", ID: 3, Drained: true, Lease: 4, Left: 4}, {Name: "d", ID: 4, Lease: 4, Left: 4},
		}}, []SchedulerReading{{Time: noon.Add(-time.Second), Unread: "x"}, {Time: noon.Add(-time.Second)}}, []Finding{
			{Drained, noon, "Node a is drained; tasks that it still holds: 2"},
			{Drained, noon, "Node b is drained, and its runs may be in progress: it does not renew its lease"},
			{Drained, noon, "Node c is drained and can be stopped"},
		}},
		"a drained node, from old reports": {SchedulerReading{Time: noon, NodesOld: true, Nodes: []NodeReading{{Name: "a", ID: 1, Drained: true, Lease: 4, Left: 4}}},
			[]SchedulerReading{{Time: noon.Add(-time.Second)}}, []Finding{{Drained, noon, "Node a is drained"}}},
		"drained nodes": {SchedulerReading{Time: noon, Nodes: []NodeReading{{Name: "a", ID: 1, Drained: true}, {Name: "b", ID: 2, Drained: true},
			{Name: "c", ID: 3, Drained: true}, {Name: "d", ID: 4, Drained: true}}}, nil, []Finding{
			{Drained, time.Time{}, "4 nodes are drained: a, b, c and 1 other"}}},
		"nodes that leave": {SchedulerReading{Time: noon, Nodes: []NodeReading{{Name: "a", ID: 1, Leaving: true, Running: 8}, {Name: "b", ID: 2, Leaving: true}, {Name: "c", ID: 3}}},
			[]SchedulerReading{{Time: noon.Add(-9 * time.Second), Nodes: []NodeReading{{ID: 1, Running: 8}}}, {Time: noon.Add(-5 * time.Second), Nodes: []NodeReading{{ID: 1, Leaving: true, Running: 9}}}},
			[]Finding{{Leaving, noon.Add(-5 * time.Second), "Node a is leaving: 8 runs left"}}},
		"too little CPU": {SchedulerReading{Time: noon, CPUWait: 340 * time.Millisecond}, []SchedulerReading{at(-9), {Time: noon.Add(-5 * time.Second), CPUWait: time.Second}},
			[]Finding{{Starved, noon.Add(-5 * time.Second), "This process gets too little CPU: it waits up to 340 ms for a processor, and its timers are that late"}}},
		"no autovacuum": {SchedulerReading{Time: noon, NoVacuum: "on this server", DeadRows: 1204}, []SchedulerReading{at(-5)},
			[]Finding{{Dirty, noon, "Autovacuum is off on this server: 1,204 dead rows"}}},
		"a disk without a byte": {SchedulerReading{Time: noon, DiskSize: 999_960_000}, nil,
			[]Finding{{DiskLow, time.Time{}, "The disk of the store is nearly full: 0 B of 1.0 GB are free"}}},
		"a disk with room": {SchedulerReading{Time: noon, DiskFree: 2e9, DiskSize: 4e10}, nil, nil},
		"stopped":          {SchedulerReading{Time: noon, Stopped: true, Paused: []DueReading{mail}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found(t, NotesOfScheduler(c.now, c.past), c.want)
			if c.now.Stopped = false; len(LateNodes(c.now, c.past)) == 0 && JudgeScheduler(c.now, nil) != nil {
				t.Errorf("the findings are %v", JudgeScheduler(c.now, nil))
			}
		})
	}
}

// An operator should know of a pause for which due tasks have waited for a minute.
func TestSchedulerReading_Watch(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for _, c := range []struct {
		paused []DueReading
		want   bool
	}{
		{nil, false},
		{[]DueReading{{Kind: "a", Due: 1}, {Kind: "b", Paused: ago(time.Hour)}, {Kind: "c", Due: 1, Paused: ago(59 * time.Second)}}, false},
		{[]DueReading{{Kind: "b", Paused: ago(time.Hour)}, {Due: 1, Paused: ago(time.Minute)}}, true},
	} {
		if got := (SchedulerReading{Time: noon, Paused: c.paused}).Watch(); got != c.want {
			t.Errorf("%+v: %t", c.paused, got)
		}
	}
}

func TestSchedulerIsWell(t *testing.T) {
	for want, r := range map[string]SchedulerReading{
		"Working: 1 of 8 workers busy, 1,204 tasks, none parked":     {Running: 1, Workers: 8, Tasks: 1204},
		"Working: 3 of 8 workers busy, 1 task, none parked":          {Running: 3, Workers: 8, Tasks: 1},
		"Working: 0 of 1 worker busy, 0 tasks, none parked, 2 nodes": {Workers: 1, Nodes: make([]NodeReading, 2)},
	} {
		if got := SchedulerIsWell(r); got != want {
			t.Errorf("%+v is %q, want %q", r, got, want)
		}
	}
}

func TestSurvival(t *testing.T) {
	for want, c := range map[string]struct {
		replicated bool
		standbys   int
	}{
		"Acknowledged tasks survive the loss of the database server (2 synchronous standbys)":                       {true, 2},
		"Acknowledged tasks survive the loss of the database server if the connected standby is synchronous":        {true, 0},
		"Acknowledged tasks can be lost with the database server: synchronous_commit does not wait for the standby": {false, 1},
		"Acknowledged tasks are on this database server only":                                                       {false, 0},
	} {
		if got := Survival(c.replicated, c.standbys); got != want {
			t.Errorf("of %+v it says %q, want %q", c, got, want)
		}
	}
}

// The quoted part of an error is short and on one line.
func TestCause(t *testing.T) {
	for text, want := range map[string]string{
		"a\n\tb  c\xff":                "a b c\uFFFD",
		strings.Repeat("ü", 100):       strings.Repeat("ü", 100),
		"x" + strings.Repeat("ü", 100): "x" + strings.Repeat("ü", 99) + "…",
	} {
		if got := cause(text); got != want {
			t.Errorf("%s is quoted as %s", fmt.Sprintf("%q", text), got)
		}
	}
}
