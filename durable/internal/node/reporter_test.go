// SPDX-License-Identifier: MIT

package node

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

type lineHook func(e *logrus.Entry)

func (lineHook) Levels() []logrus.Level       { return logrus.AllLevels }
func (h lineHook) Fire(e *logrus.Entry) error { h(e); return nil }
func parkedRecord(kind, failure string) *task.Record {
	return &task.Record{Token: task.Token{Key: "k"}, Kind: kind, Due: task.Never, Failed: []task.Failure{{Text: failure}}}
}

// However many tasks are parked and for however many causes, the number of lines is bounded, and they count all tasks.
func TestReporter_parkedTasks_ofManyCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		lines, tasks := 0, 0
		log.AddHook(lineHook(func(e *logrus.Entry) {
			n := 1
			_, _ = fmt.Sscanf(strings.TrimPrefix(e.Message, "durable: "), "%d", &n)
			lines++
			tasks += n
		}))
		r := &Reporter{log: log}
		word := func(i int) string { return strings.Repeat("x", i) }
		var batch []*task.Record
		for i := range 50 {
			batch = append(batch, parkedRecord("batch", fmt.Sprint(i)))
		}
		for _, rec := range batch {
			r.Ended(rec)
		}
		<-r.Written()
		if lines != 2 || tasks != 50 || len(r.recent) != 0 {
			t.Errorf("%d lines for %d tasks of one batch, and %d causes are kept", lines, tasks, len(r.recent))
		}
		lines, tasks = 0, 0
		for range 2 {
			for i := range 1000 {
				r.Ended(parkedRecord("kind", word(i)))
			}
		}
		time.Sleep(time.Minute)
		<-r.Written()
		if tasks != 2000 || lines > 2*(mostCauses+1) {
			t.Errorf("%d lines for %d tasks", lines, tasks)
		}
		if len(r.recent) != 0 {
			t.Errorf("%d causes are kept", len(r.recent))
		}
	})
}
