// SPDX-License-Identifier: MIT

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"weak"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/internal/cpu"
	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/internal/recent"
)

const (
	// lookEvery is the maximum age of a displayed reading of a scheduler.
	lookEvery = time.Second

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

	maxGrouped = 5 // maximum number of limited kinds whose groups are counted
	groupsTime = 100 * time.Millisecond
)

// A scheduler is the part of a *durable.Scheduler that a board uses.
type scheduler interface {
	Err() error
	Stats() durable.Stats
	Counts(context.Context) (durable.Counts, error)
	Nodes(context.Context) ([]durable.NodeInfo, error)
	Kinds() []durable.KindInfo
	CatchUp(context.Context) (durable.CatchUp, error)
	Find(context.Context, durable.Query) (durable.Found, error)
	Failures(context.Context) (durable.Failures, error)
	Sets(context.Context) ([]durable.SetInfo, error)
	LastHour(context.Context) ([]durable.NodeHour, error)
	Groups(context.Context, durable.Query) (durable.Groups, error)
	History(context.Context, durable.HistoryQuery) (durable.History, error)
	Get(ctx context.Context, key string) (durable.Info, bool, error)
	BulkStep(context.Context, durable.Query, durable.Action) (n int, next string, err error)
	RemoveTask(ctx context.Context, key string) error
	Reschedule(ctx context.Context, key string, d time.Duration) error
	Pause(ctx context.Context, key string) error
	Resume(ctx context.Context, key string) error
	Cancel(ctx context.Context, key string) (ran bool, err error)
	PauseKind(ctx context.Context, kind string, opts ...durable.PauseOption) error
	ResumeKind(ctx context.Context, kind string) error
	PauseAll(ctx context.Context, opts ...durable.PauseOption) error
	ResumeAll(ctx context.Context) error
	Paused(ctx context.Context) (durable.Pauses, error)
	Tuned(ctx context.Context) (durable.Tuning, error)
	TuneLimits(ctx context.Context, l durable.KindLimits, opts ...durable.PauseOption) error
	TunePoolSize(ctx context.Context, n int, opts ...durable.PauseOption) error
	TuneCatchUp(ctx context.Context, n int, opts ...durable.PauseOption) error
	Drain(ctx context.Context, node string) error
	Undrain(ctx context.Context, node string) error
}

// A board holds the readings of one scheduler for all its pages. It stores a reading every five seconds and keeps it
// for an hour. It also keeps the readings of the last ten seconds that pages have requested. While no page is open,
// only its timer is active.
type board struct {
	name string
	s    scheduler
	rec  *AttemptRecorder // may be nil

	notes func() []Note // of the program; may be nil; set before the first request

	alive   recent.Of[bool]
	stats   recent.Of[durable.Stats]
	census  recent.Of[durable.Counts]
	nodes   recent.Of[[]durable.NodeInfo]
	catchUp recent.Of[durable.CatchUp]
	pauses  recent.Of[durable.Pauses]
	tuned   recent.Of[durable.Tuning]
	groups  recent.Of[map[string]durable.Groups] // groups of due tasks, by kind
	health  recent.Of[engine.Health]
	cpu     cpu.Watch

	looking turn                  // held during a reading, for up to readPatience; protects the next seven
	engine  engine.HealthReporter // may be nil
	era     uint64                // number of past outages
	unread  time.Time             // since when the engine has not answered; zero if it did
	whole   durable.Counts        // the last complete count
	handled map[string]bool       // kinds with a handler on any node, as last known; nil if never
	differs bool                  // the last answers about nodes or pauses may be older than what the scheduler itself says
	fullAt  map[string]time.Time  // when the limit of a kind was last seen to be full
	asking  turn                  // held while a list is read, so that lists use at most one core; protects the next two
	hours   []durable.NodeHour    // the last hour, as read last
	hoursAt time.Time

	mu     sync.Mutex // protects the fields below
	now    reading
	asked  time.Time                 // time of the reading for which groups were last requested
	recent []health.SchedulerReading // all readings of the last ten seconds
	past   []health.SchedulerReading
	points []tasksPoint // the readings in past as points
	timer  *time.Timer
}

// A turn is a lock for long work: one goroutine holds it at a time.
type turn chan struct{}

func (t turn) take() { t <- struct{}{} }

// takeFor is like take, but returns an error if ctx, the context of a request, is done first.
func (t turn) takeFor(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t <- struct{}{}:
		if err := ctx.Err(); err != nil {
			t.give()
			return err
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

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

// newBoard returns a board that starts reading the scheduler immediately.
func newBoard(name string, s scheduler, rec *AttemptRecorder) *board {
	b := &board{name: name, s: s, rec: rec, looking: make(turn, 1), asking: make(turn, 1), fullAt: make(map[string]time.Time)}
	b.alive.Always, b.stats.Always, b.census.Always, b.catchUp.Always = true, true, true, true
	for _, limit := range []*time.Duration{&b.alive.Limit, &b.stats.Limit, &b.census.Limit, &b.nodes.Limit, &b.catchUp.Limit,
		&b.pauses.Limit, &b.tuned.Limit, &b.groups.Limit, &b.health.Limit} {
		*limit = questionTime
	}
	weakly := weak.Make(b) // the timer must not keep an unused board alive
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(0, func() {
		if b := weakly.Value(); b != nil && b.keep() {
			b.timer.Reset(readEvery)
		}
	})
	return b
}

func (b *board) title() string { return b.name }

// keep stores a reading. It reports whether further readings are useful.
func (b *board) keep() bool {
	r := b.look()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.past) == maxReadings {
		b.past = slices.Delete(b.past, 0, 1)
		b.points = slices.Delete(b.points, 0, 1)
	}
	b.past = append(b.past, r.SchedulerReading)
	b.points = append(b.points, newTasksPoint(r, b.points))
	b.recent = slices.DeleteFunc(b.recent, func(p health.SchedulerReading) bool { return r.Time.Sub(p.Time) >= 2*readEvery })
	for i := len(b.past) - 1; i >= 0 && b.past[i].Kinds != nil; i-- {
		if r.Time.Sub(b.past[i].Time) > health.Lately {
			b.past[i].Kinds, b.past[i].Nodes, b.past[i].Orphans, b.past[i].Lost = nil, nil, nil, nil // no longer needed
		}
	}
	return !r.Stopped
}

// look returns a reading that is at most lookEvery old.
func (b *board) look() reading {
	b.looking.take()
	defer b.looking.give()
	b.mu.Lock()
	r := b.now
	b.mu.Unlock()
	if !r.Time.IsZero() && recent.Since(r.Time) < lookEvery {
		return r
	}
	r = b.read()
	b.mu.Lock()
	defer b.mu.Unlock()
	failing := health.FailingKinds(r.SchedulerReading, b.pastLocked(r.Time))
	for i, k := range r.Kinds {
		r.Kinds[i].Failing = slices.Contains(failing, k.Kind)
	}
	b.now = r
	b.recent = append(b.recent, r.SchedulerReading)
	return r
}

// read reads the scheduler. After an outage it repeats all queries, because those sent during the outage may have been
// answered late.
func (b *board) read() reading {
	r := b.ask()
	if !b.unread.IsZero() && r.Unread == "" {
		b.era++
		r = b.ask()
	}
	switch {
	case r.Unread == "":
		b.unread = time.Time{}
	case b.unread.IsZero():
		b.unread = r.Time
	}
	r.UnreadSince = b.unread
	return r
}

func (b *board) ask() reading {
	alive := b.alive.Ask(b.era, func(ctx context.Context) (bool, error) {
		_, there, err := b.s.Get(ctx, noKey)
		return there, err
	})
	census := b.census.Ask(b.era, b.s.Counts)
	late := func(n durable.NodeInfo) bool { return newNodeReading(n).IsLate() }
	if b.differs || slices.ContainsFunc(b.nodes.Last(b.era).Value, late) {
		b.nodes.Expire() // it may have renewed its lease meanwhile
		b.pauses.Expire()
	}
	nodes := b.nodes.Ask(b.era, b.s.Nodes)
	pauses := b.pauses.Ask(b.era, b.s.Paused)
	first := []<-chan struct{}{alive, census, nodes, pauses, b.tuned.Ask(b.era, b.s.Tuned)}
	if b.engine != nil {
		first = append(first, b.health.Ask(b.era, b.engine.Health))
	}
	waitAll(first...)
	r := reading{era: b.era}
	r.kinds = b.s.Kinds()
	hasCensus, hasNodes, hasPauses := b.census.Last(b.era), b.nodes.Last(b.era), b.pauses.Last(b.era)
	if hasCensus.Value.Whole && !hasCensus.Old {
		b.whole = hasCensus.Value
	} else {
		r.Counting = true
	}
	r.census = b.whole
	r.nodes, r.nodesAt = hasNodes.Value, hasNodes.At
	r.pauses, r.pausesAt = hasPauses.Value, hasPauses.At
	if errors.Is(hasPauses.Err, durable.ErrVersion) || errors.Is(hasPauses.Err, durable.ErrCorrupt) {
		r.pauses.All = true // a node that cannot read the pauses starts no runs
	}
	waitAll(b.catchUp.Ask(b.era, b.s.CatchUp))
	r.tuned = b.tuned.Last(b.era).Value
	// The node's own state comes last: it asks the engine for less than the others, and these may have waited for long.
	waitAll(b.stats.Ask(b.era, func(context.Context) (durable.Stats, error) { return b.s.Stats(), nil }))
	hasStats := b.stats.Last(b.era)
	r.stats = hasStats.Value
	hasBehind := b.catchUp.Last(b.era)
	r.behind = hasBehind.Value

	hasHealth := b.health.Last(b.era)
	r.Unflushed, r.Refused = hasHealth.Value.Unflushed, int(hasHealth.Value.Refused)
	r.NoVacuum, r.DeadRows = hasHealth.Value.NoVacuum, hasHealth.Value.DeadRows
	if hasHealth.At.IsZero() {
		r.Refused = -1
	}
	r.Time = time.Now()
	if err := b.s.Err(); err != nil {
		r.Broken, r.Full = without(err, durable.ErrBroken), errors.Is(err, syscall.ENOSPC)
	}
	for _, err := range []error{hasStats.Err, hasCensus.Err, hasNodes.Err, hasBehind.Err, b.alive.Last(b.era).Err,
		hasPauses.Err} {
		switch {
		case errors.Is(err, durable.ErrStopped):
			r.Stopped = true
		case errors.Is(err, durable.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			r.Unread = without(err, durable.ErrUnavailable)
		}
	}
	if hasAlive := b.alive.Last(b.era); hasAlive.Pending >= max(readPatience, slowTimes*hasAlive.Took) {
		r.Unread = "no answer"
	}
	if n := r.stats.Node; n != nil {
		r.Away, r.AwayFor, r.Slow = n.AwayWhy, n.AwayFor, n.Slow
	}
	r.NodesOld = r.Unread != "" || hasNodes.Old || r.Time.Sub(r.nodesAt) > recent.Stale
	if r.Unread == "" && !hasHealth.Old && r.Time.Sub(hasHealth.At) <= recent.Stale {
		r.survival = health.Survival(hasHealth.Value.Replicated, hasHealth.Value.Standbys)
	}
	b.fill(&r)
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
func (b *board) fill(r *reading) {
	r.Parked, r.Waiting, r.Running = r.stats.Parked, r.stats.Waiting, r.stats.Running
	r.Workers, r.OldestWait, r.SinceStart = r.stats.Workers, r.stats.OldestWait, r.stats.SinceStart
	r.Started, r.CPUWait = r.stats.Started, b.cpu.Wait()
	r.DiskFree, r.DiskSize = r.stats.Disk.Free, r.stats.Disk.Size
	r.Counted, r.Parked = r.census.At, 0
	for _, k := range r.census.Kinds {
		r.Tasks += k.Tasks
		r.Parked += k.Parked
	}
	if kinds, known := r.handledKinds(); known {
		b.handled = kinds
	}
	b.differs = slices.ContainsFunc(r.kinds, func(k durable.KindInfo) bool { return k.Paused != r.pauses.Has(k.Kind) }) ||
		slices.ContainsFunc(r.behind.Others, func(k durable.KindCatchUp) bool { return !r.pauses.Has(k.Kind) })
	r.divideOverdue(b.handled, b.limits(r))
	of := make(map[string]*health.KindReading)
	for _, k := range r.kinds {
		of[k.Kind] = &health.KindReading{Kind: k.Kind, Started: k.Started, Succeeded: k.Succeeded, Failed: k.Failed - k.Cancelled, Interrupted: k.Interrupted}
		if b.rec != nil {
			of[k.Kind].Failure = b.rec.failure(k.Kind)
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
func (b *board) limits(r *reading) map[string]string {
	limits := make(map[string]string)
	for _, n := range r.nodes {
		for _, l := range n.Limits {
			limits[l.Kind] = l.String()
		}
	}
	for _, k := range r.kinds {
		if k.Full {
			b.fullAt[k.Kind] = r.Time
		}
		if r.Time.Sub(b.fullAt[k.Kind]) < fullFor {
			limits[k.Kind] = durable.KindLimits{Here: k.Limit, Cluster: k.Cluster}.String()
		} else {
			delete(limits, k.Kind)
			delete(b.fullAt, k.Kind)
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

// groupsOf returns the groups of due tasks for kinds whose runs are waiting for a limit, and the time of the query. It
// sends at most one query for each displayed reading.
func (b *board) groupsOf(r reading) (of map[string]durable.Groups, at time.Time) {
	var kinds []string
	for _, k := range r.kinds {
		if k.Waiting > 0 && len(kinds) < maxGrouped {
			kinds = append(kinds, k.Kind)
		}
	}
	if len(kinds) == 0 {
		return nil, at
	}
	b.mu.Lock()
	again := b.asked.Equal(r.Time)
	b.asked = r.Time
	b.mu.Unlock()
	if !again {
		waitAll(b.groups.Ask(r.era, func(ctx context.Context) (map[string]durable.Groups, error) {
			found := make(map[string]durable.Groups)
			for _, kind := range kinds {
				g, err := b.s.Groups(ctx, durable.Query{Kind: kind, State: durable.Waiting, For: groupsTime})
				if err != nil {
					return nil, err
				}
				found[kind] = g
			}
			return found, nil
		}))
	}
	has := b.groups.Last(r.era)
	if has.Old {
		return nil, at
	}
	return has.Value, has.At
}

// pastLocked returns the readings before a time. Since the first reading in recent, every one is there.
func (b *board) pastLocked(at time.Time) []health.SchedulerReading {
	old := b.past
	for len(b.recent) > 0 && len(old) > 0 && !old[len(old)-1].Time.Before(b.recent[0].Time) {
		old = old[:len(old)-1]
	}
	past := slices.Concat(old, b.recent)
	return slices.DeleteFunc(past, func(p health.SchedulerReading) bool { return !p.Time.Before(at) })
}

// judged returns the reading, its health, and the late nodes.
func (b *board) judged() (r reading, h healthJSON, late []health.NodeReading) {
	r = b.look()
	var notes []Note
	if b.notes != nil && !r.Stopped {
		notes = b.notes()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	past := b.pastLocked(r.Time)
	h = newHealthJSON(health.JudgeScheduler(r.SchedulerReading, past),
		health.SchedulerIsWell(r.SchedulerReading), health.NotesOfScheduler(r.SchedulerReading, past)...).
		aboutKinds(r.SchedulerReading).withNotes(notes)
	h.Watch = h.Well && r.Watch()
	return r, h, health.LateNodes(r.SchedulerReading, past)
}

// source returns the board's entry in the overview.
func (b *board) source(time.Time) sourceJSON {
	r, h, _ := b.judged()
	return sourceJSON{Name: b.name, Kind: "scheduler", Health: h, Stats: newTasksStatsJSON(r)}
}

// state returns the whole state, with the points of the history that follow the given number.
func (b *board) state(after int64) schedulerJSON {
	r, h, late := b.judged()
	s := schedulerJSON{
		Scheduler: b.name,
		Now:       r.Time,
		Health:    h,
		Stats:     newTasksStatsJSON(r),
		Counts:    newCensusJSON(r.census, !r.Counting),
		Paused:    r.pauses.All,
		Survival:  r.survival,
		Unheard:   unheard(r),
		Tuning:    newTuningJSON(r.tuned),
		Nodes:     []nodeJSON{},
		History:   []tasksPoint{},
	}
	s.Read = readJSON{Counts: s.Counts.At, CatchUp: known(r.behind.At), Nodes: known(r.nodesAt), Kinds: r.Time, Paused: known(r.pausesAt)}
	for _, n := range r.nodes {
		late := slices.ContainsFunc(late, func(l health.NodeReading) bool { return l.ID == int64(n.ID) })
		s.Nodes = append(s.Nodes, newNodeJSON(n, r.NodesOld, late))
	}
	if c := r.behind; c.Left > 0 {
		s.CatchUp = &catchUpJSON{c.Left, c.Cut, c.Oldest, known(c.Done)}
	}
	groups, asked := b.groupsOf(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Kinds = b.kindsLocked(r)
	for i, k := range s.Kinds {
		if k.Here != nil && k.Here.Waiting > 0 {
			if s.Kinds[i].Here.Largest = newLargestJSON(groups[k.Kind]); s.Kinds[i].Here.Largest != nil {
				s.Read.Groups = known(asked)
			}
		}
	}
	if n := len(b.points); n > 0 && after > b.points[n-1].N {
		after = -1 // the number comes from an earlier process
	}
	for _, p := range b.points {
		if p.N > after {
			s.History = append(s.History, p)
		}
	}
	return s
}

// kindsLocked returns the state of each kind, ordered by name.
func (b *board) kindsLocked(r reading) []kindJSON {
	of := make(map[string]*kindJSON)
	get := func(name string) *kindJSON {
		if of[name] == nil {
			of[name] = &kindJSON{Kind: name}
		}
		return of[name]
	}
	for _, k := range r.census.Kinds {
		j := get(k.Kind)
		j.Tasks, j.Failing, j.Parked = k.Tasks, k.Failing, k.Parked
	}
	for _, n := range r.nodes {
		for _, k := range n.Kinds {
			get(k).Nodes++
		}
	}
	for _, k := range r.pauses.Kinds {
		get(k).Paused = true
	}
	for kind, d := range r.overdue {
		if kind != "" {
			j := get(kind)
			j.Overdue, j.OverdueMore, j.Oldest = d.Due, d.More, known(d.Oldest)
		}
	}
	before := b.rateBaseLocked(r.Time)
	for _, k := range r.kinds {
		j := get(k.Kind)
		j.Here = &hereJSON{
			Attempts: k.Attempts, Least: k.Least.Seconds(), Most: k.Most.Seconds(), Missed: missedName(k.Missed),
			Started: k.Started, Succeeded: k.Succeeded, Failed: k.Failed - k.Cancelled, Cancelled: k.Cancelled, Parked: k.ParkedTotal,
			GivenUp: k.GivenUp, Interrupted: k.Interrupted, Repeating: k.ParkRepeating, Tuned: k.Tuned,
			Limit: newLimitJSON(k.Limit), Cluster: newLimitJSON(k.Cluster), Waiting: k.Waiting,
			Running: k.Running, Longest: k.Longest.Seconds(),
		}
		if b.rec != nil {
			j.Here.Last = b.rec.lateness(k.Kind, time.Now())
			j.Here.Failure = cut(b.rec.failure(k.Kind), maxValueText)
		}
		i := slices.IndexFunc(before.Kinds, func(was health.KindReading) bool { return was.Kind == k.Kind })
		if seconds := r.Time.Sub(before.Time).Seconds(); i >= 0 && seconds > 0 {
			j.Here.StartedRate = perSecond(k.Started-before.Kinds[i].Started, seconds)
			j.Here.FailedRate = perSecond(k.Failed-k.Cancelled-before.Kinds[i].Failed, seconds)
		}
	}
	all := []kindJSON{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(all) < maxKinds {
			all = append(all, *of[name])
		}
	}
	return all
}

// rateBaseLocked returns the reading from which rates are computed: the newest one that is at least ten seconds old, or
// the oldest if none is.
func (b *board) rateBaseLocked(now time.Time) health.SchedulerReading {
	var base health.SchedulerReading
	for i := len(b.past) - 1; i >= 0; i-- {
		base = b.past[i]
		if now.Sub(base.Time) >= 2*readEvery {
			break
		}
	}
	return base
}

// inTurn returns the result of a look at the scheduler for a list. One list is read at a time, for listTime at most.
func inTurn[T any](ctx context.Context, b *board, look func(context.Context) (T, error)) (found T, err error) {
	if err := b.asking.takeFor(ctx); err != nil {
		return found, err
	}
	defer b.asking.give()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return look(ctx)
}

// list returns a page of tasks.
func (b *board) list(ctx context.Context, q durable.Query) (listJSON, error) {
	f, err := inTurn(ctx, b, func(ctx context.Context) (durable.Found, error) { return b.s.Find(ctx, q) })
	if err != nil {
		return listJSON{}, err
	}
	l := listJSON{Tasks: []storedJSON{}, Looked: f.Looked, Next: f.Next, Cut: f.Cut, Now: time.Now()}
	for _, i := range f.Tasks {
		l.Tasks = append(l.Tasks, newStoredJSON(i))
	}
	return l, nil
}

// listTime is how long the scheduler may take to return a list, for which it reads tasks for 150 ms.
const listTime = 5 * time.Second

// failures returns the groups of failing tasks.
func (b *board) failures(ctx context.Context) (failuresJSON, error) {
	f, err := inTurn(ctx, b, b.s.Failures)
	if err != nil {
		return failuresJSON{}, err
	}
	j := failuresJSON{Groups: []groupJSON{}, Looked: f.Looked, Cut: f.Cut, Now: time.Now()}
	for _, g := range f.Groups[:min(len(f.Groups), maxGroups)] {
		j.Groups = append(j.Groups, groupJSON{
			Kind: g.Kind, Text: g.Text, Tasks: g.Tasks, Parked: g.Parked, GivenUp: g.GivenUp,
			Example: newKeyJSON(g.Example), Last: known(g.Last),
		})
	}
	j.More = len(f.Groups) - len(j.Groups)
	return j, nil
}

// sets returns the declared sets, with the states of their tasks.
func (b *board) sets(ctx context.Context) (setsJSON, error) {
	return inTurn(ctx, b, func(ctx context.Context) (setsJSON, error) {
		sets, err := b.s.Sets(ctx)
		j := setsJSON{Sets: []setJSON{}, Now: time.Now()}
		var failed error
		for _, set := range sets[:min(len(sets), maxGroups)] {
			of := newSetJSON(set)
			if failed == nil { // otherwise the next ones take as long
				var found durable.Found
				if found, failed = b.s.Find(ctx, durable.Query{Prefix: set.Prefix, Repeating: true, Limit: maxList}); failed == nil {
					of.count(found.Tasks)
				}
			}
			j.Sets = append(j.Sets, of)
		}
		return j, err
	})
}

// maxGroups is the maximum number of listed groups of failing tasks.
const maxGroups = 100

// maxPast is the number of attempts in a list unless the request sets a limit.
const maxPast = 20

// history returns attempts that have ended.
func (b *board) history(ctx context.Context, q durable.HistoryQuery) (historyJSON, error) {
	found, err := inTurn(ctx, b, func(ctx context.Context) (durable.History, error) { return b.s.History(ctx, q) })
	if err != nil {
		return historyJSON{}, err
	}
	j := historyJSON{Past: []pastJSON{}, Next: found.Next, Now: time.Now()}
	for _, r := range found.Runs {
		j.Past = append(j.Past, newPastJSON(r))
	}
	return j, nil
}

// about returns all data for a task.
func (b *board) about(ctx context.Context, key string, payload func([]byte) payloadJSON,
) (a aboutStoredJSON, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	i, ok, err := b.s.Get(ctx, key)
	a.Now = time.Now()
	if err != nil || !ok {
		return a, err
	}
	task := newStoredJSON(i)
	shown := payload(i.Payload)
	token := i.Token
	a.Task, a.Payload = &task, &shown
	a.Payload.Version = i.PayloadVersion
	a.Token = cut(token.String(), maxKeyText)
	a.Trace = cut(i.Trace, maxKeyText)
	a.Group, a.Note = cut(i.Group, maxKeyText), cut(i.Note, maxValueText)
	a.Shift, a.Deadline = i.Shift.Seconds(), known(i.Deadline)
	a.Until, a.Meta = known(i.Until), cut(i.Meta, maxValueText)
	a.Expires, a.Snoozes = i.Expires.Seconds(), i.Snoozes
	a.Failed = []failedJSON{}
	for _, f := range i.Failed {
		a.Failed = append(a.Failed, failedJSON{known(f.At), cut(f.Text, maxValueText)})
	}
	if len(a.Failed) == 0 && i.Failure != "" {
		a.Failed = append(a.Failed, failedJSON{nil, cut(i.Failure, maxValueText)})
	}
	for _, k := range b.s.Kinds() {
		if k.Kind == i.Kind {
			a.Attempts = k.Attempts
		}
	}
	return a, nil
}

func (b *board) remove(ctx context.Context, key string) error { return b.s.RemoveTask(ctx, key) }

func (b *board) reschedule(ctx context.Context, key string, d time.Duration) error {
	return b.s.Reschedule(ctx, key, d)
}

func (b *board) pause(ctx context.Context, key string) error { return b.s.Pause(ctx, key) }

func (b *board) resume(ctx context.Context, key string) error { return b.s.Resume(ctx, key) }

// errNoRun is returned by cancel if no run of the task is in progress.
var errNoRun = errors.New("no run of it is in progress")

func (b *board) cancel(ctx context.Context, key string) error {
	ran, err := b.s.Cancel(ctx, key)
	if err == nil && !ran {
		err = errNoRun
	}
	return err
}

// pauseKind pauses or resumes a kind, or all kinds if the name is empty. who is empty if it is unknown.
func (b *board) pauseKind(ctx context.Context, kind string, resume bool, who, why string) error {
	switch {
	case kind == "" && resume:
		return b.s.ResumeAll(ctx)
	case kind == "":
		return b.s.PauseAll(ctx, durable.By(who, why))
	case resume:
		return b.s.ResumeKind(ctx, kind)
	}
	return b.s.PauseKind(ctx, kind, durable.By(who, why))
}

// bulk applies an action to the tasks that match the query, for a limited time. If more tasks may match, it returns
// where to continue. That is where it started if the scheduler did not answer in time. All runs are cancelled in one
// request, which may take as long as a request for a single key.
func (b *board) bulk(ctx context.Context, q durable.Query, do durable.Action) (done bulkJSON, err error) {
	if do == durable.DoCancel {
		ctx, cancel := context.WithTimeout(ctx, listTime)
		defer cancel()
		n, _, err := b.s.BulkStep(ctx, q, do)
		return bulkJSON{Tasks: n}, err
	}
	slice, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	q.For = bulkTime / 2
	n, next, err := b.s.BulkStep(slice, q, do)
	if err != nil && slice.Err() != nil && ctx.Err() == nil {
		return bulkJSON{n, true, q.After}, nil
	}
	return bulkJSON{n, next != "", next}, err
}

// bulkTime is the maximum duration of a request that changes many tasks. The request searches for tasks during the
// first half of this time.
const bulkTime = 2 * time.Second

func missedName(m durable.Missed) string {
	return cmp.Or(map[durable.Missed]string{durable.MissedSkip: "skip", durable.MissedAll: "all"}[m], "once")
}

// unheard returns why the node of the reading hears no signals of its engine, or an empty string if it does or is away.
func unheard(r reading) string {
	if n := r.stats.Node; n != nil && r.Away == "" && r.Unread == "" {
		return n.Unheard
	}
	return ""
}
