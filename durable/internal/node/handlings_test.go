// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// The context of a run behaves like any other, whether it is first used before it is cancelled, after that, or after
// the run.
func TestRunContext_isAContext(t *testing.T) {
	type key struct{}
	parent, cancelParent := context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
	defer cancelParent(nil)
	var all handlings
	begin := func() (*Run, context.Context) {
		h := all.begin(newLive(&task.Record{Token: task.Token{Key: "k"}}, nil))
		return h, h.context(parent, time.Now())
	}
	is := func(what string, ctx context.Context, err, cause error) {
		t.Helper()
		done := false
		select {
		case <-ctx.Done():
			done = true
		default:
		}
		if done != (err != nil) || !errors.Is(ctx.Err(), err) || !errors.Is(context.Cause(ctx), cause) ||
			ctx.Value(key{}) != "value" {
			t.Errorf("%s it is done: %v, %v, because of %v", what, done, ctx.Err(), context.Cause(ctx))
		}
	}
	h, ctx := begin()
	is("at first", ctx, nil, nil)
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	all.watch(func(r *task.Record) bool { return r.Key == "other" }, true)
	is("when another is cancelled", ctx, nil, nil)
	all.watch(func(r *task.Record) bool { return r.Key == "k" }, true)
	is("cancelled", ctx, context.Canceled, ErrCancelled)
	is("cancelled, within", within, context.Canceled, ErrCancelled)
	all.end(h)
	is("cancelled, at the end", ctx, context.Canceled, ErrCancelled)

	h, ctx = begin()
	all.watch(func(r *task.Record) bool { return r.Key == "k" }, true)
	is("cancelled before it is used", ctx, context.Canceled, ErrCancelled)
	all.end(h)

	h, ctx = begin()
	all.end(h)
	is("used after the run", ctx, context.Canceled, context.Canceled)

	h, ctx = begin()
	is("with its parent", ctx, nil, nil)
	cancelParent(ErrFenced)
	is("with its parent that is done", ctx, context.Canceled, ErrFenced)
	all.end(h)
	if all.first != nil {
		t.Error("handlings are left")
	}
}

// Handlings may end in any order: a question still finds the others.
func TestHandlings_endInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var all handlings
		var begun []*Run
		for range order {
			begun = append(begun, all.begin(newLive(&task.Record{Token: task.Token{Key: "k"}}, nil)))
		}
		for n, i := range order {
			asked := all.watch(func(r *task.Record) bool { return r.Key == "k" }, false)
			if len(asked) != len(order)-n {
				t.Errorf("of %v, %d have ended, and %d are found", order, n, len(asked))
			}
			all.end(begun[i])
			if _, running := all.look([]*Run{begun[i]}); running != nil {
				t.Errorf("of %v, number %d is running after its end", order, i)
			}
			select {
			case <-begun[i].ended:
			default:
				t.Errorf("of %v, number %d has ended, and what waits is not told", order, i)
			}
		}
		if all.first != nil {
			t.Errorf("ended in the order %v, handlings are left", order)
		}
	}
}
