// SPDX-License-Identifier: MIT

package memengine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// An asked question is kept until it is forgotten, or for keepQuestions.
type asked struct {
	at      int64
	data    []byte
	answers map[engine.MemberID]engine.Answer // of the members that were asked
}

const keepQuestions = 24 * time.Hour

func (e *Engine) Ask(ctx context.Context, by engine.MemberID, question []byte) (id int64, err error) {
	if err := valid.Question(question); err != nil {
		return 0, err
	}
	if err := e.lock(ctx); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	now := e.now()
	for old, q := range e.questions {
		if now-q.at > int64(keepQuestions) {
			delete(e.questions, old)
		}
	}
	q := &asked{at: now, data: slices.Clone(question), answers: make(map[engine.MemberID]engine.Answer)}
	for m := range e.members {
		if m != by {
			q.answers[m] = engine.Answer{}
		}
	}
	e.revision++
	e.questions[e.revision] = q
	return e.revision, nil
}

func (e *Engine) Asked(ctx context.Context, by engine.MemberID) (all []engine.Question, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if e.members[by] == nil {
		return nil, nil
	}
	for id, q := range e.questions {
		if a, ok := q.answers[by]; ok && !a.Last {
			all = append(all, engine.Question{ID: id, Data: slices.Clone(q.data)})
		}
	}
	slices.SortFunc(all, func(a, b engine.Question) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func (e *Engine) Answer(ctx context.Context, by engine.MemberID, id int64, a engine.Answer) error {
	if err := valid.Answer(a.Data); err != nil {
		return err
	}
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	if q := e.questions[id]; q != nil {
		if old, ok := q.answers[by]; ok && !old.Last {
			q.answers[by] = engine.Answer{Data: slices.Clone(a.Data), Last: a.Last}
		}
	}
	return nil
}

func (e *Engine) Answers(ctx context.Context, id int64) (all []engine.Answer, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if q := e.questions[id]; q != nil {
		for by, a := range q.answers {
			if m := e.members[by]; m != nil {
				all = append(all, engine.Answer{Name: m.name, Data: slices.Clone(a.Data), Last: a.Last})
			}
		}
	}
	return all, nil
}

func (e *Engine) Forget(ctx context.Context, id int64) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	delete(e.questions, id)
	return nil
}
