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
	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// Queries and bulk actions for operators. A query performs a bounded number of reads, or reports that it was cut.

// A State is the state of a task.
type State uint8

const (
	AnyState  State = iota
	Scheduled       // due later, and no attempt of the run has failed
	Retrying        // due later, after a failed attempt
	Waiting         // due but not running
	Running         // its handler is running, on any node
	Parked          // not run until rescheduled or replaced: its last attempt failed, or the handler parked it
	Paused          // not run until resumed
)

var stateNames = [...]string{"any", "scheduled", "retrying", "waiting", "running", "parked", "paused"}

// String returns the state as a single lower-case word.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// States returns all states except AnyState, in numerical order.
func States() (all []State) {
	for s := Scheduled; int(s) < len(stateNames); s++ {
		all = append(all, s)
	}
	return all
}

// ParseState returns the state with the given name. The error lists the valid names.
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
	Repeating bool   // select only tasks with more than one run left
	Failing   bool   // select only failing tasks, as in KindCounts
	Prefix    string // prefix of the key
	Kind      string // empty means any but OnceKind
	Group     string // as in [Task]; empty means any
	Failure   string // part of the last attempt's error, or the text of a [FailureGroup]

	After string        // Found.Next of the previous page; empty for the first page
	Limit int           // maximum number of tasks in a page; 0 means 100
	For   time.Duration // time limit for [Scheduler.Find], [Scheduler.Groups] or [Scheduler.BulkStep], from the first task on; 0 means 150 ms
}

// Found is a page of tasks.
type Found struct {
	Tasks  []Info // ordered by due time and key, or by key alone; see [Scheduler.Find]
	Looked int    // number of tasks read
	Next   string // the After of the next page; empty if this is the last page
	Cut    bool   // time ran out before the page was full
}

// Find returns a page of the tasks that match the query. By default, Find reads tasks in due order. It reads them in
// key order if the query sets Prefix or selects running tasks. If the query sets Failure or Failing, or selects
// retrying tasks, Find reads only tasks whose last attempt failed, in key order. Tasks that do not match the other
// fields of the query are read and skipped, until the page is full or time runs out. If time runs out, the page is cut,
// and Next continues the search. A task that changes during the call may or may not be found. If After comes from
// another query, the error wraps ErrInvalidTask.
func (s *Scheduler) Find(ctx context.Context, q Query) (Found, error) {
	f, err := s.find(ctx, q)
	return f, failed(err, "Find", "")
}

// Counts holds the number of tasks of each kind.
type Counts struct {
	At    time.Time // when the count began, by this process's clock; zero before the first count
	Whole bool      // false until the first count after New, or after an engine outage, is complete
	Kinds []KindCounts
}

// KindCounts holds the task counts of one kind.
type KindCounts struct {
	Kind    string
	Tasks   int // all tasks of the kind
	Failing int // tasks whose last attempt failed: retrying, parked, or waiting for the next run after one that was given up
	Parked  int
	Paused  int // paused tasks; they do not count as Failing

	KindPaused bool // the kind is paused by PauseKind or PauseAll, as last read
}

// Counts returns the number of tasks of each kind. An own engine keeps the counts up to date, and Whole is false until
// it has read all tasks. A shared engine has to count its tasks. A count that took longer than 5 ms is reused for a
// hundred times its duration, but for at most 15 s or ten times its duration, whichever is longer. A count that takes
// longer than 150 ms continues in the background, and Counts returns the result of the previous count. Whole is false
// if there is no previous count, or if the engine has been unavailable since then. In these cases the counts are 0 or
// out of date.
func (s *Scheduler) Counts(ctx context.Context) (Counts, error) {
	if !s.reads.Enter() {
		return Counts{}, failed(ErrStopped, "Counts", "")
	}
	defer s.reads.Leave()
	is, err := s.node.Census(ctx)
	c := Counts{At: is.At, Whole: is.Whole}
	paused := s.kinds.Pauses()
	for _, k := range is.Kinds {
		c.Kinds = append(c.Kinds, KindCounts{k.Kind, k.Tasks, k.Failing, k.Parked, k.Paused, paused.Has(k.Kind)})
	}
	return c, err
}

// A FailureGroup describes the tasks of a kind that fail with the same error. Numbers are ignored when errors are
// compared.
type FailureGroup struct {
	Kind    string
	Text    string // the error, with # in place of each number
	Tasks   int
	Parked  int       // parked tasks among them
	GivenUp int       // tasks among them whose last run was given up, and whose next run has not failed
	Example string    // the key of one of the tasks
	Last    time.Time // when an attempt of one of the tasks last failed
}

// Failures holds the groups of failing tasks, largest first.
type Failures struct {
	Groups []FailureGroup
	Looked int
	Cut    bool // time ran out, or there are more than 1,000 groups
}

// Failures groups the failing tasks, as in [KindCounts], by kind and error. It reads tasks for at most 150 ms.
func (s *Scheduler) Failures(ctx context.Context) (Failures, error) {
	f, err := s.failures(ctx)
	return f, failed(err, "Failures", "")
}

// GroupCounts holds the task counts of one group.
type GroupCounts struct {
	Kind   string
	Group  string    // empty for tasks of the kind without a group
	Tasks  int       // all tasks of the group
	Due    int       // due tasks that are not running
	Oldest time.Time // the earliest due time of the due tasks; zero if there are none
}

// Groups holds the groups of the tasks that match a query.
type Groups struct {
	Largest []GroupCounts // the ten groups with the most tasks, largest first
	More    int           // number of other groups; a lower bound if Cut
	Others  GroupCounts   // the total of the other groups
	Looked  int           // number of tasks read
	Cut     bool          // time ran out, or there were more than 10,000 groups
}

// Groups counts the tasks that match the query, by kind and group. It ignores After and Limit. It reads tasks for
// q.For, or for 150 ms if that is 0. After 10,000 groups, the tasks of any further group are counted only in Others.
// For the state [Waiting], Groups reads only due tasks, oldest first, so it finds the group that floods a kind.
func (s *Scheduler) Groups(ctx context.Context, q Query) (Groups, error) {
	g, err := s.groups(ctx, q)
	return g, failed(err, "Groups", "")
}

// A NodeInfo describes a node as the other nodes see it.
type NodeInfo struct {
	Name  string
	ID    engine.MemberID
	Self  bool          // this is the node that was asked
	Lease time.Duration // length of the node's lease
	Left  time.Duration // time until the lease expires; negative if it has expired

	NodeReport
}

// A NodeReport is a node's report about itself, sent each time it renews its lease.
type NodeReport struct {
	Held    int       `json:"held"`           // tasks that the node holds
	Version string    `json:"version"`        // version of this package, from the build information
	Kinds   []string  `json:"kinds"`          // kinds with a handler on the node; none if it is drained
	More    bool      `json:"more,omitempty"` // some kinds are missing because they do not fit or are not valid UTF-8
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`
	Workers int       `json:"workers"`
	Drained bool      `json:"drained,omitempty"` // the node starts no further run
	Leaving bool      `json:"leaving,omitempty"` // the node shuts down, and waits for the ends of its runs
	Away    bool      `json:"away,omitempty"`    // the engine did not do what the node needs to run tasks, as in NodeStats
	Started time.Time `json:"started"`           // when the node's scheduler was created

	TakenOver  []Takeover    `json:"taken_over,omitempty"`  // the last takeovers, at most eight
	OldestWait time.Duration `json:"oldest_wait,omitempty"` // in nanoseconds, as in Stats
	SinceStart time.Duration `json:"since_start,omitempty"` // likewise

	// Busiest is the kind with the most runs in progress on the node. If several kinds tie, it is the one with the
	// longest run. Kinds that are not valid UTF-8 are ignored.
	Busiest KindRuns `json:"busiest,omitzero"`

	Limits []KindLimits `json:"limits,omitempty"` // kinds with a limit, in no order; some are missing if they do not fit
}

// HasAllKinds reports whether the node has sent a report, and Kinds holds every kind with a handler on it.
func (r NodeReport) HasAllKinds() bool { return r.Workers > 0 && !r.More }

// KindLimits holds the limits of a kind: on one node, and on all nodes together.
type KindLimits struct {
	Kind    string `json:"kind"`
	Here    Limit  `json:"here,omitzero"`
	Cluster Limit  `json:"cluster,omitzero"`
}

// String returns the limits in words, such as "8 at once on all nodes, 100 per minute on each node".
func (l KindLimits) String() string {
	var all []string
	for _, of := range []struct {
		Limit
		where string
	}{{l.Cluster, "on all nodes"}, {l.Here, "on each node"}} {
		if of.Limit != (Limit{}) {
			all = append(all, of.String()+" "+of.where)
		}
	}
	return strings.Join(all, ", ")
}

// KindRuns describes a kind's runs in progress.
type KindRuns struct {
	Kind    string        `json:"kind"`
	Running int           `json:"running"`
	Longest time.Duration `json:"longest"` // how long the longest of the runs has taken, in nanoseconds
}

// A Takeover records that a node's lease expired and another node freed its tasks. A node that leaves during Shutdown
// is not taken over.
type Takeover struct {
	Node string    `json:"node"` // the name of the node that was taken over, cut to 200 bytes
	At   time.Time `json:"at"`   // when the tasks were freed, by the asking process's clock
}

// Nodes returns the members of the engine, ordered by name and ID. On an own engine it returns only this scheduler.
func (s *Scheduler) Nodes(ctx context.Context) ([]NodeInfo, error) {
	if !s.reads.Enter() {
		return nil, failed(ErrStopped, "Nodes", "")
	}
	defer s.reads.Leave()
	nodes, err := s.node.Nodes(ctx)
	return infosOf(nodes), err
}

// A KindInfo describes a kind with a handler on this scheduler. Its counters cover the time since New.
type KindInfo struct {
	Kind          string
	Attempts      int  // as in [WithRetry]
	ParkRepeating bool // as in [WithParkRepeating]
	Least, Most   time.Duration
	Missed        Missed
	Paused        bool  // the kind is paused by PauseKind or PauseAll, as last read
	Limit         Limit // limit on this scheduler: [WithConcurrency] and [WithRate]
	Cluster       Limit // limit across all nodes: [WithClusterConcurrency] and [WithClusterRate]
	Tuned         bool  // an operator has set other numbers in the limits than the code: [Scheduler.TuneLimits]
	History       int   // number of attempts that the kind keeps: [WithHistory]
	Waiting       int   // due runs held by this scheduler that are waiting for the limits; 0 while the kind is paused
	Full          bool  // the limits allow no further run on this scheduler now

	Running int           // runs in progress on this scheduler
	Longest time.Duration // the duration of the longest run in progress; 0 if there is none

	// Started, Succeeded, Failed and Cancelled count handler calls. They include calls whose result does not count
	// because the task was removed, moved or paused during the call. Stats does not include those calls in Succeeded
	// and Failed.
	Started     uint64
	Succeeded   uint64
	Failed      uint64
	Snoozed     uint64
	Cancelled   uint64 // failed attempts that [Scheduler.Cancel] had cancelled
	ParkedTotal uint64 // number of times that tasks were parked, as in Stats
	GivenUp     uint64 // runs of repeating tasks that were given up, as in Stats

	// GivenUpAgain counts the GivenUp runs that followed another run of the same task that was given up.
	GivenUpAgain uint64

	// Interrupted counts the runs of which this scheduler has found an attempt cut off: its process ended during the
	// attempt, or the lease of its node expired. Such attempts count towards Attempts, but not as Failed.
	Interrupted uint64
}

// Kinds returns the kinds with a handler on this scheduler, ordered by name.
func (s *Scheduler) Kinds() []KindInfo { return s.kindInfos() }

// CatchUp holds the number of overdue tasks: tasks that have been due for a second or more and are not running. All but
// Others is about tasks that can run on this scheduler.
type CatchUp struct {
	At     time.Time // when the tasks were counted, by this process's clock; zero before the first count
	Left   int       // number of overdue tasks; a lower bound if Cut
	Cut    bool      // the first count, or the first count after an outage, is incomplete; there may be more tasks
	Oldest time.Time // the earliest due time of an overdue task; zero if there are none
	Done   time.Time // the latest Done of any kind; zero if one of them is unknown
	Kinds  []KindCatchUp
	Others []KindCatchUp // paused kinds and those without a handler on this scheduler; on a drained node all kinds
}

// A KindCatchUp holds the number of a kind's overdue tasks as of the last count. A kind without overdue tasks has no
// KindCatchUp.
type KindCatchUp struct {
	Kind   string
	Left   int
	Oldest time.Time
	Done   time.Time // when all of the tasks will have started, at the rate of the last ten seconds; zero if unknown
}

// CatchUp returns the number of overdue tasks. It covers the whole engine. CatchUp counts in the background, as often as
// [Scheduler.Counts], and subtracts the tasks that have started since the count, but not from Others. A node estimates
// how many tasks have started on other nodes, and as long as some are left it counts for up to a twentieth of the time.
// CatchUp waits up to 150 ms for a count. Until the first count is complete, Cut is true and the result covers only the
// tasks found so far, in due order, so kinds that are due later may be missing.
func (s *Scheduler) CatchUp(ctx context.Context) (CatchUp, error) {
	c, err := s.catchUp(ctx)
	return c, failed(err, "CatchUp", "")
}

// An Action is an operation that [Scheduler.Bulk] applies to tasks.
type Action uint8

const (
	DoNothing Action = iota // Bulk only counts
	DoRemove
	DoRunNow // like Reschedule with 0: a parked task gets all its attempts and a new token; a paused task is left alone
	DoPause  // like Pause; a paused task is left alone
	DoResume // like Resume; a task that is not paused is left alone
	DoCancel // like Cancel; it cancels runs in progress, and the tasks remain; see Bulk
)

// Bulk applies an action to all tasks that match the query, and returns the number of tasks that it changed. It ignores
// Limit and For. A task that has changed since it was found is left alone and not counted, unless the only change is
// that its run has started. When ctx is done, Bulk stops and returns the number of tasks changed so far. Another call
// continues with the remaining tasks.
//
// DoCancel asks all nodes once, regardless of the number of runs. On an engine, the answer takes up to two seconds.
// Like [Scheduler.Cancel], DoCancel acts on runs, even if their tasks have changed in the meantime. It cancels nothing
// if the query's State is neither AnyState nor Running. Bulk returns the number of cancelled runs. The tasks of
// cancelled runs run again, at once if the handlers return quickly. To prevent that, call [Scheduler.PauseKind] first.
func (s *Scheduler) Bulk(ctx context.Context, q Query, do Action) (int, error) {
	n, _, err := s.bulk(ctx, q, do, 0)
	return n, failed(err, "Bulk", "")
}

// BulkStep performs one step of a Bulk. It reads tasks for q.For, but always reads at least one. It returns the number
// of tasks that it changed, and the value of After for the next step with the same query and action. That value is
// empty after the last step. DoCancel takes a single step.
func (s *Scheduler) BulkStep(ctx context.Context, q Query, do Action) (n int, next string, err error) {
	n, next, err = s.bulk(ctx, q, do, cmp.Or(q.For, node.LookFor))
	return n, next, failed(err, "BulkStep", "")
}

// BulkReschedule reschedules all tasks that match the query, as [Scheduler.Reschedule] does. Each task becomes due
// after(i) from now, where i is the number of tasks before it. For example, if after returns time.Duration(i)*d/n, n
// tasks are spread evenly over the time d. after is called on the caller's goroutine. Paused tasks are left alone.
// Otherwise BulkReschedule is like [Scheduler.Bulk], but another call reschedules all of the tasks again.
func (s *Scheduler) BulkReschedule(ctx context.Context, q Query, after func(i int) time.Duration) (int, error) {
	n, err := s.reschedule(ctx, q, after)
	return n, failed(err, "BulkReschedule", "")
}

// An Attempt describes a handler call that has ended.
type Attempt struct {
	Token
	Kind    string
	Attempt int       // number of the attempt; 1 for the first
	Due     time.Time // when the run was due or, for a retry, when the attempt was due
	Started time.Time // by the engine's clock
	Ended   time.Time
	Failure string // why the attempt failed; empty if it succeeded
	Note    string // the note from [Run.Complete]
	Parked  bool   // the attempt failed, and its task was parked
	GivenUp bool   // the attempt failed, and its run was given up: see [WithRetry]
	Snoozed bool   // the attempt postponed its run: see [Snooze]

	Cancelled bool // the attempt failed after [Scheduler.Cancel] had cancelled it
}

// String returns the fields as one line. Times are in UTC.
func (a Attempt) String() string { return PastRun{Attempt: a}.String() }

// WithObserver calls f after each handler call, on the handler's goroutine. If the attempt parks its task or its run is
// given up, f is called on another goroutine once that has been stored, or with neither Parked nor GivenUp if it was not,
// because the task was removed, moved, replaced or paused during the attempt. The calls for two attempts of a task may
// overlap. f must be quick and safe for concurrent use, and must not panic. Shutdown waits for f. Packages metrics and
// dashboard provide observers.
func WithObserver(f func(Attempt)) Option {
	return func(c *config) error {
		if f == nil {
			return errors.New("durable: observer is nil")
		}
		c.observers = append(c.observers, f)
		return nil
	}
}
