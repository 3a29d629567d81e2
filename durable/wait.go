// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// ErrCancelled is the cancellation cause of a run's context after [Scheduler.Cancel] has cancelled the run.
var ErrCancelled = node.ErrCancelled

// A RunningError is the error that RemoveTaskWait returns if a run has not ended in time. It wraps the context's error
// or ErrStopped.
type RunningError struct {
	Token
	Node string // the node on which the run is in progress
	err  error
}

func (e *RunningError) Error() string {
	return (&node.RunningError{Token: task.Token(e.Token), Node: e.Node, Err: e.err}).Error()
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
// may still be running. On an engine, another node may take half a second to answer, or three times that if it holds no task.
// The wait ends after twelve hours. A handler or observer that calls RemoveTaskWait with its own key waits until ctx is done.
func (s *Scheduler) RemoveTaskWait(ctx context.Context, key string) (ran bool, err error) {
	removed := s.node.Do(ctx, &node.Verb{What: node.ToRemove, Key: key, Size: MaxKey})
	if removed != nil && !errors.Is(removed, ErrTaskKeyNotFound) {
		return false, failed(removed, "RemoveTaskWait", key)
	}
	runs, err := s.node.Inquire(ctx, node.Question{Key: []byte(key)})
	if err != nil || runs > 0 {
		return runs > 0, failed(err, "RemoveTaskWait", key)
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
// On an engine, another node may take half a second to answer, or three times that if it holds no task. If a node does not
// answer, Cancel stops waiting for it once its lease has expired and it has been reaped. If Cancel returns an error, other
// nodes may still cancel the runs that they find when they read the request. A handler may cancel its own run: Cancel
// reports true, and the handler's context is done.
func (s *Scheduler) Cancel(ctx context.Context, key string) (ran bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	runs, err := s.cancelRuns(ctx, node.Question{Key: []byte(key), Cancel: true})
	return runs > 0, failed(err, "Cancel", key)
}

// cancelRuns cancels the runs that the question is about, on all nodes. If the caller is one of them, its context is then
// done, which does not end the wait for the other nodes.
func (s *Scheduler) cancelRuns(ctx context.Context, q node.Question) (runs int, err error) {
	waits, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ErrCancelled) {
			cancel()
		}
	})()
	runs, err = s.node.Inquire(waits, q)
	if err != nil && waits.Err() != nil {
		err = node.NotAnswered(ctx.Err())
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
	n, err = s.cancelRuns(ctx, node.Question{Cancel: true, All: &node.Filter{
		Repeating: q.Repeating, Prefix: []byte(q.Prefix), Kind: []byte(q.Kind), Group: []byte(q.Group), Failure: []byte(q.Failure),
	}})
	return n, err
}
