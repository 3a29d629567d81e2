// SPDX-License-Identifier: MIT

package pebble_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestOperate(t *testing.T) {
	suite.TestOperate(t, func(t *testing.T, opts ...durable.Option) []*durable.Scheduler {
		store, err := pebble.Open(filepath.Join(t.TempDir(), "store"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := durable.New(store, append(opts, durable.WithLogger(testkit.Quiet()))...)
		if err != nil {
			t.Fatal(err)
		}
		return []*durable.Scheduler{s}
	})
}

// Records of a task that has not failed and of one that has, as written by programs of format 2.
func format2Records(t *testing.T) (fine, failing []byte) {
	t.Helper()
	fine, err := hex.DecodeString("0105000200c8010000046b696e6400")
	failing, err2 := hex.DecodeString("0105000200c8010100046b696e6403776879")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return fine, failing
}

// A store of format 2 loses nothing, and its failing tasks are found once all keys have been walked over, whatever
// changes until then.
func TestOpen_format2_findsWhatFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := pebble.OpenFormat2(dir)
	if err != nil {
		t.Fatal(err)
	}
	fine, failing := format2Records(t)
	const tasks = 3000
	model := make(map[string]engine.Record)
	var changes []engine.Change
	for i := range tasks {
		c := engine.Change{Key: fmt.Sprintf("k%04d", i), From: engine.None, Due: int64(i % 97), Data: fine}
		if i%2 == 0 {
			c.Data = failing
		}
		changes = append(changes, c)
		model[c.Key] = engine.Record{Key: c.Key, Due: c.Due, Data: c.Data}
	}
	if err := errors.Join(s.Commit(changes), s.Close()); err != nil {
		t.Fatal(err)
	}
	reopen := func() {
		t.Helper()
		if s, err = pebble.Open(dir); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	if text, err := os.ReadFile(filepath.Join(dir, "FORMAT")); !strings.HasPrefix(string(text), "timewheel/durable 4\n") {
		t.Errorf("the format is %q, %v", text, err)
	}
	commit := func(key string, next *engine.Change) {
		t.Helper()
		was := model[key]
		c := engine.Change{Key: key, From: was.Due, Due: engine.None, WasFailing: len(was.Data) == len(failing)}
		delete(model, key)
		if next != nil {
			c.Due, c.Data, c.Failing = next.Due, next.Data, next.Failing
			model[key] = engine.Record{Key: key, Due: c.Due, Data: c.Data}
		}
		if err := s.Commit([]engine.Change{c}); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: there are %d, want %d", what, len(got), len(want))
		}
	}
	check := func() {
		t.Helper()
		var want, fails []string
		for _, key := range slices.Sorted(maps.Keys(model)) {
			line := fmt.Sprint(key, model[key].Due, model[key].Data)
			want = append(want, line)
			if len(model[key].Data) == len(failing) {
				fails = append(fails, line)
			}
		}
		for name, c := range map[string]struct{ got, want []string }{
			"ByKey": {lines(t, s.ByKey("")), want}, "Failing": {lines(t, s.Failing("")), fails},
		} {
			same(name, c.got, c.want)
		}
	}
	for range s.Keys() {
		break // the next process does it from the beginning
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopen()
	n := 0
	for _, err := range s.Keys() {
		if err != nil {
			t.Fatal(err)
		}
		switch n++; { // before the walk, and behind it
		case n%100 == 1:
			commit(fmt.Sprintf("k%04d", n-1), nil)
			commit(fmt.Sprintf("k%04d", tasks-n), &engine.Change{Due: 5, Data: failing, Failing: true})
		case n%100 == 51:
			commit(fmt.Sprintf("k%04d", n-1), &engine.Change{Due: model[fmt.Sprintf("k%04d", n-1)].Due, Data: fine})
			commit(fmt.Sprintf("k%04d", tasks-n), &engine.Change{Due: 98, Data: failing, Failing: true})
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopen()
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func lines(t *testing.T, walk func(yield func(engine.Record, error) bool)) (all []string) {
	t.Helper()
	for r, err := range walk {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(r.Key, r.Due, r.Data))
	}
	return all
}
