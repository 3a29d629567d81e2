// SPDX-License-Identifier: MIT

package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A text can be written and read at the same time.
type text struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// The volume of an embedded store becomes full while tasks are added. It says so, ends, and has all that was
// acknowledged after a restart with room.
func TestScheduler_volumeFull(t *testing.T) {
	volume := testkit.SmallVolume(t, 60)
	dir := filepath.Join(volume, "tasks")
	e, err := pebble.Open(t.Context(), dir)
	must(t, err)
	said := &text{}
	log := logrus.New()
	log.SetOutput(said)
	s, source := newScheduler(t, e, durable.WithLogger(log))
	must(t, s.Handle("order", works), s.Start())
	putMany(t, s, 5, durable.Task{Key: "tick", Kind: "order", Interval: time.Second, Times: durable.Forever})
	handler := &restarted{}
	handler.with(dashboard.Handler([]dashboard.Source{source}))
	p := open(t, chrome(t), serve(t, handler), 1200, "light")
	p.until(`document.querySelector("#tasks-health .verdict")?.textContent.startsWith("Working: ")`)

	filler := testkit.Fill(t, volume, 3)
	acknowledged := 0
	payload := make([]byte, 10_000)
	testkit.Returns(t, "what adds tasks", func() {
		for err == nil {
			task := durable.Task{Key: fmt.Sprintf("order-%06d", acknowledged), Kind: "order", Delay: time.Hour, Payload: payload}
			if err = s.AddTask(context.Background(), task); err == nil {
				acknowledged++
			}
		}
	})
	if !errors.Is(err, durable.ErrBroken) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	p.says(`^The disk is full, and nothing has run( for \d+ s)? \(make room, then restart the process\): .*` + dir + `.*: no space left on device\.$`)
	p.sinceIsSaid("Waiting")
	p.picture("volume-full")
	testkit.Returns(t, "Shutdown", func() { _ = s.Shutdown(context.Background()) }) // its error is the old one
	for _, what := range []string{`time="20`, "level=error", "no further task is added, removed or run", dir, "no space left on device"} {
		if !strings.Contains(said.String(), what) {
			t.Errorf("the log is without %s\n%s", what, said)
		}
	}

	must(t, os.Remove(filler))
	e, err = pebble.Open(t.Context(), dir)
	must(t, err)
	s, source = newScheduler(t, e)
	ran := &runs{of: make(map[string]int)}
	must(t, s.Handle("order", ran.handle), s.Start())
	handler.with(dashboard.Handler([]dashboard.Source{source}))
	p.until(`document.querySelector("#tasks-health .verdict").textContent.startsWith("Working: ")`)
	for i := range acknowledged {
		if _, there, err := s.Get(t.Context(), fmt.Sprintf("order-%06d", i)); err != nil || !there {
			t.Errorf("of %d tasks that were acknowledged, task %d is gone: %v", acknowledged, i, err)
		}
	}
	await(p, func() bool { _, keys := ran.count(); return keys == 5 })
}
