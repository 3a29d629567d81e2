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

// The questions and bulk actions of an operator. A question costs a bounded number of reads, or reports that it was
// cut.

// A State is the state of a task.
type State uint8

const (
	AnyState  State = iota
	Scheduled       // due later, and no attempt of the run has failed
	Retrying        // due later, after a failed attempt
	Waiting         // due, and not running
	Running         // its handler is running, on any node
	Parked          // until it is rescheduled or replaced: its last attempt failed, or the handler parked it
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

// ParseState returns the state with that name. The error lists the valid names.
func ParseState(name string) (State, error) {
	names := stateNames[Scheduled:]
	i := slices.Index(names, name)
	if i < 0 {
		return AnyState, fmt.Errorf("durable: state %q must be one of %s", name, strings.Join(names, ", "))
	}
	return Scheduled + State(i), nil
}

// A Query selects tasks. A task must match all fields that are set.
type Query struct {
	State     State
	Repeating bool   // only tasks with more than one run left
	Prefix    string // of the key
	Kind      string
	Group     string // of [Task]; empty means any
	Failure   string // part of the error of the last attempt, or the text of a [FailureGroup]

	After string        // Found.Next of the previous page; empty for the first
	Limit int           // tasks in a page, at most; 0 means 100
	For   time.Duration // how long [Scheduler.Find], [Scheduler.Groups] or [Scheduler.BulkStep] may look; 0 means 150 ms
}

// Found is a page of tasks.
type Found struct {
	Tasks  []Info // in order of due time and key, or of the key alone: see [Scheduler.Find]
	Looked int    // how many tasks were looked at
	Next   string // After for the next page; empty if this is the last
	Cut    bool   // the time was up before the page was full
}

// Find returns a page of the tasks that match the query. It reads them in due order, or in key order for a prefix and
// for running tasks. For a failure and for retrying tasks it reads only failed tasks, in key order. Tasks that do not
// match the rest of the query are read and left out, until the page is full or the time is up. In the latter case the
// page is cut, and Next continues it. A task that changes during the call may be found or not. If After comes from
// another query, the error wraps ErrInvalidTask.
func (s *Scheduler) Find(ctx context.Context, q Query) (Found, error) {
	f, err := s.find(ctx, q)
	return f, stopped(err, "Find", "")
}

// Counts are the numbers of tasks by kind.
type Counts struct {
	At    time.Time // when the count began, by the clock of this process; zero before the first
	Whole bool      // false until the first count is complete: after New, and after an outage of the engine
	Kinds []KindCounts
}

// KindCounts are the numbers of a kind's tasks.
type KindCounts struct {
	Kind    string
	Tasks   int // all of them
	Failing int // tasks with a failed attempt: retrying or parked
	Parked  int
	Paused  int // these do not count as Failing

	KindPaused bool // by PauseKind or PauseAll; on a node, as it last read
}

// Counts returns the numbers of tasks. A store keeps them up to date. An engine counts its tasks: if a count took
// longer than 5 ms, it is reused for a hundred times as long, up to 15 s, or for ten times as long if that is more. If
// a count takes longer than 150 ms, it continues in the background, and Counts returns the previous one. Whole is false
// if there is none, or if the engine has been unavailable since: then the counts are old, or 0.
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

// A FailureGroup is the tasks of a kind that fail with the same error. Numbers in the error are ignored in the
// comparison.
type FailureGroup struct {
	Kind    string
	Text    string // the error, with # in place of each number
	Tasks   int
	Parked  int       // of these
	Example string    // the key of one of them
	Last    time.Time // when an attempt of one of them last failed
}

// Failures are the groups of failing tasks, the largest first.
type Failures struct {
	Groups []FailureGroup
	Looked int
	Cut    bool // the time was up, or there are more than 1,000 groups
}

// Failures groups the failing tasks by kind and error. It reads tasks for 150 ms at most.
func (s *Scheduler) Failures(ctx context.Context) (Failures, error) {
	f, err := s.failures(ctx)
	return f, stopped(err, "Failures", "")
}

// GroupCounts are the numbers of one group's tasks.
type GroupCounts struct {
	Kind   string
	Group  string    // empty for the tasks of the kind without a group
	Tasks  int       // all of them
	Due    int       // due tasks that are not running
	Oldest time.Time // the earliest due time of these; zero if there are none
}

// Groups are the groups of the tasks that a query finds.
type Groups struct {
	Largest []GroupCounts // the ten groups with the most tasks, the largest first
	More    int           // how many other groups there are; at least, if Cut
	Others  GroupCounts   // the sum of the others
	Looked  int           // how many tasks were looked at
	Cut     bool          // the time was up, or there were more than 10,000 groups
}

// Groups counts the tasks that the query finds by kind and group. It ignores After and Limit. It reads tasks for q.For,
// or for 150 ms if that is 0. After 10,000 groups, the tasks of any further group are counted in Others only. For the
// state [Waiting] it reads only due tasks, the oldest first, and so finds the group that floods a kind.
func (s *Scheduler) Groups(ctx context.Context, q Query) (Groups, error) {
	g, err := s.groups(ctx, q)
	return g, stopped(err, "Groups", "")
}

// A NodeInfo describes a node as the other nodes see it.
type NodeInfo struct {
	Name  string
	ID    engine.MemberID
	Self  bool          // it is the node that was asked
	Lease time.Duration // the length of its lease
	Left  time.Duration // until its lease expires; negative if it has

	NodeReport
}

// A NodeReport is a node's report about itself, sent each time it renews its lease.
type NodeReport struct {
	Held    int       `json:"held"`           // tasks that it holds. Not reported by earlier versions
	Version string    `json:"version"`        // of this package, from the build information
	Kinds   []string  `json:"kinds"`          // that have a handler on the node
	More    bool      `json:"more,omitempty"` // there are further kinds that do not fit or are not UTF-8
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`
	Workers int       `json:"workers"`
	Drained bool      `json:"drained,omitempty"` // it starts no further run: see [Scheduler.Drain]. Then Kinds is empty once no run is in progress
	Started time.Time `json:"started"`           // when it was started

	TakenOver []Takeover `json:"taken_over,omitempty"` // the last ones, at most eight; none on a store

	// As in Stats, in nanoseconds. Earlier versions do not report them.
	OldestWait time.Duration `json:"oldest_wait,omitempty"`
	SinceStart time.Duration `json:"since_start,omitempty"`

	// The kind with the most runs in progress on the node; of several, the one with the longest run. Kinds that are not
	// UTF-8 are left out.
	Busiest KindRuns `json:"busiest,omitzero"`
}

// KindRuns are the runs of a kind in progress.
type KindRuns struct {
	Kind    string        `json:"kind"`
	Running int           `json:"running"`
	Longest time.Duration `json:"longest"` // how long the longest of them has taken, in nanoseconds
}

// A Takeover records that the lease of a node expired and another node freed its tasks. A node that leaves by Shutdown
// is not taken over.
type Takeover struct {
	Node string    `json:"node"` // the name of the node that was taken over; at most 200 bytes of it
	At   time.Time `json:"at"`   // by the clock of the asking process
}

// Nodes returns the members of the engine in order of name and ID. On a store it returns this scheduler alone.
func (s *Scheduler) Nodes(ctx context.Context) ([]NodeInfo, error) {
	if !s.reads.enter() {
		return nil, stopped(ErrStopped, "Nodes", "")
	}
	defer s.reads.leave()
	return s.below.nodes(ctx)
}

// A KindInfo describes a kind with a handler on this scheduler. Its counters start at New.
type KindInfo struct {
	Kind        string
	Attempts    int // as in [WithRetry]
	Least, Most time.Duration
	Missed      Missed
	Paused      bool  // by PauseKind or PauseAll; on a node, as it last read
	Limit       Limit // on this scheduler: [WithConcurrency] and [WithRate]
	Cluster     Limit // on all nodes: [WithClusterConcurrency] and [WithClusterRate]
	Waiting     int   // due runs held by this scheduler that wait for the limits; 0 while the kind is paused

	Running int           // runs in progress on this scheduler
	Longest time.Duration // the duration of the longest of these; 0 if there are none

	// Calls of the handler. They include calls whose result does not count because the task was removed, moved or
	// paused meanwhile. Stats leaves those out of Succeeded and Failed.
	Started     uint64
	Succeeded   uint64
	Failed      uint64
	Snoozed     uint64
	Cancelled   uint64 // failed attempts that [Scheduler.Cancel] had cancelled
	ParkedTotal uint64 // how often tasks were parked, as in Stats
}

// Kinds returns the kinds with a handler on this scheduler, ordered by name.
func (s *Scheduler) Kinds() []KindInfo { return s.kindInfos() }

// CatchUp is the number of overdue tasks: those due for a second or more and not running.
type CatchUp struct {
	At     time.Time // when they were counted, by the clock of this process; zero before the first count
	Left   int       // tasks; at least, if Cut
	Cut    bool      // the first count, or the first after an outage, is not complete: there may be more
	Oldest time.Time // the earliest due time of these; zero if there are none
	Done   time.Time // the latest Done of all kinds; zero if one is unknown
	Kinds  []KindCatchUp
}

// A KindCatchUp is the number of a kind's overdue tasks at the last count. A kind without overdue tasks has none.
type KindCatchUp struct {
	Kind   string
	Left   int
	Oldest time.Time
	Done   time.Time // when all will have started at the rate of the last ten seconds; zero if unknown
}

// CatchUp returns how many overdue tasks are left. On a node it covers the whole engine. Tasks without a handler here,
// and those of paused kinds, are left out. CatchUp counts in the background, as often as [Scheduler.Counts], and
// subtracts the tasks that have started since. A node estimates the starts of other nodes. CatchUp waits up to 150 ms
// for a count. Before the first count is complete the result is Cut: it has the tasks found so far, in due order, and
// kinds whose tasks are due later may be missing.
func (s *Scheduler) CatchUp(ctx context.Context) (CatchUp, error) {
	c, err := s.catchUp(ctx)
	return c, stopped(err, "CatchUp", "")
}

// An Action is what [Scheduler.Bulk] does to a task.
type Action uint8

const (
	DoNothing Action = iota // Bulk only counts
	DoRemove
	DoRunNow // as Reschedule with 0; a parked task gets all its attempts again, a paused one is left alone
	DoPause  // as Pause; a paused task is left alone
	DoResume // as Resume; a task that is not paused is left alone
	DoCancel // as Cancel: it cancels runs in progress, and the tasks stay; see Bulk
)

// Bulk applies an action to all tasks that the query finds, and returns how many it changed. It ignores Limit and For.
// A task that has changed since it was found, other than by a start of its run, is left alone and not counted. When ctx
// is done Bulk stops, and returns the number so far. A further call continues with the rest.
//
// DoCancel asks all nodes once, however many runs there are: on an engine the answer takes up to half a second. Like
// [Scheduler.Cancel] it acts on runs, even if their tasks have changed meanwhile. It cancels none if the query's State
// is neither AnyState nor Running. Bulk returns how many runs were cancelled. Their tasks run again, at once if
// handlers return quickly: use [Scheduler.PauseKind] first to prevent that. A node of version 0.1 cannot cancel, and
// causes an error.
func (s *Scheduler) Bulk(ctx context.Context, q Query, do Action) (int, error) {
	n, _, err := s.bulk(ctx, q, do, 0)
	return n, stopped(err, "Bulk", "")
}

// BulkStep is one step of a Bulk. It reads tasks for q.For, and at least one task. It returns how many tasks it
// changed, and the After of the next step of the same query and action, which is empty at the end. DoCancel is a single
// step.
func (s *Scheduler) BulkStep(ctx context.Context, q Query, do Action) (n int, next string, err error) {
	n, next, err = s.bulk(ctx, q, do, cmp.Or(q.For, lookFor))
	return n, next, stopped(err, "BulkStep", "")
}

// BulkReschedule reschedules all tasks that the query finds, as [Scheduler.Reschedule] does. Each becomes due after(i)
// from now, where i is the number of tasks before it. after is called on the caller's goroutine. So
// time.Duration(i)*d/n spreads n tasks evenly over the time d. Paused tasks are left alone, and in all else it is like
// [Scheduler.Bulk], but for a further call, which reschedules all of them again.
func (s *Scheduler) BulkReschedule(ctx context.Context, q Query, after func(i int) time.Duration) (int, error) {
	n, err := s.reschedule(ctx, q, after)
	return n, stopped(err, "BulkReschedule", "")
}

// An Attempt is one call of a handler, after it has ended.
type Attempt struct {
	Token
	Kind    string
	Attempt int       // 1 for the first
	Due     time.Time // when the run was due, or after a failure the attempt
	Started time.Time
	Ended   time.Time
	Failure string // why it failed, or empty
	Note    string // of [Run.Complete]
	Parked  bool   // it failed for the last time
	Snoozed bool   // it was put off: see [Snooze]

	Cancelled bool // it failed after [Scheduler.Cancel] had cancelled it
}

// WithObserver calls f after each call of a handler, on the handler's goroutine. f must be quick and safe for
// concurrent use, and must not panic. Packages metrics and dashboard provide such functions.
func WithObserver(f func(Attempt)) Option {
	return func(c *config) error {
		if f == nil {
			return errors.New("durable: observer is nil")
		}
		c.observers = append(c.observers, f)
		return nil
	}
}
