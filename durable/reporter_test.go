// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/sirupsen/logrus"
)

// Tasks parked for the same cause are logged with one line at once, and one line per ten seconds after that.
func TestLog_ofParkedTasks_isALineForACauseInTenSeconds(t *testing.T) {
	for name, open := range map[string]func(opts ...durable.Option) (*durable.Scheduler, error){
		"store": func(opts ...durable.Option) (*durable.Scheduler, error) {
			return durable.New(ctx, memory.New().Engine(), opts...)
		},
		"engine": func(opts ...durable.Option) (*durable.Scheduler, error) {
			return durable.New(ctx, memory.New().Shared(), opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				var mu sync.Mutex // protects lines
				var lines []string
				begin := time.Now()
				log := logrus.New()
				log.SetOutput(io.Discard)
				log.AddHook(callingHook(func(e *logrus.Entry) {
					mu.Lock()
					defer mu.Unlock()
					if strings.Contains(e.Message, "parked") {
						lines = append(lines, fmt.Sprintf("%d s: %s: %s %s", time.Since(begin)/time.Second,
							strings.TrimPrefix(e.Message, "durable: "), e.Data["kind"], e.Data["failure"]))
					}
				}))
				s := k.Use(open(durable.WithLogger(log))).Scheduler
				for kind, text := range map[string]string{"mail": "dial 10.0.0.%s: refused", "sms": "no credit"} {
					k.Must(s.Handle(kind, func(_ context.Context, run durable.Run) error {
						return errors.New(strings.Replace(text, "%s", string(run.Payload), 1))
					}, durable.WithRetry(1, time.Second, time.Second)))
				}
				k.Must(s.Start())
				n := 0
				add := func(kind string, tasks int, after, every time.Duration) {
					t.Helper()
					for i := range tasks {
						n++
						k.Must(s.AddTask(ctx, durable.Task{Key: fmt.Sprint(n), Kind: kind, Payload: []byte(fmt.Sprint(i)),
							Delay: after + time.Duration(i)*every - time.Since(begin)}))
					}
				}
				sec := time.Second
				add("mail", 93, sec+sec/2, 20*time.Millisecond) // until 3.34 s
				add("sms", 1, 4*sec+sec/2, 0)
				add("sms", 50, 6*sec, 0)
				add("mail", 7, 12*sec, sec/10)
				add("mail", 1, 40*sec+sec/2, 0)
				add("mail", 3, 42*sec, sec/10)
				k.After(time.Minute - 15*sec - time.Since(begin))
				if err := s.Shutdown(ctx); err != nil { // at 45 s
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				want := []string{
					"1 s: a task is parked: mail dial 10.0.0.0: refused",
					"4 s: a task is parked: sms no credit",
					"11 s: 92 more tasks parked within 10s, this one the last: mail dial 10.0.0.92: refused",
					"14 s: 50 more tasks parked within 10s, this one the last: sms no credit",
					"21 s: 7 more tasks parked within 10s, this one the last: mail dial 10.0.0.6: refused",
					"40 s: a task is parked: mail dial 10.0.0.0: refused",
					"45 s: 3 more tasks parked within 10s, this one the last: mail dial 10.0.0.2: refused",
				}
				if !slices.Equal(lines, want) {
					t.Errorf("the lines are\n%s\nand not\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
				}
				k.After(time.Minute)
				if len(lines) != len(want) {
					t.Errorf("after Shutdown it writes %q", lines[len(want):])
				}
			})
		})
	}
}
