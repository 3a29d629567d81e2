// SPDX-License-Identifier: MIT

package pebble_test

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// A subject is an engine on a store, as Open returns it, with methods for tests. It shows when the tasks have been
// verified.
type subject struct {
	engine.Owned
	verified chan struct{}
}

// A verifying is a store that shows when its tasks have been verified.
type verifying struct {
	pebble.KV
	verified chan struct{}
}

func (v verifying) Verified() {
	v.KV.Verified()
	close(v.verified)
}

// openOn opens the store in the folder "store" of the file system. Its memory tables are small.
func openOn(files vfs.FS) (*subject, error) { return subjectOn(pebble.OpenOn("store", files)) }

// openSmall is openOn for a directory on disk.
func openSmall(dir string) (*subject, error) { return subjectOn(pebble.OpenSmall(dir)) }

// openIn opens the store in a directory on disk, as Open does.
func openIn(dir string) (*subject, error) { return subjectOn(pebble.OpenIn(dir)) }

func subjectOn(on pebble.KV, err error) (*subject, error) {
	if err != nil {
		return nil, err
	}
	verified := make(chan struct{})
	e, err := engineOn(verifying{on, verified})
	return &subject{e, verified}, err
}

func engineOn(on pebble.KV) (engine.Owned, error) {
	e, err := kv.New(context.Background(), on)
	if err != nil {
		return nil, errors.Join(err, on.Close())
	}
	return e.(engine.Owned), nil
}

// An unverified is a store whose process always ends before the tasks have been verified, unless they are verified
// first.
type unverified struct{ pebble.KV }

func (u unverified) Verified() {
	if u.VerifyFirst() {
		u.KV.Verified()
	}
}

func openUnverified(files vfs.FS) (*subject, error) {
	on, err := pebble.OpenOn("store", files)
	if err != nil {
		return nil, err
	}
	e, err := engineOn(unverified{on})
	return &subject{Owned: e}, err
}

// A change adds, replaces or deletes the task with a key.
type change struct {
	Key     string
	From    int64 // the due time of the task so far, or None
	Due     int64 // the due time of the task afterwards, or None
	Data    []byte
	Kind    string // or empty for any
	Failing bool
}

// Commit applies the changes atomically.
func (s *subject) Commit(changes []change) error {
	var batch engine.Batch
	for _, c := range changes {
		w := engine.Write{Record: engine.Record{Key: c.Key}, Kind: cmp.Or(c.Kind, "kind"), If: engine.IfPresent, Failing: c.Failing}
		if c.From == engine.None {
			w.If = engine.IfAbsent
		}
		if c.Due != engine.None {
			w.Due, w.Data = c.Due, append([]byte{}, c.Data...)
		}
		batch = append(batch, w)
	}
	results, err := s.Owned.Commit(context.Background(), 0, []engine.Batch{batch})
	if err == nil && results[0].Unmet != nil {
		err = errors.New("the store has other tasks")
	}
	return err
}

func (s *subject) Get(key string) (r engine.Record, ok bool, err error) {
	found, err := s.Owned.Get(context.Background(), key)
	if err != nil || len(found) == 0 {
		return r, false, err
	}
	return found[0].Record, true, nil
}

func (s *subject) walk(over engine.Range) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		for task, err := range s.Walk(context.Background(), over) {
			if !yield(task.Record, err) {
				return
			}
		}
	}
}

func (s *subject) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	return s.walk(engine.Range{Order: engine.ByDue, After: after, Until: until})
}

// Keys walks over all keys, and then waits until the engine has verified the tasks or has failed.
func (s *subject) Keys() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for r, err := range s.walk(engine.Range{Order: engine.ByKey}) {
			if !yield(r.Key, err) {
				return
			}
		}
		select {
		case <-s.verified:
		case <-s.Failed():
			yield("", s.Err())
		}
	}
}

func (s *subject) Len() int { return s.Owned.(interface{ Len() int }).Len() }
