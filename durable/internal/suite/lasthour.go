// SPDX-License-Identifier: MIT

package suite

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A node that shuts down leaves its last hour to the others. One that has run nothing leaves none.
func leavesItsLastHour(t *testing.T, k *kit.Kit) {
	begun := time.Now().Add(-time.Minute) // the clock of an engine may differ a little
	leaving, other := k.Nodes[0], k.Nodes[len(k.Nodes)-1]
	leaving.Handle("k", func(_ context.Context, run durable.Run) error {
		if run.Key == "fails" {
			return errNot
		}
		return nil
	}, durable.WithRetry(1, time.Second, time.Second))
	leaving.Add(durable.Task{Key: "a", Kind: "k"}, durable.Task{Key: "b", Kind: "k"}, durable.Task{Key: "fails", Kind: "k"})
	k.After(time.Second)
	if hours, err := other.LastHour(ctx); err != nil || len(hours) != 0 {
		t.Errorf("in the first minute the last hour is %+v, %v", hours, err)
	}
	if leaving == other {
		return
	}
	leaving.End()
	k.Nodes = k.Nodes[1:]
	k.Node = k.Nodes[0]
	hours, err := other.LastHour(ctx)
	if err != nil || len(hours) != 1 || len(hours[0].Kinds) != 1 {
		t.Fatalf("the last hour is %+v, %v", hours, err)
	}
	h := hours[0]
	if h.Started.Before(begun) || h.Ended.Before(h.Started) || h.Ended.After(begun.Add(3*time.Minute)) {
		t.Errorf("it has started at %v and ended at %v", h.Started, h.Ended)
	}
	var sum durable.KindMinute
	for _, m := range h.Kinds[0].Minutes {
		sum.Succeeded += m.Succeeded
		sum.Failed += m.Failed
	}
	if h.Kinds[0].Kind != "k" || sum != (durable.KindMinute{Succeeded: 2, Failed: 1}) {
		t.Errorf("%q has %+v", h.Kinds[0].Kind, sum)
	}
}

// BenchmarkLastHour measures how long the engine takes to write the note of a process with many busy kinds. A process does so
// once a minute, so the share of a core is at most that of the time.
func BenchmarkLastHour(b *testing.B, e engine.Engine) {
	note := engine.Write{Record: engine.Record{Key: "hour/benchmark"}, Note: true, If: engine.Always}
	line := []byte(`[59,9999,99,9999],[58,9998,98,9998],[57,9997,97,9997],`)
	i := 0
	for b.Loop() {
		i++
		note.Data = bytes.Repeat(line, 20<<10/len(line))
		note.Data[i%len(note.Data)] = '0'
		if _, err := e.Commit(b.Context(), 0, []engine.Batch{{note}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(i)/time.Minute.Seconds(), "%/core")
}
