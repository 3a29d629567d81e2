// SPDX-License-Identifier: MIT

package pebble_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A power cut may lose the watermark too. Then damage in the last log is noticed except in its last commit, which looks
// as if the power cut had torn it.
func TestPebble_powerCutAndDamage_losesTheLastCommitAtMost(t *testing.T) {
	const commits = 40
	mem := vfs.NewCrashableMem()
	s, err := openOn(mem)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(11)
	if err := h.commit(s, commits); err != nil {
		t.Fatal(err)
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := left.List("store")
	if err != nil {
		t.Fatal(err)
	}
	var log string
	var whole []byte
	for _, name := range names {
		if data := readFile(t, left, "store/"+name); fileClass(name) == "log" && "store/"+name > log {
			log, whole = "store/"+name, data
		}
		if fileClass(name) == "COMMITTED" && strings.Count(string(readFile(t, left, "store/"+name)), ".log 0 0 ") != 2 {
			t.Fatal("the watermark has outlived the power cut: this test tests nothing")
		}
	}
	noticed, last := 0, 0
	for at := 0; at < len(whole); at += 1 + len(whole)/60 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		copied := vfs.NewMem()
		if err := copied.MkdirAll("store", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			writeFile(t, copied, "store/"+name, readFile(t, left, "store/"+name))
		}
		writeFile(t, copied, log, damaged)
		s, err := openOn(copied)
		if errors.Is(err, engine.ErrCorrupt) {
			noticed++
			writeFile(t, copied, log, whole)
			wantOpened(t, copied, h, commits)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(s)
		if !h.is(all, commits) && !h.is(all, commits-1) {
			t.Errorf("a bit of byte %d of %d is flipped: there are %d records, %v", at, len(whole), len(all), err)
		}
		last++
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d noticed, %d in the last commit", noticed, last)
	if noticed < last {
		t.Errorf("%d damages were noticed, and %d were not", noticed, last)
	}
}
