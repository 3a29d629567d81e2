// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// ErrCancelled is the cause of the context of a run that [Scheduler.Cancel] has cancelled.
var ErrCancelled = errors.New("durable: the run was cancelled")

// A RunningError is the error of RemoveTaskWait for a run that has not ended in time. It wraps the error of ctx,
// or ErrStopped.
type RunningError struct {
	Token
	Node string // on which it is running; empty on a store
	err  error
}

func (e *RunningError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("durable: %q is removed and still running: %v", e.Key, e.err)
	}
	return fmt.Sprintf("durable: %q is removed and still running on node %q: %v", e.Key, e.Node, e.err)
}

func (e *RunningError) Unwrap() error { return e.err }

// RemoveTaskWait removes the task with the key, as RemoveTask does, and returns when no run of the key is in
// progress any more, on whatever node. It reports whether one was. It also waits for the runs of tasks that had
// the key before, and not for those of a task that is added with the key meanwhile. [Scheduler.Cancel]
// beforehand makes the wait shorter.
//
// If there is neither a task nor a run in progress, the error wraps ErrTaskKeyNotFound. If ctx is done before a
// run has ended, the error is a [*RunningError] that says which, and where. If it is done before every node has
// answered, and none has named a run, the error wraps that of ctx alone. The task is removed in both cases. It
// may still be there only if ctx is done earlier: then the error is that of RemoveTask. A further call waits
// for the same runs.
//
// A run on a node whose lease has run out counts as ended when the node has been reaped, and one on a node that
// was shut down when the node has left. The context of such a run is done, but a handler that ignores it may
// still be running. On an engine the answer of another node takes up to half a second, and a wait ends after
// twelve hours. A handler or an observer that calls RemoveTaskWait with its own key waits for itself, until ctx
// is done.
func (s *Scheduler) RemoveTaskWait(ctx context.Context, key string) (ran bool, err error) {
	removed := s.RemoveTask(ctx, key)
	if removed != nil && !errors.Is(removed, ErrTaskKeyNotFound) {
		return false, removed
	}
	if ran, err = s.below.inquire(ctx, question{Key: []byte(key)}); err != nil || ran {
		return ran, stopped(err, "RemoveTaskWait", key)
	}
	return false, removed
}

// Cancel cancels the contexts of the runs of the key that are in progress, on whatever node, with
// ErrCancelled as the cause. It reports whether there was one, and does not wait for its end. A run that is
// about to start counts: if it starts, its context is done from the beginning. What the handler returns
// decides, as ever: after an error the run is tried again. To end it for good, remove the task:
// [Scheduler.RemoveTaskWait] after Cancel. A task that waits, also for its next attempt, has no run in
// progress: Cancel reports false and changes nothing. To keep it from running, use RemoveTask or Pause. On an
// engine the answer of another node takes up to half a second. A node that does not answer within its lease
// is not waited for once it has been reaped. After an error, other nodes may still cancel the runs that they
// find when they read the question.
func (s *Scheduler) Cancel(ctx context.Context, key string) (ran bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ran, err = s.below.inquire(ctx, question{Key: []byte(key), Cancel: true})
	return ran, stopped(err, "Cancel", key)
}

// A question is about the runs of a key. A node leaves it with the others.
type question struct {
	Key    []byte `json:"key"` // as bytes, for JSON changes text that is not UTF-8
	Cancel bool   `json:"cancel,omitempty"`
}

// A reply is what a node answers.
type reply struct {
	Ran        bool   `json:"ran,omitempty"`
	Running    bool   `json:"running,omitempty"`
	Generation uint64 `json:"generation,omitempty"` // of the one that is running
	Seq        uint64 `json:"seq,omitempty"`
}

// reply looks at what a question is about. A run that was cancelled before its start counts as one.
func (r *handlings) reply(some []*handling, cancelled bool) reply {
	if cancelled {
		return reply{Ran: len(some) > 0}
	}
	ran, running := r.look(some)
	if running == nil {
		return reply{Ran: ran}
	}
	return reply{Ran: ran, Running: true, Generation: running.of.rec.generation, Seq: running.of.rec.seq}
}

func (k *keeper) inquire(ctx context.Context, q question) (ran bool, err error) {
	some := k.handlings.watch(string(q.Key), q.Cancel)
	if q.Cancel {
		select {
		case <-k.ended:
			return false, ErrStopped
		default:
		}
		return len(some) > 0, nil
	}
	return k.handlings.wait(ctx, k.ended, some)
}

const (
	// askEvery is how often it is looked whether there is an answer, or a run that is asked after has ended.
	askEvery = 100 * time.Millisecond

	// askFor is how long the answers are waited for. An engine keeps a question longer than that.
	askFor = 12 * time.Hour
)

// inquire asks the workers of this node and, through the engine, all others.
func (n *node) inquire(ctx context.Context, q question) (ran bool, err error) {
	if !n.verbs.enter() {
		return false, ErrStopped
	}
	defer n.verbs.leave()
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	some := n.handlings.watch(string(q.Key), q.Cancel)
	data, err := json.Marshal(q)
	if err != nil {
		return false, err
	}
	var by MemberID
	if t := n.current(); t != nil {
		by = t.id
	}
	id, err := n.engine.Ask(ctx, by, data)
	if err != nil {
		return false, n.unavailable(ctx, err)
	}
	defer n.forgetQuestion(id)
	if q.Cancel {
		ran = len(some) > 0
	} else if ran, err = n.handlings.wait(ctx, n.asks.Done(), some); err != nil {
		err.(*RunningError).Node = n.cfg.name
		return ran, err
	}
	elsewhere, err := n.await(ctx, id, string(q.Key))
	return ran || elsewhere, err
}

// forgetQuestion ends a question. The engine keeps one that is not ended for a day.
func (n *node) forgetQuestion(id int64) {
	ctx, cancel := n.callContext()
	defer cancel()
	_ = n.engine.Forget(ctx, id)
}

// await returns when all other nodes have given their last answer to a question.
func (n *node) await(ctx context.Context, id int64, key string) (ran bool, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var running error // what one has answered last
	for {
		select {
		case <-timer.C:
		case <-n.asks.Done():
			return ran, stillRunning(running, ErrStopped)
		case <-ctx.Done():
			return ran, stillRunning(running, ctx.Err())
		}
		answers, err := n.answers(ctx, id)
		if err == nil {
			var last bool
			if ran, last, running = judgeAnswers(answers, key, ran); last {
				return ran, nil
			}
		} else if ctx.Err() == nil {
			n.trouble(err)
		}
		timer.Reset(askEvery)
	}
}

// answers reads the answers to a question. A node that is no member reaps first: there may be no other that does.
func (n *node) answers(ctx context.Context, id int64) ([]Answer, error) {
	if n.client {
		if _, err := n.engine.Reap(ctx); err != nil {
			return nil, err
		}
	}
	return n.engine.Answers(ctx, id)
}

// stillRunning returns the error of a question that was given up for a reason. running is the run that has not ended,
// or nil if there is none that is known.
func stillRunning(running error, reason error) error {
	if e, ok := running.(*RunningError); ok {
		e.err = reason
		return e
	}
	return fmt.Errorf("durable: not every node has answered: %w", reason)
}

// judgeAnswers reports whether a handler was called, whether all answers are the last ones, and else a run that has
// not ended, if one is known.
func judgeAnswers(answers []Answer, key string, ran bool) (_, last bool, running error) {
	last = true
	for _, a := range answers {
		var r reply
		_ = json.Unmarshal(a.Data, &r) // what it does not know is no answer
		ran = ran || r.Ran
		last = last && a.Last
		if r.Running && !a.Last {
			running = &RunningError{Token: Token{key, r.Generation, r.Seq}, Node: a.Name}
		}
	}
	return ran, last, running
}

// An inquiry is a question of another node.
type inquiry struct {
	about    []*handling // at the question
	cancel   bool
	answered bool // once at least
}

// answer answers what other nodes have asked, as far as there is something new.
func (n *node) answer() {
	t := n.current()
	if t == nil {
		n.answering = nil
		return
	}
	ctx, cancel := context.WithTimeout(n.life, settingsEvery) // a node that does not know what is paused starts nothing
	defer cancel()
	asked, err := n.engine.Asked(ctx, t.id)
	if err != nil {
		n.failed(t, err)
		return
	}
	if n.answering == nil {
		n.answering = make(map[int64]*inquiry)
	}
	open := make(map[int64]bool)
	for _, a := range asked {
		open[a.ID] = true
		i := n.answering[a.ID]
		if i == nil {
			var q question
			_ = json.Unmarshal(a.Data, &q) // one that is not understood is about no run here
			i = &inquiry{about: n.handlings.watch(string(q.Key), q.Cancel), cancel: q.Cancel}
			n.answering[a.ID] = i
		}
		r := n.handlings.reply(i.about, i.cancel)
		last := !r.Running
		if i.answered && !last {
			continue
		}
		data, err := json.Marshal(r)
		if err == nil {
			err = n.engine.Answer(ctx, t.id, a.ID, Answer{Data: data, Last: last})
		}
		if err != nil {
			n.failed(t, err)
			return
		}
		i.answered = true
	}
	maps.DeleteFunc(n.answering, func(id int64, _ *inquiry) bool { return !open[id] })
}
