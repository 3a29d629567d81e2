// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed581295f1/timewheel/durable"
)

// doKeys changes the tasks with the keys. After an error that concerns only one key, it continues with the other keys.
func (p *program) doKeys(ctx context.Context, s scheduler, d *deed, keys []string, asJSON bool) error {
	n := 0
	var undone []error // joined once: to join each with those before costs their square
	for some := range slices.Chunk(keys, max(d.atOnce, 1)) {
		if err := ctx.Err(); err != nil { // a store would still answer
			undone = append(undone, err)
			break
		}
		errs := make([]error, len(some))
		var all sync.WaitGroup
		for i, key := range some {
			all.Go(func() { errs[i] = d.toKey(ctx, s, key) })
		}
		all.Wait()
		broken := false
		for _, err := range errs {
			var running *durable.RunningError
			switch {
			case err == nil:
				n++
			case errors.As(err, &running): // the task was removed
				n++
				undone = append(undone, fmt.Errorf("run %s: %w", quoteText(running.Token.String()), err))
			case !broken:
				undone = append(undone, err)
				broken = !errors.Is(err, durable.ErrTaskKeyNotFound) && !errors.Is(err, errLeftAlone) &&
					!errors.Is(err, errNoAnswer) // this error concerns all keys
			}
		}
		if broken {
			break
		}
	}
	if n > 0 {
		undone = append(undone, p.report(d, n, asJSON))
	}
	return errors.Join(undone...)
}

var (
	errLeftAlone = errors.New("left alone") // the deed does not apply to tasks in that state
	errNoAnswer  = errors.New("no answer")  // a node did not report whether it runs the task
)

func (d *deed) toKey(ctx context.Context, s scheduler, key string) error {
	if d.only != durable.AnyState || d.not != durable.AnyState {
		i, ok, err := s.Get(ctx, key)
		switch {
		case err != nil:
			return err
		case !ok:
			return noTask(key)
		case d.only != durable.AnyState && d.only != i.State:
			return fmt.Errorf("%w: task %s is not %s, but %s", errLeftAlone, quoteText(key), d.only, i.State)
		case d.not == i.State:
			return fmt.Errorf("%w: task %s is %s", errLeftAlone, quoteText(key), i.State)
		}
	}
	err := d.one(s, ctx, key)
	if errors.Is(err, durable.ErrTaskKeyNotFound) {
		return noTask(key)
	}
	return err
}
