// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/internal/cpu"
	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/internal/recent"
)

const (
	// readPatience is how long a reading waits for its queries to be answered.
	readPatience = time.Second

	// slowTimes is how many times as long as the last one an answer may take before the engine counts as unreadable.
	slowTimes = 4

	// questionTime is the time after which an unanswered query is cancelled. Until then it is not repeated.
	questionTime = 10 * time.Second

	// noKey is a key that a reading looks up to check whether the engine answers.
	noKey = "\x00"

	maxKinds = 100 // maximum number of kinds in a reading
	maxIdle  = 10  // maximum number of paused kinds in a reading

	// fullFor is how long a kind counts as waiting for its limit after the limit was last seen to be full.
	fullFor = 5 * time.Second
)

// A reader takes readings of one scheduler, one at a time. It keeps the last answers, for readings during which an
// answer is late.
type reader struct {
	s      scheduler
	rec    *AttemptRecorder      // may be nil
	engine engine.HealthReporter // may be nil

	alive   recent.Of[bool]
	stats   recent.Of[durable.Stats]
	census  recent.Of[durable.Counts]
	nodes   recent.Of[[]durable.NodeInfo]
	catchUp recent.Of[durable.CatchUp]
	pauses  recent.Of[durable.Pauses]
	tuned   recent.Of[durable.Tuning]
	health  recent.Of[engine.Health]
	cpu     cpu.Watch

	era     uint64               // number of past outages
	unread  time.Time            // since when the engine has not answered; zero if it did
	whole   durable.Counts       // the last complete count
	handled map[string]bool      // kinds with a handler on any node, as last known; nil if never
	differs bool                 // the last answers about nodes or pauses may be older than what the scheduler itself says
	fullAt  map[string]time.Time // when the limit of a kind was last seen to be full
}

// newReader returns a reader that has asked nothing yet.
func newReader(s scheduler, rec *AttemptRecorder) *reader {
	rd := &reader{s: s, rec: rec, fullAt: make(map[string]time.Time)}
	rd.alive.Always, rd.stats.Always, rd.census.Always, rd.catchUp.Always = true, true, true, true
	for _, limit := range []*time.Duration{&rd.alive.Limit, &rd.stats.Limit, &rd.census.Limit, &rd.nodes.Limit, &rd.catchUp.Limit,
		&rd.pauses.Limit, &rd.tuned.Limit, &rd.health.Limit} {
		*limit = questionTime
	}
	return rd
}

// A reading is the state of a scheduler at a point in time.
type reading struct {
	health.SchedulerReading
	stats  durable.Stats
	census durable.Counts
	nodes  []durable.NodeInfo
	kinds  []durable.KindInfo
	pauses durable.Pauses
	behind durable.CatchUp
	tuned  durable.Tuning

	overdue map[string]health.DueReading // due tasks by kind, whatever they wait for; all kinds together are under ""

	survival string // whether acknowledged tasks survive the loss of the engine's server; empty if unknown

	nodesAt, pausesAt time.Time // when nodes and pauses were requested; zero before the first answer
	era               uint64    // the era of the answers
}

// read reads the scheduler. After an outage it repeats all queries, because those sent during the outage may have been
// answered late.
func (rd *reader) read() reading {
	r := rd.ask()
	if !rd.unread.IsZero() && r.Unread == "" {
		rd.era++
		r = rd.ask()
	}
	switch {
	case r.Unread == "":
		rd.unread = time.Time{}
	case rd.unread.IsZero():
		rd.unread = r.Time
	}
	r.UnreadSince = rd.unread
	return r
}

func (rd *reader) ask() reading {
	alive := rd.alive.Ask(rd.era, func(ctx context.Context) (bool, error) {
		_, there, err := rd.s.Get(ctx, noKey)
		return there, err
	})
	census := rd.census.Ask(rd.era, rd.s.Counts)
	late := func(n durable.NodeInfo) bool { return newNodeReading(n).IsLate() }
	if rd.differs || slices.ContainsFunc(rd.nodes.Last(rd.era).Value, late) {
		rd.nodes.Expire() // it may have renewed its lease meanwhile
		rd.pauses.Expire()
	}
	nodes := rd.nodes.Ask(rd.era, rd.s.Nodes)
	pauses := rd.pauses.Ask(rd.era, rd.s.Paused)
	first := []<-chan struct{}{alive, census, nodes, pauses, rd.tuned.Ask(rd.era, rd.s.Tuned)}
	if rd.engine != nil {
		first = append(first, rd.health.Ask(rd.era, rd.engine.Health))
	}
	waitAll(first...)
	r := reading{era: rd.era}
	r.kinds = rd.s.Kinds()
	hasCensus, hasNodes, hasPauses := rd.census.Last(rd.era), rd.nodes.Last(rd.era), rd.pauses.Last(rd.era)
	if hasCensus.Value.Whole && !hasCensus.Old {
		rd.whole = hasCensus.Value
	} else {
		r.Counting = true
	}
	r.census = rd.whole
	r.nodes, r.nodesAt = hasNodes.Value, hasNodes.At
	r.pauses, r.pausesAt = hasPauses.Value, hasPauses.At
	if errors.Is(hasPauses.Err, durable.ErrVersion) || errors.Is(hasPauses.Err, durable.ErrCorrupt) {
		r.pauses.All = true // a node that cannot read the pauses starts no runs
	}
	waitAll(rd.catchUp.Ask(rd.era, rd.s.CatchUp))
	r.tuned = rd.tuned.Last(rd.era).Value
	// The node's own state comes last: it asks the engine for less than the others, and these may have waited for long.
	waitAll(rd.stats.Ask(rd.era, func(context.Context) (durable.Stats, error) { return rd.s.Stats(), nil }))
	hasStats := rd.stats.Last(rd.era)
	r.stats = hasStats.Value
	hasBehind := rd.catchUp.Last(rd.era)
	r.behind = hasBehind.Value

	hasHealth := rd.health.Last(rd.era)
	r.Unflushed, r.Refused = hasHealth.Value.Unflushed, int(hasHealth.Value.Refused)
	r.NoVacuum, r.DeadRows = hasHealth.Value.NoVacuum, hasHealth.Value.DeadRows
	if hasHealth.At.IsZero() {
		r.Refused = -1
	}
	r.Time = time.Now()
	if err := rd.s.Err(); err != nil {
		r.Broken, r.Full = without(err, durable.ErrBroken), errors.Is(err, syscall.ENOSPC)
	}
	for _, err := range []error{hasStats.Err, hasCensus.Err, hasNodes.Err, hasBehind.Err, rd.alive.Last(rd.era).Err,
		hasPauses.Err} {
		switch {
		case errors.Is(err, durable.ErrStopped):
			r.Stopped = true
		case errors.Is(err, durable.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			r.Unread = without(err, durable.ErrUnavailable)
		}
	}
	if hasAlive := rd.alive.Last(rd.era); hasAlive.Pending >= max(readPatience, slowTimes*hasAlive.Took) {
		r.Unread = "no answer"
	}
	if n := r.stats.Node; n != nil {
		r.Away, r.AwayFor, r.Slow = n.AwayWhy, n.AwayFor, n.Slow
	}
	r.NodesOld = r.Unread != "" || hasNodes.Old || r.Time.Sub(r.nodesAt) > recent.Stale
	if r.Unread == "" && !hasHealth.Old && r.Time.Sub(hasHealth.At) <= recent.Stale {
		r.survival = health.Survival(hasHealth.Value.Replicated, hasHealth.Value.Standbys)
	}
	rd.fill(&r)
	return r
}

// waitAll waits until all channels are closed or readPatience has passed.
func waitAll(all ...<-chan struct{}) {
	enough := time.NewTimer(readPatience)
	defer enough.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-enough.C:
			return
		}
	}
}

// without returns the text of err without the leading text of first.
func without(err, first error) string { return strings.TrimPrefix(err.Error(), first.Error()+": ") }

// fill sets the reading's fields for package health.
func (rd *reader) fill(r *reading) {
	r.Parked, r.Waiting, r.Running = r.stats.Parked, r.stats.Waiting, r.stats.Running
	r.Workers, r.OldestWait, r.SinceStart = r.stats.Workers, r.stats.OldestWait, r.stats.SinceStart
	r.Started, r.CPUWait = r.stats.Started, rd.cpu.Wait()
	r.DiskFree, r.DiskSize = r.stats.Disk.Free, r.stats.Disk.Size
	r.Counted, r.Parked = r.census.At, 0
	for _, k := range r.census.Kinds {
		r.Tasks += k.Tasks
		r.Parked += k.Parked
	}
	if kinds, known := r.handledKinds(); known {
		rd.handled = kinds
	}
	rd.differs = slices.ContainsFunc(r.kinds, func(k durable.KindInfo) bool { return k.Paused != r.pauses.Has(k.Kind) }) ||
		slices.ContainsFunc(r.behind.Others, func(k durable.KindCatchUp) bool { return !r.pauses.Has(k.Kind) })
	r.divideOverdue(rd.handled, rd.limits(r))
	of := make(map[string]*health.KindReading)
	for _, k := range r.kinds {
		of[k.Kind] = &health.KindReading{Kind: k.Kind, Started: k.Started, Succeeded: k.Succeeded, Failed: k.Failed - k.Cancelled, Interrupted: k.Interrupted}
		if rd.rec != nil {
			of[k.Kind].Failure = rd.rec.failure(k.Kind)
		}
		if b := r.Busiest; k.Running > b.Running || k.Running == b.Running && k.Longest > b.Longest {
			r.Busiest = health.KindRuns{Kind: keyShown(k.Kind), Running: k.Running, Longest: k.Longest}
		}
	}
	for _, k := range r.behind.Kinds {
		if keyShown(k.Kind) == r.Busiest.Kind {
			r.Busiest.Waiting = k.Left
		}
	}
	for _, k := range r.census.Kinds {
		if of[k.Kind] == nil {
			of[k.Kind] = &health.KindReading{Kind: k.Kind}
		}
		of[k.Kind].Tasks, of[k.Kind].Parked = k.Tasks, k.Parked
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(r.Kinds) < maxKinds {
			r.Kinds = append(r.Kinds, *of[name])
		}
	}
	for _, n := range r.nodes {
		if n.ID != 0 { // the ID is 0 on an own engine, which has no nodes
			r.Nodes = append(r.Nodes, newNodeReading(n))
			for _, t := range n.TakenOver {
				r.Lost = append(r.Lost, health.LostNode{Name: keyShown(t.Node), At: t.At})
			}
		}
	}
}

// newNodeReading returns the reading of a node. To each duration that the node reported, it adds the time since the
// node's last renewal.
func newNodeReading(n durable.NodeInfo) health.NodeReading {
	since := func(d time.Duration) time.Duration {
		if d == 0 {
			return 0
		}
		return d + max(n.Lease-n.Left, 0)
	}
	return health.NodeReading{
		Name: keyShown(n.Name), ID: int64(n.ID), Started: n.Started, Lease: n.Lease, Left: n.Left,
		Self: n.Self, Drained: n.Drained, Leaving: n.Leaving, Away: n.Away, Kinds: n.Kinds,
		AllKinds: n.HasAllKinds(), Held: n.Held, Running: n.Running, Workers: n.Workers,
		OldestWait: since(n.OldestWait), SinceStart: since(n.SinceStart),
		Busiest: health.KindRuns{
			Kind: keyShown(n.Busiest.Kind), Running: n.Busiest.Running, Longest: since(n.Busiest.Longest),
		},
	}
}

// limits returns, in words, the limits that are full here, or were a moment ago, and the limits of kinds of other nodes.
func (rd *reader) limits(r *reading) map[string]string {
	limits := make(map[string]string)
	for _, n := range r.nodes {
		for _, l := range n.Limits {
			limits[l.Kind] = l.String()
		}
	}
	for _, k := range r.kinds {
		if k.Full {
			rd.fullAt[k.Kind] = r.Time
		}
		if r.Time.Sub(rd.fullAt[k.Kind]) < fullFor {
			limits[k.Kind] = durable.KindLimits{Here: k.Limit, Cluster: k.Cluster}.String()
		} else {
			delete(limits, k.Kind)
			delete(rd.fullAt, k.Kind)
		}
	}
	return limits
}

// divideOverdue divides the overdue tasks: by paused kinds, kinds that are not among the handled ones, kinds with a limit
// for which their tasks wait, and all others.
func (r *reading) divideOverdue(handled map[string]bool, limits map[string]string) {
	paused := make(map[string]bool)
	for _, k := range r.kinds {
		paused[k.Kind] = k.Paused // which this scheduler may have read after r.pauses
	}
	all := health.DueReading{More: r.behind.Cut}
	r.overdue = make(map[string]health.DueReading)
	r.LeftMore, r.LeftAt, r.Done = r.behind.Cut, r.behind.At, r.behind.Done
	for _, k := range slices.Concat(r.behind.Kinds, r.behind.Others) {
		due := health.DueReading{Kind: k.Kind, Due: k.Left, More: r.behind.Cut, Oldest: k.Oldest}
		r.overdue[k.Kind] = due
		all.Due, all.Oldest = all.Due+due.Due, earlier(all.Oldest, due.Oldest)
		switch limit := limits[k.Kind]; {
		case paused[k.Kind] || r.pauses.Has(k.Kind):
		case handled != nil && !handled[k.Kind]:
			r.Orphans = append(r.Orphans, due)
		case limit != "":
			r.Limited = append(r.Limited, health.LimitedReading{
				Kind: keyShown(k.Kind), Limit: limit, Backlog: health.Backlog{Tasks: k.Left, Oldest: k.Oldest},
			})
		default:
			r.Left.Tasks, r.Left.Oldest = r.Left.Tasks+k.Left, earlier(r.Left.Oldest, k.Oldest)
			if k.Done.IsZero() {
				r.Done = time.Time{}
			}
		}
	}
	r.overdue[""] = all
	for _, kind := range pausedKinds(r.pauses) {
		due, by := r.overdue[kind], r.pauses.By[kind]
		due.Kind, due.Paused, due.Who, due.Why = kind, by.At, keyShown(by.Who), cut(by.Why, maxKeyText)
		r.Paused = append(r.Paused, due)
	}
}

// earlier returns the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// handledKinds returns the kinds with a handler on any node. known is false while a node has not reported all its kinds.
func (r *reading) handledKinds() (handled map[string]bool, known bool) {
	drained := slices.ContainsFunc(r.nodes, func(n durable.NodeInfo) bool { return n.Self && n.Drained })
	handled = make(map[string]bool)
	for _, k := range r.kinds {
		handled[k.Kind] = !drained
	}
	for _, n := range r.nodes {
		if !n.HasAllKinds() {
			return nil, false
		}
		for _, k := range n.Kinds {
			handled[k] = true
		}
	}
	return handled, true
}

// pausedKinds returns the paused kinds, up to maxIdle, after the kind "" if all kinds are paused.
func pausedKinds(p durable.Pauses) []string {
	kinds := p.Kinds[:min(len(p.Kinds), maxIdle)]
	if p.All {
		kinds = append([]string{""}, kinds...)
	}
	return kinds
}

// unheard returns why the node of the reading hears no signals of its engine, or an empty string if it does or is away.
func unheard(r reading) string {
	if n := r.stats.Node; n != nil && r.Away == "" && r.Unread == "" {
		return n.Unheard
	}
	return ""
}
