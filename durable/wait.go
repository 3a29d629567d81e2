// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// ErrCancelled is the cancellation cause of a run's context after [Scheduler.Cancel] has cancelled the run.
var ErrCancelled = errors.New("durable: the run was cancelled")

// A RunningError is the error that RemoveTaskWait returns if a run has not ended in time. It wraps the context's error
// or ErrStopped.
type RunningError struct {
	Token
	Node string // the node on which the run is in progress
	err  error
}

func (e *RunningError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("durable: %q is removed and still running: %v", e.Key, e.err)
	}
	return fmt.Sprintf("durable: %q is removed and still running on node %q: %v", e.Key, e.Node, e.err)
}

func (e *RunningError) Unwrap() error { return e.err }

// RemoveTaskWait removes the task with the key, as RemoveTask does, and then waits until no run of the key is in
// progress on any node. It reports whether a run was in progress. It also waits for runs of earlier tasks with the key,
// but not for runs of a task that is added during the wait. To shorten the wait, call [Scheduler.Cancel] first.
//
// If there is neither a task nor a run in progress, the error wraps ErrTaskKeyNotFound. If ctx is done before a run has
// ended, the error is a [*RunningError] that names the run and its node. If ctx is done before every node has answered,
// and no node has reported a run, the error wraps only the context's error. In both cases the task has been removed. If
// ctx is done before the removal, the error is the one that RemoveTask returns, and the task may still exist. Calling
// RemoveTaskWait again waits for the same runs.
//
// If a node's lease expires, its runs count as ended when the node has been reaped. If a node shuts down, its runs
// count as ended when the node has left. The contexts of those runs are done, but a handler that ignores its context
// may still be running. On an engine, another node may take up to half a second to answer, and the wait ends after
// twelve hours. A handler or observer that calls RemoveTaskWait with its own key waits for itself until ctx is done.
func (s *Scheduler) RemoveTaskWait(ctx context.Context, key string) (ran bool, err error) {
	removed := s.node.do(ctx, &verb{what: toRemove, key: key, size: MaxKey})
	if removed != nil && !errors.Is(removed, ErrTaskKeyNotFound) {
		return false, stopped(removed, "RemoveTaskWait", key)
	}
	runs, err := s.node.inquire(ctx, question{Key: []byte(key)})
	if err != nil || runs > 0 {
		return runs > 0, stopped(err, "RemoveTaskWait", key)
	}
	return false, removed
}

// Cancel cancels the contexts of the key's runs in progress on all nodes, with ErrCancelled as the cause. It reports
// whether there was such a run, and does not wait for the run to end. A run that is about to start is included: if it
// does start, its context is already done. The handler's result still decides the outcome, so a run that returns an
// error is retried. To end the run permanently, remove the task by calling [Scheduler.RemoveTaskWait] after Cancel. A
// task that is waiting, even for its next attempt, has no run in progress. In that case, Cancel reports false and
// changes nothing. To prevent the task from running, use RemoveTask or Pause.
//
// On an engine, another node may take up to half a second to answer. If a node does not answer, Cancel stops waiting
// for it once its lease has expired and it has been reaped. If Cancel returns an error, other nodes may still cancel
// the runs that they find when they read the request. A handler may cancel its own run: Cancel reports true, and the
// handler's context is done.
func (s *Scheduler) Cancel(ctx context.Context, key string) (ran bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	runs, err := s.cancelRuns(ctx, question{Key: []byte(key), Cancel: true})
	return runs > 0, stopped(err, "Cancel", key)
}

// cancelRuns cancels the runs that the question is about, on all nodes. If the caller is one of them, its context is then
// done, which does not end the wait for the other nodes.
func (s *Scheduler) cancelRuns(ctx context.Context, q question) (runs int, err error) {
	waits, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ErrCancelled) {
			cancel()
		}
	})()
	runs, err = s.node.inquire(waits, q)
	if err != nil && waits.Err() != nil {
		err = stillRunning(nil, ctx.Err())
	}
	return runs, err
}

// cancelAll cancels the runs of the tasks that match the query, and returns the number of runs.
func (s *Scheduler) cancelAll(ctx context.Context, q Query) (n int, err error) {
	none := q.State != AnyState && q.State != Running ||
		len(q.Prefix) > MaxKey || len(q.Kind) > MaxKey || len(q.Group) > MaxGroup || len(q.Failure) > task.MaxFailure // too long for a task or a question
	if err := ctx.Err(); err != nil || none {
		return 0, err
	}
	n, err = s.cancelRuns(ctx, question{Cancel: true, All: &filter{
		Repeating: q.Repeating, Prefix: []byte(q.Prefix), Kind: []byte(q.Kind), Group: []byte(q.Group), Failure: []byte(q.Failure),
	}})
	return n, err
}

// A question is about the runs of a key, or about all runs that match a filter. A node sends it to the other nodes
// through the engine.
type question struct {
	Key    []byte  `json:"key,omitempty"` // as bytes, because JSON changes text that is not UTF-8
	Cancel bool    `json:"cancel,omitempty"`
	All    *filter `json:"all,omitempty"` // in place of Key, and only with Cancel
}

// A filter is the part of a [Query] that concerns the task rather than its state.
type filter struct {
	Repeating bool   `json:"repeating,omitempty"`
	Prefix    []byte `json:"prefix,omitempty"`
	Kind      []byte `json:"kind,omitempty"`
	Group     []byte `json:"group,omitempty"`
	Failure   []byte `json:"failure,omitempty"`
}

// about returns a function that reports whether the question is about a task.
func (q question) about() func(*task.Record) bool {
	if q.All == nil {
		return func(r *task.Record) bool { return r.Key == string(q.Key) }
	}
	return Query{
		Repeating: q.All.Repeating, Prefix: string(q.All.Prefix), Kind: string(q.All.Kind), Group: string(q.All.Group),
		Failure: string(q.All.Failure),
	}.suits
}

// A reply is a node's answer.
type reply struct {
	Ran        bool   `json:"ran,omitempty"`
	Runs       *int   `json:"runs,omitempty"` // the answer to All; nil from version 0.1, which does not support All
	Running    bool   `json:"running,omitempty"`
	Generation uint64 `json:"generation,omitempty"` // generation of the running task
	Seq        uint64 `json:"seq,omitempty"`
}

// reply returns the reply to a question about the handlings. A run that was cancelled before its start counts.
func (r *handlings) reply(some []*handling, cancelled bool) reply {
	if cancelled {
		n := len(some)
		return reply{Ran: n > 0, Runs: &n}
	}
	ran, running := r.look(some)
	if running == nil {
		return reply{Ran: ran}
	}
	return reply{Ran: ran, Running: true, Generation: running.of.Rec.Generation, Seq: running.of.Rec.Seq}
}

// one returns 1 for true and 0 for false.
func one(there bool) int {
	if there {
		return 1
	}
	return 0
}

const (
	// askEvery is how often a node checks for answers, or checks whether a run that it was asked about has ended.
	askEvery = 100 * time.Millisecond

	// askFor is how long a node waits for answers. An engine keeps a question longer than that.
	askFor = 12 * time.Hour
)

// inquire asks the workers of this node and, through the engine, all other nodes.
func (n *node) inquire(ctx context.Context, q question) (runs int, err error) {
	if err := n.enter(); err != nil {
		return 0, err
	}
	defer n.verbs.leave()
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	some := n.handlings.watch(q.about(), q.Cancel)
	asked, err := n.askOthers(ctx, q)
	if err != nil {
		return 0, n.unavailable(ctx, err)
	}
	defer n.forgetQuestion(asked)
	if q.Cancel {
		runs = len(some)
	} else {
		ran, err := n.handlings.wait(ctx, n.asks.Done(), some)
		runs = one(ran)
		if err != nil {
			err.(*RunningError).Node = n.cfg.name
			return runs, err
		}
	}
	elsewhere, err := n.await(ctx, asked)
	return runs + elsewhere, err
}

// await waits until all other nodes have given their final answers to a question, and returns the number of runs that
// they reported.
func (n *node) await(ctx context.Context, q *asked) (runs int, err error) {
	timer := time.NewTimer(1) // see keep
	defer timer.Stop()
	var running error // the last report of a run in progress
	for {
		select {
		case <-timer.C:
		case <-n.asks.Done():
			return runs, stillRunning(running, ErrStopped)
		case <-ctx.Done():
			return runs, stillRunning(running, ctx.Err())
		}
		answers, err := n.answers(ctx, q)
		if err == nil {
			some, last, waits := judgeAnswers(answers, string(q.Question.Key))
			runs, running = max(runs, some), waits // a node that leaves takes its answer with it
			if last {
				return runs, unknowing(answers, q.Question)
			}
		} else if ctx.Err() == nil {
			n.trouble(err)
		}
		timer.Reset(askEvery)
	}
}

// unknowing returns an error if a node of an earlier version did not understand the question.
func unknowing(answers []answer, q question) error {
	for _, a := range answers {
		if q.All != nil && a.Runs == nil {
			return fmt.Errorf("durable: node %q has an earlier version, which cancels runs only by key", a.node)
		}
	}
	return nil
}

// stillRunning returns the error of a question that was abandoned for the given reason. running describes a run that
// has not ended, or is nil if no such run is known.
func stillRunning(running error, reason error) error {
	if e, ok := running.(*RunningError); ok {
		e.err = reason
		return e
	}
	return fmt.Errorf("durable: not every node has answered: %w", reason)
}

// judgeAnswers returns the number of runs that the answers report, and whether all answers are final. If a run has not
// ended, the error running describes it.
func judgeAnswers(answers []answer, key string) (runs int, last bool, running error) {
	last = true
	for _, a := range answers {
		if a.Runs != nil {
			runs += *a.Runs
		} else {
			runs += one(a.Ran)
		}
		last = last && a.given && !a.Running
		if a.Running {
			running = &RunningError{Token: Token{key, a.Generation, a.Seq}, Node: a.node}
		}
	}
	return runs, last, running
}

// An inquiry is the state that this node keeps for another node's question.
type inquiry struct {
	about    []*handling // the matching handlings when the question was read
	cancel   bool
	answered bool  // answered at least once
	last     bool  // the final answer has been given
	revision int64 // revision of the last known answer; 0 before the first answer
}

// answer replies to each question from another node whose answer has changed on this node.
func (n *node) answer(questions []engine.Stored) {
	t := n.current()
	if t == nil {
		n.answering = nil
		return
	}
	ctx, cancel := context.WithTimeout(n.life, n.reading.allow(settingsEvery, settingsFor)) // limited: a node with old settings starts nothing
	defer cancel()
	if n.answering == nil {
		n.answering = make(map[string]*inquiry)
	}
	open := make(map[string]bool)
	for _, q := range n.asked(questions, t.id) {
		open[q.id] = true
		i := n.answering[q.id]
		if i == nil {
			i = &inquiry{about: n.handlings.watch(q.Question.about(), q.Question.Cancel), cancel: q.Question.Cancel}
			n.answering[q.id] = i
		}
		if i.last {
			continue
		}
		r := n.handlings.reply(i.about, i.cancel)
		if i.answered && r.Running {
			continue
		}
		if err := n.reply(ctx, t.id, q, i, r); err != nil {
			n.failed(t, err)
			return
		}
	}
	maps.DeleteFunc(n.answering, func(id string, _ *inquiry) bool { return !open[id] })
}
