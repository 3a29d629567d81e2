// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// WithOnFailure adds a task when a task of the kind is parked, or gives up a run (see [WithRetry]). Use it to raise an alarm, or to
// undo earlier steps. The task is added in the commit that parks the other one, so there is one for each time, whatever crashes
// meanwhile.
//
// about returns the new task. It gets the failed task as it is afterwards: in the state Parked unless a run was given up, with the
// payload, and with the last errors in Info.Failed. The new task's key should be one that no other task has, such as one from the
// failed task's Token: a task with the same key is replaced. Its kind must have a handler or be declared, and may be the same kind. It cannot have Once. A task without a key is
// not added. If about panics, or the task is invalid or too large for the engine, the failed task is parked nevertheless, and an
// error is logged. The run occupies its worker until about returns.
func WithOnFailure(about func(failed Info) Task) KindOption {
	return func(k *kind) error {
		if about == nil {
			return errors.New("durable: the function for failures is nil")
		}
		k.onFailure = about
		return nil
	}
}

// also returns the task that is added when a task of the kind is parked or gives up a run: see Also of node.Result.
func (k *kind) also(failed *task.Record) (add func(now int64) *task.Record) {
	if k.onFailure == nil {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			k.tell.report.Unadded(failed.Key, errors.New(explain(func() string { return fmt.Sprint("WithOnFailure panicked: ", value) })))
			add = nil
		}
	}()
	added := k.onFailure(infoOf(failed, k.tell.now()))
	if added.Key == "" {
		return nil
	}
	tasks := []Task{added}
	_, err := check(k.all, tasks)
	switch {
	case err != nil:
	case added.Once != "":
		err = fmt.Errorf("%w: it has Once", ErrInvalidTask)
	case added.Key == failed.Key:
		err = fmt.Errorf("%w: it has the key of the failed task", ErrInvalidTask)
	}
	if err != nil {
		k.tell.report.Unadded(failed.Key, err)
		return nil
	}
	return func(now int64) *task.Record { return recordsOf(k.all, tasks)(now)[0] }
}
