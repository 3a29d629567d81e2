// SPDX-License-Identifier: MIT

package postgres

import (
	"context"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// Ask leaves a question with the members. See engine.Engine.
func (e *Engine) Ask(ctx context.Context, by engine.MemberID, question []byte) (id int64, err error) {
	if err := valid.Question(question); err != nil {
		return 0, err
	}
	err = e.verbs.QueryRow(ctx, e.sql.ask, by, question).Scan(&id)
	return id, explain("ask", err)
}

// Asked returns the questions for a member. See engine.Engine.
func (e *Engine) Asked(ctx context.Context, by engine.MemberID) (all []engine.Question, err error) {
	rows, err := e.control.Query(ctx, e.sql.asked, by)
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[engine.Question])
	}
	return all, explain("read questions", err)
}

// Answer answers a question. See engine.Engine.
func (e *Engine) Answer(ctx context.Context, by engine.MemberID, id int64, a engine.Answer) error {
	if err := valid.Answer(a.Data); err != nil {
		return err
	}
	_, err := e.control.Exec(ctx, e.sql.answer, by, id, a.Data, a.Last)
	return explain("answer", err)
}

// Answers returns the answers to a question. See engine.Engine.
func (e *Engine) Answers(ctx context.Context, id int64) (all []engine.Answer, err error) {
	rows, err := e.verbs.Query(ctx, e.sql.answers, id)
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[engine.Answer])
	}
	return all, explain("read answers", err)
}

// Forget ends a question. See engine.Engine.
func (e *Engine) Forget(ctx context.Context, id int64) error {
	_, err := e.verbs.Exec(ctx, e.sql.forget, id)
	return explain("forget a question", err)
}
