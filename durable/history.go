// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/past"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// MaxHistory is the maximum number of attempts that a kind may keep. See [WithHistory].
const MaxHistory = 100_000

// WithHistory keeps a history of the kind's last attempts, which [Scheduler.History] returns. It keeps the given number
// of attempts, successful and failed, but none that ended more than age ago. By default a kind has no history. attempts
// is from 1 to MaxHistory, and age must be positive. If nodes set different values, the smallest number and the shortest
// age apply.
//
// An attempt appears in the history within about five seconds of its end. The history is written separately from the
// tasks, many attempts at a time, so that it costs little. A process that crashes therefore loses the last few seconds
// of its history, and its attempts in progress, but no task. While the engine is unavailable, a node remembers the last
// attempts, at most three times as many as the kind keeps, and writes them later. Shutdown then takes up to two seconds
// longer.
//
// The history is trimmed from time to time. It usually holds up to an eighth more attempts than the kind keeps for each
// process that runs the kind, and up to twice as many more while many attempts end. Attempts that are too old are deleted
// within about fifteen minutes, even if their kind no longer keeps any, as long as a process keeps any history. Attempts
// that ended while the clock was ahead by more than a minute are kept in addition, at most as many.
//
// An attempt takes a few dozen bytes in addition to its key and texts. A copy made by [Scheduler.Backup]
// contains the history, but [Scheduler.Restore] does not bring it back.
func WithHistory(attempts int, age time.Duration) KindOption {
	return func(k *kind) error {
		if attempts < 1 || attempts > MaxHistory || age <= 0 {
			return fmt.Errorf("durable: history of %d attempts for %v: 1 to %d are allowed, and the age must be positive",
				attempts, age, MaxHistory)
		}
		k.keeps, k.keepsFor = attempts, age
		return nil
	}
}

// MaxHistoryNote is the maximum size of a note in the history, in bytes. See [WithHistoryNotes].
const MaxHistoryNote = 4 << 10

// WithHistoryNotes keeps up to the given number of bytes of each note of [Run.Complete] in the history of the kind, from
// 1 to MaxHistoryNote. By default it keeps 256. An attempt with a longer note takes as much more in the history, and in
// memory until it is written. Info.Note, the log and observers have as much of a note as without the option. The option
// has no effect without [WithHistory].
func WithHistoryNotes(bytes int) KindOption {
	return func(k *kind) error {
		if bytes < 1 || bytes > MaxHistoryNote {
			return fmt.Errorf("durable: notes of %d bytes in the history; 1 to %d are allowed", bytes, MaxHistoryNote)
		}
		k.noteBytes = bytes
		return nil
	}
}

// A PastRun is an attempt in the history. Its times are taken from the engine's clock.
// It describes how the handler returned, even if that did not count because the task had been changed or taken over.
// Parked and GivenUp are set only if that was stored: otherwise the outcome of a failed attempt is failed.
//
// Two types of entry do not record a handler call. Their Started equals their Ended. If the process ended during an
// attempt, or its lease expired, the entry has a Failure that says so, and the time when another process found it. The
// entry of a run that expired has Expired set, and the number of the attempt that did not start: see [Task].Expires.
type PastRun struct {
	Attempt
	Group   string
	Node    string // as in [WithNodeName]
	Expired bool
}

// The outcomes of a [PastRun].
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed" // and another attempt was to follow, unless the task has changed
	OutcomeParked    = "parked"
	OutcomeGivenUp   = "given up"  // failed for the last time, and the repeating task continues with its next run
	OutcomeCancelled = "cancelled" // failed after [Scheduler.Cancel]
	OutcomeSnoozed   = "snoozed"
	OutcomeExpired   = "expired"
)

// Outcomes returns the outcomes of a [PastRun].
func Outcomes() []string {
	return []string{
		OutcomeSucceeded, OutcomeFailed, OutcomeParked, OutcomeGivenUp, OutcomeCancelled, OutcomeSnoozed, OutcomeExpired,
	}
}

// Outcome returns the outcome of the attempt, one of [Outcomes]. A cancelled attempt that parked its task, or whose run was
// given up, has that outcome.
func (r PastRun) Outcome() string {
	switch {
	case r.Expired:
		return OutcomeExpired
	case r.Snoozed:
		return OutcomeSnoozed
	case r.Parked:
		return OutcomeParked
	case r.GivenUp:
		return OutcomeGivenUp
	case r.Cancelled:
		return OutcomeCancelled
	case r.Failure != "":
		return OutcomeFailed
	}
	return OutcomeSucceeded
}

// String returns the fields as one line. Times are in UTC.
func (r PastRun) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q of kind %q, attempt %d: %s, due %s, %v late, took %v", r.Key, r.Kind, r.Attempt.Attempt,
		r.Outcome(), r.Due.UTC().Format(time.RFC3339Nano), r.Started.Sub(r.Due), r.Ended.Sub(r.Started))
	fprintNamed(&b, []named{{"failure", r.Failure}, {"note", r.Note}, {"group", r.Group}, {"on", r.Node}})
	fmt.Fprintf(&b, ", token %v", r.Token)
	return b.String()
}

// is reports whether the attempt has the outcome.
func (r PastRun) is(outcome string) bool {
	return outcome == r.Outcome() || outcome == OutcomeCancelled && r.Cancelled
}

func checkOutcomes(names []string) error {
	for _, name := range names {
		if !slices.Contains(Outcomes(), name) {
			return fmt.Errorf("%w: outcome %q must be one of %s", ErrInvalidTask, name, strings.Join(Outcomes(), ", "))
		}
	}
	return nil
}

// A HistoryQuery selects attempts. An attempt must match all fields that are set.
type HistoryQuery struct {
	Kind     string
	Key      string // key of the task, which may no longer exist
	Prefix   string // prefix of the key
	Group    string
	Node     string
	Outcomes []string  // select attempts with any of these outcomes; OutcomeCancelled selects all cancelled attempts
	From     time.Time // select attempts that ended at or after this time; older ones are not read
	Before   time.Time // select attempts that ended before this time

	After string // History.Next of the previous page; empty for the first page
	Limit int    // maximum number of attempts in a page, at most MaxHistory; 0 means 100
}

// A History is a page of attempts that have ended.
type History struct {
	Runs []PastRun // newest first
	Next string    // the After of the next page; empty if this is the last page
}

// History returns a page of the attempts that match the query, ordered by end time, newest first. Only kinds handled
// with [WithHistory] have a history. History works on any scheduler, including that of [Connect]. It reads the history
// of the kind, or of all kinds, starting with the newest attempt, until the page is full. A query that matches few
// attempts may therefore read the entire history. Attempts that cannot be read, for example because a later version of
// this package wrote them, are omitted. If the query is invalid, or its After is not a Next, the error wraps
// ErrInvalidTask.
func (s *Scheduler) History(ctx context.Context, q HistoryQuery) (History, error) {
	from, err := q.validate()
	if err != nil {
		return History{}, err
	}
	if !s.reads.Enter() {
		return History{}, failed(ErrStopped, "History", q.Key)
	}
	defer s.reads.Leave()
	notes := s.node.Notebook()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.past.Life(), func() { cancel(ErrStopped) })() // Shutdown waits for reads
	limit := min(cmp.Or(q.Limit, pageLimit), MaxHistory)
	// One more shows whether there is another page.
	found, err := past.Read(ctx, notes, q.Kind, q.From, limit+1, func(e past.Entry) bool {
		return (from == nil || from.Compare(e) < 0) && q.fits(pastRun(e))
	})
	if err != nil {
		if s.past.Life().Err() != nil {
			err = ErrStopped
		}
		return History{}, failed(err, "History", q.Key)
	}
	var h History
	for _, e := range found[:min(len(found), limit)] {
		h.Runs = append(h.Runs, pastRun(e))
	}
	if len(found) > limit {
		h.Next = cursorOf(found[limit-1])
	}
	return h, nil
}

// validate returns the attempt after which the page begins, or nil if it is the first page.
func (q HistoryQuery) validate() (after *past.Entry, err error) {
	if q.Limit < 0 {
		return nil, fmt.Errorf("%w: Limit %d is negative", ErrInvalidTask, q.Limit)
	}
	if err := checkOutcomes(q.Outcomes); err != nil || q.After == "" {
		return nil, err
	}
	if data, err := base64.RawURLEncoding.DecodeString(q.After); err == nil {
		if of, err := task.DecodePast(data); err == nil && len(of.Past) == 1 {
			return &past.Entry{Past: of.Past[0]}, nil
		}
	}
	return nil, fmt.Errorf("%w: After %q is not the Next of a page", ErrInvalidTask, q.After)
}

// cursorOf returns the position of an attempt as text. validate reads it.
func cursorOf(e past.Entry) string {
	e.Failure, e.Note = "", ""
	data, _ := (&task.PastBlock{Past: []task.Past{e.Past}}).Encode(1)
	return base64.RawURLEncoding.EncodeToString(data)
}

func (q HistoryQuery) fits(r PastRun) bool {
	return (q.Kind == "" || r.Kind == q.Kind) && (q.Key == "" || r.Key == q.Key) && strings.HasPrefix(r.Key, q.Prefix) &&
		(q.Group == "" || r.Group == q.Group) && (q.Node == "" || r.Node == q.Node) &&
		(len(q.Outcomes) == 0 || slices.ContainsFunc(q.Outcomes, r.is)) && !r.Ended.Before(q.From) &&
		(q.Before.IsZero() || r.Ended.Before(q.Before))
}

func pastRun(e past.Entry) PastRun {
	return PastRun{
		Attempt: Attempt{
			Token: Token{e.Key, e.Generation, e.Seq}, Kind: e.Kind, Attempt: e.Attempt, Due: time.Unix(0, e.Due),
			Started: time.Unix(0, e.Started), Ended: time.Unix(0, e.Ended), Failure: e.Failure, Note: e.Note,
			Parked: e.Parked, Snoozed: e.Snoozed, Cancelled: e.Cancelled, GivenUp: e.GivenUp,
		},
		Group: e.Group, Node: e.Node, Expired: e.Expired,
	}
}

func newPast(n *node.Node, cfg config) *past.Writer {
	return past.NewWriter(n.Notebook(), cfg.Name, n.Now, n.Reporter().HistoryFailed)
}

// keepAttempt adds an attempt that has just ended to the history, if the kind has one. The note is the whole one.
func (k *kind) keepAttempt(a Attempt, rec *task.Record, note string) {
	if k.past == nil {
		return
	}
	k.past.Add(task.Past{
		Key: a.Key, Group: rec.Group, Generation: a.Generation, Seq: a.Seq, Attempt: a.Attempt, Due: a.Due.UnixNano(),
		Started: a.Started.UnixNano(), Ended: a.Ended.UnixNano(), Failure: a.Failure, Note: task.ClipTo(note, k.noteBytes),
		Parked: a.Parked, Snoozed: a.Snoozed, Cancelled: a.Cancelled, GivenUp: a.GivenUp,
	})
}

// keepEnd adds the end of a run without a handler call to the history, if the kind has one.
func (k *kind) keepEnd(rec *task.Record, e task.Past) {
	if k.past == nil {
		return
	}
	e.Key, e.Group, e.Generation, e.Seq = rec.Key, rec.Group, rec.Generation, rec.Seq
	e.Ended = k.past.Now()
	e.Started = e.Ended
	k.past.Add(e)
}
