// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Question is about the runs of a key, or about all runs that match a filter. A node sends it to the other nodes
// through the engine.
type Question struct {
	Key    []byte  `json:"key,omitempty"` // as bytes, because JSON changes text that is not UTF-8
	Cancel bool    `json:"cancel,omitempty"`
	All    *Filter `json:"all,omitempty"` // in place of Key, and only with Cancel
}

// A Filter selects tasks whose state does not matter. A task must match all fields that are set.
type Filter struct {
	Repeating bool   `json:"repeating,omitempty"`
	Prefix    []byte `json:"prefix,omitempty"` // bytes, as in Question
	Kind      []byte `json:"kind,omitempty"`
	Group     []byte `json:"group,omitempty"`
	Failure   []byte `json:"failure,omitempty"`
}

// about returns a function that reports whether the question is about a task.
func (q Question) about() func(*task.Record) bool {
	if q.All == nil {
		return func(r *task.Record) bool { return r.Key == string(q.Key) }
	}
	return q.All.suits
}

func (f *Filter) suits(r *task.Record) bool {
	return strings.HasPrefix(r.Key, string(f.Prefix)) && (len(f.Kind) == 0 || string(f.Kind) == r.Kind) &&
		(len(f.Group) == 0 || string(f.Group) == r.Group) && (!f.Repeating || r.Repeats()) && FailsWith(r, string(f.Failure))
}

// FailsWith reports whether the text is a part of the task's last error, or that error as GroupText returns it.
func FailsWith(r *task.Record, text string) bool {
	return text == "" || strings.Contains(r.Failure(), text) || GroupText(r.Failure()) == text
}

// A reply is a node's answer.
type reply struct {
	Ran        bool   `json:"ran,omitempty"`
	Runs       int    `json:"runs,omitempty"` // number of runs that were cancelled
	Running    bool   `json:"running,omitempty"`
	Generation uint64 `json:"generation,omitempty"` // generation of the running task
	Seq        uint64 `json:"seq,omitempty"`
}

// reply returns the reply to a question about the handlings. A run that was cancelled before its start counts.
func (r *handlings) reply(some []*Run, cancelled bool) reply {
	if cancelled {
		return reply{Ran: len(some) > 0, Runs: len(some)}
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

// Inquire asks the workers of this node and, through the engine, all other nodes.
func (n *Node) Inquire(ctx context.Context, q Question) (runs int, err error) {
	if err := n.enter(); err != nil {
		return 0, err
	}
	defer n.verbs.Leave()
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
			err.(*RunningError).Node = n.cfg.Name
			return runs, err
		}
	}
	elsewhere, err := n.await(ctx, asked)
	return runs + elsewhere, err
}

// await waits until all other nodes have given their final answers to a question, and returns the number of runs that
// they reported.
func (n *Node) await(ctx context.Context, q *asked) (runs int, err error) {
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
				return runs, nil
			}
		} else if ctx.Err() == nil {
			n.trouble(err)
		}
		timer.Reset(askEvery)
	}
}

// stillRunning returns the error of a question that was abandoned for the given reason. running describes a run that
// has not ended, or is nil if no such run is known.
func stillRunning(running error, reason error) error {
	if e, ok := running.(*RunningError); ok {
		e.Err = reason
		return e
	}
	return NotAnswered(reason)
}

// NotAnswered returns the error of a question that was abandoned for the given reason before every node has answered.
func NotAnswered(reason error) error {
	return fmt.Errorf("durable: not every node has answered: %w", reason)
}

// judgeAnswers returns the number of runs that the answers report, and whether all answers are final. If a run has not
// ended, the error running describes it.
func judgeAnswers(answers []answer, key string) (runs int, last bool, running error) {
	last = true
	for _, a := range answers {
		runs += max(a.Runs, one(a.Ran))
		last = last && a.given && !a.Running
		if a.Running {
			running = &RunningError{Token: task.Token{Key: key, Generation: a.Generation, Seq: a.Seq}, Node: a.node}
		}
	}
	return runs, last, running
}

// An inquiry is the state that this node keeps for another node's question.
type inquiry struct {
	about    []*Run // the matching handlings when the question was read
	cancel   bool
	answered bool  // answered at least once
	last     bool  // the final answer has been given
	revision int64 // revision of the last known answer; 0 before the first answer
}

// answer replies to each question from another node whose answer has changed on this node.
func (n *Node) answer(questions []engine.Stored) {
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
