// SPDX-License-Identifier: MIT

package dashboard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/internal/recent"
)

const (
	// lookEvery is the maximum age of a displayed reading of a scheduler.
	lookEvery = time.Second

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

	looking turn // held during a reading, for up to readPatience; protects reader
	reader  *reader

	groups  recent.Of[map[string]durable.Groups] // groups of due tasks, by kind
	asking  turn                                 // held while a list is read, so that lists use at most one core; protects the next two
	hours   []durable.NodeHour                   // the last hour, as read last
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

// newBoard returns a board that starts reading the scheduler immediately.
func newBoard(name string, s scheduler, rec *AttemptRecorder) *board {
	b := &board{name: name, s: s, rec: rec, looking: make(turn, 1), reader: newReader(s, rec), asking: make(turn, 1)}
	b.groups.Limit = questionTime
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
	r = b.reader.read()
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

func missedName(m durable.Missed) string {
	return cmp.Or(map[durable.Missed]string{durable.MissedSkip: "skip", durable.MissedAll: "all"}[m], "once")
}
