// SPDX-License-Identifier: MIT

package enginetest

import (
	"bytes"
	"sync"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// settingsAre fails the test unless the engine has these settings at that revision.
func (s *subject) settingsAre(want []byte, revision int64) {
	s.t.Helper()
	got, is, err := s.Settings(s.ctx)
	if err != nil || !bytes.Equal(got, want) || is != revision {
		s.t.Errorf("the settings are %.40q at %d, %v, want %.40q at %d", got, is, err, want, revision)
	}
}

// set sets the settings at a revision, and fails the test unless that is done, or is not.
func (s *subject) set(settings []byte, revision int64, want bool) {
	s.t.Helper()
	if done, err := s.SetSettings(s.ctx, settings, revision); err != nil || done != want {
		s.t.Errorf("setting at revision %d is done: %v, %v", revision, done, err)
	}
}

func settings(s *subject) {
	s.settingsAre(nil, 0)
	s.set([]byte("early"), 1, false)
	s.settingsAre(nil, 0)
	given := []byte("first")
	s.set(given, 0, true)
	copy(given, "xxxxx")
	s.settingsAre([]byte("first"), 1)
	s.set([]byte("late"), 0, false)
	got, _, err := s.Settings(s.ctx)
	s.check(err)
	copy(got, "yyyyy")
	s.settingsAre([]byte("first"), 1)
	long := bytes.Repeat([]byte{0, 0xff}, engine.MaxSettings/2)
	s.set(long, 1, true)
	s.settingsAre(long, 2)
	for _, n := range []int{0, engine.MaxSettings + 1} {
		if _, err := s.SetSettings(s.ctx, make([]byte, n), 2); err == nil {
			s.t.Errorf("settings of %d bytes are accepted", n)
		}
	}
	s.settingsAre(long, 2)
}

// Of several that set the settings at the same revision one wins, and nothing that was set is lost.
func settingsAtOnce(s *subject) {
	const each, of = 10, 4
	var all sync.WaitGroup
	for i := range of {
		all.Go(func() {
			for n := 0; n < each; {
				was, revision, err := s.Settings(s.ctx)
				if err != nil {
					s.t.Error(err)
					return
				}
				done, err := s.SetSettings(s.ctx, append(was, byte('a'+i)), revision)
				if err != nil {
					s.t.Error(err)
					return
				}
				if done {
					n++
				}
			}
		})
	}
	all.Wait()
	got, revision, err := s.Settings(s.ctx)
	s.check(err)
	if len(got) != each*of || revision != each*of {
		s.t.Errorf("%d of %d writes are there, at revision %d", len(got), each*of, revision)
	}
	for i := range of {
		if n := bytes.Count(got, []byte{byte('a' + i)}); n != each {
			s.t.Errorf("%d of the writes of one are there, want %d", n, each)
		}
	}
}
