// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// An onEngine is an engine on the kv in a directory, with the methods of a store. So the tests of a store's files are
// also tests of the kv's.
type onEngine struct {
	engine.Engine
	verified chan struct{}
}

// A verifying is a kv that shows when its tasks have been verified.
type verifying struct {
	exclusiveKV
	verified chan struct{}
}

type exclusiveKV interface {
	engine.KV
	engine.Exclusive
	engine.Verifier
	engine.FailureReporter
	io.Closer
}

func (v verifying) Verified() {
	v.exclusiveKV.Verified()
	close(v.verified)
}

// openOnEngine opens an engine on the kv in the folder.
func openOnEngine(dir string, files vfs.FS) (engine.Store, error) {
	on, err := pebble.OpenKVOn(dir, files)
	if err != nil {
		return nil, err
	}
	v := verifying{on.(exclusiveKV), make(chan struct{})}
	e, err := kv.New(context.Background(), v)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return &onEngine{e, v.verified}, nil
}

func (s *onEngine) Commit(changes []engine.Change) error {
	var batch engine.Batch
	for _, c := range changes {
		w := engine.Write{Record: engine.Record{Key: c.Key}, Kind: "kind", If: engine.IfPresent, Failing: c.Failing}
		if c.From == engine.None {
			w.If = engine.IfAbsent
		}
		if c.Due != engine.None {
			w.Due, w.Data = c.Due, append([]byte{}, c.Data...)
		}
		batch = append(batch, w)
	}
	results, err := s.Engine.Commit(context.Background(), 0, []engine.Batch{batch})
	if err == nil && results[0].Unmet != nil {
		err = errors.New("the store has other tasks")
	}
	return err
}

func (s *onEngine) Get(key string) (r engine.Record, ok bool, err error) {
	found, err := s.Engine.Get(context.Background(), key)
	if err != nil || len(found) == 0 {
		return r, false, err
	}
	return found[0].Record, true, nil
}

func (s *onEngine) walk(over engine.Range) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		for task, err := range s.Walk(context.Background(), over) {
			if !yield(task.Record, err) {
				return
			}
		}
	}
}

func (s *onEngine) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	return s.walk(engine.Range{Order: engine.ByDue, After: after, Until: until})
}

func (s *onEngine) ByKey(from string) iter.Seq2[engine.Record, error] {
	return s.walk(engine.Range{Order: engine.ByKey, From: from})
}

func (s *onEngine) Failing(from string) iter.Seq2[engine.Record, error] {
	return s.walk(engine.Range{Order: engine.Failing, From: from})
}

// Keys walks over all keys, and then waits until the engine has verified the tasks or has failed.
func (s *onEngine) Keys() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for r, err := range s.ByKey("") {
			if !yield(r.Key, err) {
				return
			}
		}
		select {
		case <-s.verified:
		case <-s.failing().Failed():
			yield("", s.failing().Err())
		}
	}
}

func (s *onEngine) failing() engine.FailureReporter { return s.Engine.(engine.FailureReporter) }

func (s *onEngine) Len() int { return s.Engine.(interface{ Len() int }).Len() }

func (s *onEngine) Settings() ([]byte, error) { return nil, nil }

func (s *onEngine) SetSettings([]byte) error { return nil }

func (s *onEngine) Close() error { return s.Engine.(io.Closer).Close() }
