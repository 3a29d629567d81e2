// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// What an operator asks of a scheduler. A question costs a bounded number of reads, or says that it was cut.

// A State is where a task stands.
type State uint8

const (
	AnyState  State = iota
	Scheduled       // due later, and no attempt of the run has failed
	Retrying        // due later, after a failed attempt
	Waiting         // due, and not running
	Running         // its handler runs, on whatever node
	Parked          // until it is rescheduled or replaced: all attempts have failed, or the handler has parked it
	Paused          // until it is resumed
)

var stateNames = [...]string{"any", "scheduled", "retrying", "waiting", "running", "parked", "paused"}

// String returns the state as one word in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// States returns all states but AnyState, in the order of their numbers.
func States() (all []State) {
	for s := Scheduled; int(s) < len(stateNames); s++ {
		all = append(all, s)
	}
	return all
}

// ParseState returns the state of that name. The error names those that there are.
func ParseState(name string) (State, error) {
	names := stateNames[Scheduled:]
	i := slices.Index(names, name)
	if i < 0 {
		return AnyState, fmt.Errorf("durable: state %q must be one of %s", name, strings.Join(names, ", "))
	}
	return Scheduled + State(i), nil
}

// A Query says which tasks are looked for. A task must fit all that is set.
type Query struct {
	State     State
	Repeating bool   // only tasks with more than one run left
	Prefix    string // of the key
	Kind      string
	Group     string // of [Task]; empty means any
	Failure   string // a part of the error of the last attempt, or the text of a [FailureGroup]

	After string        // Found.Next of the page before; empty for the first
	Limit int           // tasks in a page, at most; 0 means 100
	For   time.Duration // how long [Scheduler.Find], [Scheduler.Groups] or [Scheduler.BulkStep] may look; 0 means 150 ms
}

// Found is a page of tasks.
type Found struct {
	Tasks  []Info // in order of due time and key, or of the key alone: see [Scheduler.Find]
	Looked int    // how many tasks were looked at
	Next   string // what After is for the next page; empty if this is the last
	Cut    bool   // the time was up before the page was full
}

// Find returns a page of the tasks that the query asks for. It uses the best of the orders in which the tasks
// are kept: by due time; by key for a prefix, and for what is running; of those that failed by key, for a
// failure and for what is retrying. What does not fit the rest of the query is looked at and left out, until
// the page is full or the time is up: the page is cut then, and Next continues. A task that changes meanwhile
// may be found or not. An After that is not of the same query is an error that wraps ErrInvalidTask.
func (s *Scheduler) Find(ctx context.Context, q Query) (Found, error) {
	f, err := s.find(ctx, q)
	return f, stopped(err, "Find", "")
}

// Counts are how many tasks there are, by kind.
type Counts struct {
	At    time.Time // when the count began, by the clock of this process; zero before the first
	Whole bool      // false until the first count after New, or after an outage of the engine, is finished
	Kinds []KindCounts
}

// KindCounts are those of the tasks of a kind.
type KindCounts struct {
	Kind    string
	Tasks   int // all of them
	Failing int // those of which an attempt has failed: retrying or parked
	Parked  int
	Paused  int // and no Failing, whatever has failed before

	KindPaused bool // by PauseKind or PauseAll; on a node as far as it knows
}

// Counts returns how many tasks there are. On a store that is kept up to date. An engine counts them. A count that
// took longer than 5 ms is used again for a hundred times as long, but for 15 s at most, or for ten times as long if
// that is more. A count that takes longer than 150 ms continues in the background, and the one before it is
// returned. If there is none, or the engine has been away since, Whole is false: then the counts are those of
// before, or 0.
func (s *Scheduler) Counts(ctx context.Context) (Counts, error) {
	if !s.reads.enter() {
		return Counts{}, stopped(ErrStopped, "Counts", "")
	}
	defer s.reads.leave()
	c, err := s.below.census(ctx)
	paused := s.kinds.pauses()
	c.Kinds = slices.Clone(c.Kinds)
	for i := range c.Kinds {
		c.Kinds[i].KindPaused = paused.Has(c.Kinds[i].Kind)
	}
	return c, err
}

// A FailureGroup is the tasks of a kind that fail for the same reason. Numbers in the error are left out of the
// comparison.
type FailureGroup struct {
	Kind    string
	Text    string // the error, with # in place of each number
	Tasks   int
	Parked  int       // of these
	Example string    // the key of one of them
	Last    time.Time // when the last attempt of them failed
}

// Failures are the groups of failing tasks, the largest first.
type Failures struct {
	Groups []FailureGroup
	Looked int
	Cut    bool // the time was up, or there were more than 1,000 groups
}

// Failures groups the failing tasks by kind and error. It looks at them for 150 ms at most.
func (s *Scheduler) Failures(ctx context.Context) (Failures, error) {
	f, err := s.failures(ctx)
	return f, stopped(err, "Failures", "")
}

// GroupCounts are those of a group of a kind.
type GroupCounts struct {
	Kind   string
	Group  string    // empty for the tasks of the kind that have no group
	Tasks  int       // all of them
	Due    int       // those that are due and not running
	Oldest time.Time // when the first of these was due; zero if there is none
}

// Groups are the groups of the tasks that a query finds.
type Groups struct {
	Largest []GroupCounts // the ten with most tasks, the largest first
	More    int           // how many there are besides; at least, if Cut
	Others  GroupCounts   // the sum of those, without names
	Looked  int           // how many tasks were looked at
	Cut     bool          // the time was up, or there were more than 10,000 groups
}

// Groups counts the tasks that the query finds by kind and group, whatever its After and Limit. It looks at them for
// q.For, or 150 ms if that is 0. The tasks of a group that it comes to after 10,000 others are in Others alone. For
// the state [Waiting] it looks at due tasks alone, the oldest first, and so finds the group that floods a kind.
func (s *Scheduler) Groups(ctx context.Context, q Query) (Groups, error) {
	g, err := s.groups(ctx, q)
	return g, stopped(err, "Groups", "")
}

// A NodeInfo is a node as the others see it.
type NodeInfo struct {
	Name  string
	ID    engine.MemberID
	Self  bool          // it is the node that was asked
	Lease time.Duration // the length of its lease
	Left  time.Duration // until its lease runs out; negative if it is late

	NodeReport
}

// A NodeReport is what a node says about itself each time it renews its lease.
type NodeReport struct {
	Held    int       `json:"held"`           // tasks that it holds. An earlier version does not report it
	Version string    `json:"version"`        // of this package, as the build says
	Kinds   []string  `json:"kinds"`          // that have a handler there
	More    bool      `json:"more,omitempty"` // there are more kinds: a report has no room for them, or they are not UTF-8
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`
	Workers int       `json:"workers"`
	Started time.Time `json:"started"` // when it was started

	TakenOver []Takeover `json:"taken_over,omitempty"` // the last ones, at most eight; none on a store

	// As in Stats, in nanoseconds. An earlier version does not report them.
	OldestWait time.Duration `json:"oldest_wait,omitempty"`
	SinceStart time.Duration `json:"since_start,omitempty"`

	// The kind with most runs in progress there. Of several the one with the longest run, and none that is not UTF-8.
	Busiest KindRuns `json:"busiest,omitzero"`
}

// KindRuns are the runs of a kind that are in progress.
type KindRuns struct {
	Kind    string        `json:"kind"`
	Running int           `json:"running"`
	Longest time.Duration `json:"longest"` // how long the longest of them has taken, in nanoseconds
}

// A Takeover is that of a node whose lease had run out: another has freed its tasks, for whatever node is there. A node
// that leaves by Shutdown is not taken over.
type Takeover struct {
	Node string    `json:"node"` // the name of the node that was taken over; at most 200 bytes of it
	At   time.Time `json:"at"`   // by the clock of the process that asks
}

// Nodes returns the members of the engine in order of name and ID. On a store it returns this scheduler alone.
func (s *Scheduler) Nodes(ctx context.Context) ([]NodeInfo, error) {
	if !s.reads.enter() {
		return nil, stopped(ErrStopped, "Nodes", "")
	}
	defer s.reads.leave()
	return s.below.nodes(ctx)
}

// A KindInfo is what this scheduler knows of a kind that has a handler here, since New.
type KindInfo struct {
	Kind        string
	Attempts    int // as in [WithRetry]
	Least, Most time.Duration
	Missed      Missed
	Paused      bool  // by PauseKind or PauseAll; on a node as far as it knows
	Limit       Limit // on this scheduler: [WithConcurrency] and [WithRate]
	Cluster     Limit // on all nodes: [WithClusterConcurrency] and [WithClusterRate]
	Waiting     int   // due runs that this scheduler holds and that wait for the limits; 0 while it is paused

	Running int           // runs in progress on this scheduler
	Longest time.Duration // how long the longest of these has taken; 0 if there is none

	// Calls of the handler, also those of which the result does not count, because the task was removed, moved or
	// paused meanwhile. Stats leaves these out of Succeeded and Failed.
	Started     uint64
	Succeeded   uint64
	Failed      uint64
	Cancelled   uint64 // of Failed, those whose run [Scheduler.Cancel] had cancelled
	ParkedTotal uint64 // how often a task was parked, as in Stats
}

// Kinds returns the kinds that have a handler here, in order of their names.
func (s *Scheduler) Kinds() []KindInfo { return s.kindInfos() }

// CatchUp is how many tasks are overdue: they have been due for a second or more, and are not running.
type CatchUp struct {
	At     time.Time // when they were counted, by the clock of this process; zero before the first count
	Left   int       // tasks; at least, if Cut
	Cut    bool      // the first count is not finished, or the first after an outage: there may be more
	Oldest time.Time // when the first of them was due; zero if there is none
	Done   time.Time // the latest Done of the kinds; zero if that of one is unknown
	Kinds  []KindCatchUp
}

// A KindCatchUp is what is left of a kind, as it was counted last. A kind that has nothing left has none.
type KindCatchUp struct {
	Kind   string
	Left   int
	Oldest time.Time
	Done   time.Time // when they will have been started at the rate of the last ten seconds; zero if it is not known
}

// CatchUp returns how far the overdue tasks have been worked off. On a node it is about the whole engine. Tasks that
// have no handler here, or whose kind is paused, are left out. They are counted in the background, as often as for a
// [Scheduler.Counts], and Left is less the tasks that have been started since. A node estimates what the others have
// started. CatchUp waits 150 ms for a count. Before the first count is finished, CatchUp is Cut: it has the tasks that
// were found so far, in due order, and a kind whose tasks are due later than the others may be missing.
func (s *Scheduler) CatchUp(ctx context.Context) (CatchUp, error) {
	c, err := s.catchUp(ctx)
	return c, stopped(err, "CatchUp", "")
}

// An Action is what [Scheduler.Bulk] does to a task.
type Action uint8

const (
	DoNothing Action = iota // and so Bulk counts
	DoRemove
	DoRunNow // as Reschedule with 0; a parked task runs again with all of its attempts, a paused one is left alone
	DoPause  // as Pause; a paused task is left alone
	DoResume // as Resume; a task that is not paused is left alone
	DoCancel // as Cancel: of runs that are in progress, and the tasks stay; see Bulk
)

// Bulk does the same to all tasks that the query finds, whatever its Limit and For, and returns to how many. A
// task that has changed since it was found, other than by a start of its run, is left alone. What is left alone
// is not counted. When ctx is done Bulk stops, and returns how many it has done. Doing it again continues with
// the rest.
//
// DoCancel asks all nodes once, whatever the number of the runs: the answer takes up to half a second on an engine.
// It is about runs as [Scheduler.Cancel] is, whatever has become of their tasks meanwhile, and none if the query has
// a State other than AnyState and Running. Bulk returns how many runs were cancelled. Their tasks run again, at once
// if handlers return quickly: use [Scheduler.PauseKind] first to prevent that. A node of version 0.1 cancels none, and
// is an error.
func (s *Scheduler) Bulk(ctx context.Context, q Query, do Action) (int, error) {
	n, _, err := s.bulk(ctx, q, do, 0)
	return n, stopped(err, "Bulk", "")
}

// BulkStep is a part of a Bulk. It looks for tasks for q.For, at one task at least, and returns to how many it
// has done the action, and After of the next step of the same query and action. That is empty at the end. DoCancel is
// one step.
func (s *Scheduler) BulkStep(ctx context.Context, q Query, do Action) (n int, next string, err error) {
	n, next, err = s.bulk(ctx, q, do, cmp.Or(q.For, lookFor))
	return n, next, stopped(err, "BulkStep", "")
}

// BulkReschedule makes the next run of all tasks that the query finds due, each after what after returns, as
// [Scheduler.Reschedule] does with it. The function is given how many tasks it was called for before, and is called
// by the goroutine of BulkReschedule. So n tasks are spread evenly over a time d by time.Duration(i)*d/n. Paused tasks
// are left alone, and in all else it is like [Scheduler.Bulk], but for a further call, which reschedules all of them
// again.
func (s *Scheduler) BulkReschedule(ctx context.Context, q Query, after func(i int) time.Duration) (int, error) {
	n, err := s.reschedule(ctx, q, after)
	return n, stopped(err, "BulkReschedule", "")
}

// An Attempt is one call of a handler, after it has ended.
type Attempt struct {
	Token
	Kind    string
	Attempt int       // 1 for the first
	Due     time.Time // when it was due: the run, or after a failure the attempt
	Started time.Time
	Ended   time.Time
	Failure string // why it failed, or empty
	Note    string // of [Run.Complete]
	Parked  bool   // it failed for the last time

	Cancelled bool // it failed, and [Scheduler.Cancel] had cancelled it
}

// WithObserver has f called after each call of a handler, on the goroutine of the handler. f must be quick and safe for
// concurrent use, and must not panic. Packages metrics and dashboard have such functions.
func WithObserver(f func(Attempt)) Option {
	return func(c *config) error {
		if f == nil {
			return errors.New("durable: observer is nil")
		}
		c.observers = append(c.observers, f)
		return nil
	}
}
