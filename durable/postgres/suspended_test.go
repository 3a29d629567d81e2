// SPDX-License-Identifier: MIT

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// To a process, a suspension of its machine is an instant in which the server's clock advances. A delay that is given
// right after it, in a transaction or not, is not shorter.
func TestSuspended_delaysAreWhole(t *testing.T) {
	const delay, slept = 30 * time.Minute, time.Hour
	conn := connect(t, server(t))
	exec(t, conn, "CREATE TABLE suspended (ns bigint)")
	exec(t, conn, "INSERT INTO suspended VALUES (0)")
	ctx := t.Context()
	e := open(t, postgres.WithNow("((extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 + (SELECT ns FROM public.suspended))"))
	s, err := durable.New(ctx, e)
	check(t, err)
	defer func() { check(t, s.Shutdown(ctx)) }()
	check(t, s.Declare("kind"))
	tx, err := connect(t, server(t)).Begin(ctx)
	check(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	verbs := map[string]func(key string) error{
		"AddTask": func(key string) error { return s.AddTask(ctx, task(key, delay)) },
		"SetTask": func(key string) error { return s.SetTask(ctx, task(key, delay)) },
		"Reschedule": func(key string) error {
			check(t, s.AddTask(ctx, task(key, 1000*time.Hour)))
			exec(t, conn, fmt.Sprint("UPDATE suspended SET ns = ns + ", int64(slept)))
			return s.Reschedule(ctx, key, delay)
		},
		"AddTaskTx": func(key string) error { return e.AddTaskTx(ctx, tx, task(key, delay)) },
		"AddTaskTx of several": func(key string) error {
			return e.AddTaskTx(ctx, tx, task(key, delay), task(key+" again", delay))
		},
	}
	began := make(map[string]int64)
	for name, verb := range verbs {
		for i := range 5 {
			key := fmt.Sprint(name, " ", i)
			exec(t, conn, fmt.Sprint("UPDATE suspended SET ns = ns + ", int64(slept)))
			_, now, err := e.Renew(ctx, 0, nil)
			check(t, err)
			began[key] = now
			check(t, verb(key))
		}
	}
	check(t, tx.Commit(ctx))
	for key, at := range began {
		stored := get(t, e, key)
		if stored == nil {
			t.Errorf("%q was not added", key)
		} else if stored.Due < at+int64(delay) {
			t.Errorf("%q is due %v after the call", key, time.Duration(stored.Due-at))
		}
	}
}
