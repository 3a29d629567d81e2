// SPDX-License-Identifier: MIT

package pebble_test

import (
	"archive/zip"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A program of format 2 made the store in testdata/format2.zip, with three tasks of each sort, and crashed while some
// of them were running. It has completed "done" and removed "removed".
var format2Tasks = map[string]durable.Info{
	"scheduled": {Kind: "note", Payload: []byte("payload"), Times: 1, State: durable.Scheduled},
	"retrying":  {Kind: "fail", Payload: []byte("payload"), Times: 1, State: durable.Retrying, Attempts: 1},
	"parked":    {Kind: "park", Times: 1, State: durable.Parked, Attempts: 1},
	"running":   {Kind: "hang", Times: 1, State: durable.Waiting},
	"counted":   {Kind: "hang", Times: 3, State: durable.Waiting, Interval: 24 * time.Hour},
	"repeating": {Kind: "note", Times: durable.Forever, State: durable.Scheduled, Interval: century, Seq: 1},
}

const century = 876_000 * time.Hour

// unzip unpacks a store into a directory and returns its name.
func unzip(t *testing.T, name string) string {
	t.Helper()
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(dir, z); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The tasks of a program of format 2 are all there, in their old state, and counted, whatever happens to the process
// that opens the store. Tasks that were running run again with the same token, and failed ones are found.
func TestOpen_format2_losesNothing(t *testing.T) {
	dir := unzip(t, "testdata/format2.zip")
	var s *durable.Scheduler
	reopen := func() {
		t.Helper()
		var err error
		if s != nil {
			err = s.Shutdown(ctx)
		}
		if err == nil {
			s, err = newScheduler(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var tokens map[string]durable.Token // of the tasks that must run
	reopen()
	for life := range 2 {
		tokens = is(t, s, format2Tasks)
		if life == 0 {
			reopen()
		}
	}

	var mu sync.Mutex
	ran := map[string]durable.Token{}
	for _, kind := range []string{"note", "fail", "park", "hang"} {
		err := s.Handle(kind, func(_ context.Context, run durable.Run) error {
			mu.Lock()
			defer mu.Unlock()
			if _, again := ran[run.Key]; again || run.Attempt != 1 {
				t.Errorf("%s runs again, or in attempt %d", run.Key, run.Attempt)
			}
			ran[run.Key] = run.Token
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for s.Stats().Succeeded < uint64(len(tokens)) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v", s.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Pause(ctx, "scheduled0"); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(ctx, "scheduled0"); err != nil {
		t.Fatal(err)
	}
	later := maps.Clone(format2Tasks)
	delete(later, "running")
	counted := later["counted"]
	counted.State, counted.Times, counted.Seq = durable.Scheduled, 2, 1
	later["counted"] = counted
	is(t, s, later)
	reopen()
	is(t, s, later)
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !maps.Equal(ran, tokens) {
		t.Errorf("these ran: %v, want %v", ran, tokens)
	}
}

// is fails the test unless the scheduler has three tasks of each sort. It returns the tokens of the waiting tasks.
func is(t *testing.T, s *durable.Scheduler, sorts map[string]durable.Info) map[string]durable.Token {
	t.Helper()
	tokens := map[string]durable.Token{}
	states := map[durable.State][]string{}
	counts := map[string]durable.KindCounts{}
	for sort, want := range sorts {
		for i := range 3 {
			key := fmt.Sprint(sort, i)
			got, ok, err := s.Get(ctx, key)
			if err != nil || !ok {
				t.Fatalf("%s: %v, %v", key, ok, err)
			}
			failure := ""
			if want.Attempts > 0 {
				failure = fmt.Sprintf("order %s is gone", key)
			}
			if got.Kind != want.Kind || string(got.Payload) != string(want.Payload) || got.Interval != want.Interval ||
				got.Times != want.Times || got.Seq != want.Seq || got.State != want.State ||
				got.Attempts != want.Attempts || got.Failure != failure || got.Generation == 0 ||
				got.Parked != got.Next.IsZero() {
				t.Errorf("%s is %+v, want %+v", key, got, want)
			}
			if got.State == durable.Waiting {
				tokens[key] = durable.Token{Key: key, Generation: got.Generation, Seq: got.Seq}
			}
			states[want.State] = append(states[want.State], key)
			c := counts[want.Kind]
			c.Kind = want.Kind
			c.Tasks++
			if want.Attempts > 0 {
				c.Failing++
			}
			if want.State == durable.Parked {
				c.Parked++
			}
			counts[want.Kind] = c
		}
	}
	census, err := s.Counts(ctx) // failing tasks are found when all keys have been walked over
	deadline := time.Now().Add(time.Minute)
	for err == nil && !census.Whole && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
		census, err = s.Counts(ctx)
	}
	got := map[string]durable.KindCounts{}
	for _, c := range census.Kinds {
		got[c.Kind] = c
	}
	if err != nil || !maps.Equal(got, counts) || s.Len() != 3*len(sorts) {
		t.Errorf("the census is %+v, %v, and there are %d tasks, want %+v", census, err, s.Len(), counts)
	}
	for _, state := range durable.States() {
		want := states[state]
		slices.Sort(want)
		var keys []string
		found, err := s.Find(ctx, durable.Query{State: state, For: time.Minute})
		for _, i := range found.Tasks {
			keys = append(keys, i.Key)
		}
		slices.Sort(keys)
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("%v are %q, %v, want %q", state, keys, err, want)
		}
	}
	groups, err := s.Failures(ctx)
	texts := []string{}
	for _, g := range groups.Groups {
		texts = append(texts, fmt.Sprint(g.Kind, " ", g.Text, " ", g.Tasks, " ", g.Parked))
	}
	slices.Sort(texts)
	want := "fail order retrying# is gone 3 0, park order parked# is gone 3 3"
	if got := strings.Join(texts, ", "); err != nil || got != want {
		t.Errorf("what fails is %s, %v, want %s", got, err, want)
	}
	return tokens
}
