// SPDX-License-Identifier: MIT

// Package storetest tests whether an [engine.Store] satisfies its contract. A store's own test calls it:
//
//	func TestStore(t *testing.T) {
//		storetest.Test(t, func(t *testing.T) storetest.Open {
//			dir := t.TempDir()
//			return func() (engine.Store, error) { return mystore.Open(dir) }
//		})
//	}
package storetest

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
)

// An Open opens a store. The first call creates the store. Each later call reopens the same store after it has been
// closed.
type Open func() (engine.Store, error)

// Test runs the suite. For each test, it calls fresh, which returns a function that opens a new store.
func Test(t *testing.T, fresh func(t *testing.T) Open) {
	for name, test := range map[string]func(t *testing.T, s *subject){
		"empty":                         empty,
		"add, replace, delete":          addReplaceDelete,
		"keys of any bytes":             anyBytes,
		"due times of any sign":         anyDue,
		"due order":                     dueOrder,
		"walk from a position to a due": walkBounds,
		"walk that is broken off":       walkBrokenOff,
		"key order":                     keyOrder,
		"failing":                       failing,
		"walks as they were":            walksAsTheyWere,
		"keys as they were":             keysAsTheyWere,
		"what is given out is mine":     givenOut,
		"empty commit":                  emptyCommit,
		"large record":                  largeRecord,
		"reads beside commits":          readsBesideCommits,
		"random changes":                randomChanges,
		"second close":                  secondClose,
		"settings":                      settings,
		"notes":                         notes,
	} {
		t.Run(name, func(t *testing.T) {
			s := &subject{t: t, open: fresh(t), model: map[string]engine.Record{}, failing: map[string]bool{}}
			s.reopen()
			test(t, s)
			s.check()
			s.reopen() // the next process reads everything that was committed
			s.check()
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// A subject is the store under test, and a model of its expected contents.
type subject struct {
	engine.Store
	t     *testing.T
	open  Open
	model map[string]engine.Record

	failing map[string]bool // whether the model's record with the key is failing
}

func (s *subject) reopen() {
	s.t.Helper()
	if s.Store != nil {
		if err := s.Close(); err != nil {
			s.t.Fatalf("close: %v", err)
		}
	}
	store, err := s.open()
	if err != nil {
		s.t.Fatalf("open: %v", err)
	}
	s.Store = store
}

// put, fail and del return a change and apply it to the model.
func (s *subject) put(key string, due int64, data string) engine.Change {
	c := engine.Change{Key: key, From: s.due(key), Due: due, Data: []byte(data), WasFailing: s.failing[key]}
	s.model[key] = engine.Record{Key: key, Due: due, Data: []byte(data)}
	delete(s.failing, key)
	return c
}

func (s *subject) fail(key string, due int64, data string) engine.Change {
	c := s.put(key, due, data)
	c.Failing, s.failing[key] = true, true
	return c
}

func (s *subject) del(key string) engine.Change {
	c := engine.Change{Key: key, From: s.due(key), Due: engine.None, WasFailing: s.failing[key]}
	delete(s.model, key)
	delete(s.failing, key)
	return c
}

func (s *subject) due(key string) int64 {
	if r, ok := s.model[key]; ok {
		return r.Due
	}
	return engine.None
}

func (s *subject) commit(changes ...engine.Change) {
	s.t.Helper()
	if err := s.Commit(changes); err != nil {
		s.t.Fatalf("commit: %v", err)
	}
}

func same(a, b engine.Record) bool {
	return a.Key == b.Key && a.Due == b.Due && bytes.Equal(a.Data, b.Data)
}

func order(a, b engine.Record) int {
	switch {
	case a.Due < b.Due:
		return -1
	case a.Due > b.Due:
		return 1
	}
	return strings.Compare(a.Key, b.Key)
}

// sorted returns the model's records after the position that are due at or before until, in order.
func (s *subject) sorted(after engine.Position, until int64) []engine.Record {
	var all []engine.Record
	for r := range maps.Values(s.model) {
		if order(r, engine.Record{Key: after.Key, Due: after.Due}) > 0 && r.Due <= until {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, order)
	return all
}

// walk checks the records that the store yields for that range.
func (s *subject) walk(after engine.Position, until int64) {
	s.t.Helper()
	got := s.collect(s.Due(after, until))
	want := s.sorted(after, until)
	if !slices.EqualFunc(got, want, same) {
		s.t.Errorf("after %v until %d there are %d records, want %d:\n%v\n%v",
			after, until, len(got), len(want), brief(got), brief(want))
	}
}

// walkKeys checks the records that ByKey and Failing yield from the given key.
func (s *subject) walkKeys(from string) {
	s.t.Helper()
	var all, failing []engine.Record
	for _, key := range slices.Sorted(maps.Keys(s.model)) {
		if key < from {
			continue
		}
		all = append(all, s.model[key])
		if s.failing[key] {
			failing = append(failing, s.model[key])
		}
	}
	for name, c := range map[string]struct {
		walk iter.Seq2[engine.Record, error]
		want []engine.Record
	}{"ByKey": {s.ByKey(from), all}, "Failing": {s.Failing(from), failing}} {
		if got := s.collect(c.walk); !slices.EqualFunc(got, c.want, same) {
			s.t.Errorf("%s(%.20q) yields %d records, want %d:\n%v\n%v", name, from, len(got), len(c.want), brief(got),
				brief(c.want))
		}
	}
}

func (s *subject) collect(walk iter.Seq2[engine.Record, error]) (all []engine.Record) {
	s.t.Helper()
	for r, err := range walk {
		if err != nil {
			s.t.Fatalf("walk: %v", err)
		}
		all = append(all, r)
	}
	return all
}

func brief(all []engine.Record) string {
	var b strings.Builder
	for i, r := range all {
		if i == 20 {
			return b.String() + " …"
		}
		fmt.Fprintf(&b, " %d:%.20q", r.Due, r.Key)
	}
	return b.String()
}

var start = engine.Position{Due: engine.None}

// check compares everything that can be read from the store with the model.
func (s *subject) check() {
	s.t.Helper()
	if n := s.Len(); n != len(s.model) {
		s.t.Errorf("Len is %d, want %d", n, len(s.model))
	}
	s.walk(start, math.MaxInt64)
	s.walkKeys("")
	for key, want := range s.model {
		if r, ok, err := s.Get(key); err != nil || !ok || !same(r, want) {
			s.t.Errorf("Get(%.20q) = due %d, %v, %v, want due %d", key, r.Due, ok, err, want.Due)
		}
	}
	var keys []string
	for key, err := range s.Keys() {
		if err != nil {
			s.t.Fatalf("keys: %v", err)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if want := slices.Sorted(maps.Keys(s.model)); !slices.Equal(keys, want) {
		s.t.Errorf("there are the keys %.200q, want %.200q", keys, want)
	}
}

func (s *subject) absent(key string) {
	s.t.Helper()
	if r, ok, err := s.Get(key); ok || err != nil {
		s.t.Errorf("Get(%.20q) = %v, %v, %v, want none", key, r, ok, err)
	}
}

func empty(_ *testing.T, s *subject) { s.absent("k") }

func addReplaceDelete(_ *testing.T, s *subject) {
	s.commit(s.put("a", 10, "one"), s.put("b", 20, "two"), s.put("c", 30, "three"))
	s.check()
	s.commit(s.put("a", 25, "moved"), s.put("b", 20, "same place"), s.del("c"))
	s.check()
	s.absent("c")
	s.commit(s.del("a"), s.put("c", 5, "again"))
	s.check()
	s.reopen()
	s.commit(s.put("a", math.MaxInt64, "parked"), s.put("c", math.MaxInt64, ""))
	s.check()
	s.commit(s.put("a", 1, "runs"), s.del("b"))
}

func anyBytes(_ *testing.T, s *subject) {
	keys := []string{"\x00", "\x00\x00", "\xff", "\xff\xff", "a", "a\x00", "a\x00b", "ab", "ä", "k", "d", "m",
		"mlength", "key with\nlines", strings.Repeat("\xff", durable.MaxKey), strings.Repeat("x", durable.MaxKey)}
	var all []engine.Change
	for _, key := range keys {
		all = append(all, s.put(key, 7, "data of "+key))
	}
	s.commit(all...)
	s.check()
	s.absent("")
	s.absent("a\x00\x00")
	for _, key := range keys[:len(keys)/2] {
		s.commit(s.del(key))
		s.absent(key)
	}
}

func anyDue(_ *testing.T, s *subject) {
	for i, due := range []int64{
		engine.None + 1, -1 << 40, -256, -1, 0, 1, 255, 256, 1 << 62, math.MaxInt64 - 1, math.MaxInt64,
	} {
		s.commit(s.put(fmt.Sprint("k", i), due, fmt.Sprint(due)))
	}
	s.walk(start, -1)
	s.walk(engine.Position{Due: 0}, math.MaxInt64-1)
}

func dueOrder(_ *testing.T, s *subject) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var all []engine.Change
	for i := range 500 {
		all = append(all, s.put(fmt.Sprint("k", i), rnd.Int64N(50), fmt.Sprint(i)))
	}
	s.commit(all...)
}

func walkBounds(_ *testing.T, s *subject) {
	for _, key := range []string{"a", "b", "c"} {
		for due := range int64(4) {
			s.commit(s.put(fmt.Sprint(key, due), 10*due, key))
		}
	}
	for due := int64(-1); due <= 41; due++ {
		for _, key := range []string{"", "a0", "a1", "a1\x00", "b2", "c3", "z"} {
			for _, until := range []int64{due - 1, due, due + 1, due + 10, math.MaxInt64} {
				s.walk(engine.Position{Due: due, Key: key}, until)
			}
		}
	}
}

func walkBrokenOff(t *testing.T, s *subject) {
	for i := range int64(10) {
		s.commit(s.put(fmt.Sprint("k", i), i, ""))
	}
	var at engine.Position
	n := 0
	for r, err := range s.Due(start, math.MaxInt64) {
		if err != nil {
			t.Fatal(err)
		}
		if at, n = r.Position(), n+1; n == 4 {
			break
		}
	}
	s.commit(s.put("new", 2, "")) // behind the ended walk, which must neither block the commit nor yield the record
	s.walk(at, math.MaxInt64)
	for range s.Keys() {
		break
	}
}

func keyOrder(_ *testing.T, s *subject) {
	keys := []string{"\x00", "a", "a\x00", "a\x00b", "aa", "ab", "b", "ä", "\xff", "\xff\xff", "k", "f", "d", "m"}
	for i, key := range keys {
		s.commit(s.put(key, int64(100-i), key))
	}
	s.commit(s.fail("aa", 7, "failing"), s.fail("\xff", math.MaxInt64, "parked"))
	for _, key := range keys {
		for _, from := range []string{key, key + "\x00", key[:len(key)-1]} {
			s.walkKeys(from)
		}
	}
	for range s.ByKey("") {
		break
	}
}

// A record is failing from the change that sets Failing until the next change that does not, even if it is moved.
func failing(_ *testing.T, s *subject) {
	s.commit(s.put("a", 1, "one"), s.fail("b", 2, "two"), s.fail("c", 3, "three"), s.fail("d", 4, "four"))
	s.check()
	s.commit(s.fail("a", 1, "same place"), s.put("b", 2, "same place"), s.fail("c", 3, "again"), s.del("d"))
	s.check()
	s.reopen()
	s.commit(s.fail("a", 50, "moved"), s.fail("b", 60, "moved"), s.put("c", 70, "moved"), s.fail("d", 80, "back"))
	s.check()
	s.reopen()
	s.commit(s.fail("a", math.MaxInt64, "parked"), s.del("b"), s.fail("c", 1, "failing"))
	s.check()
	s.walkKeys("b")
	s.commit(s.put("a", 3, "runs"), s.put("b", 4, "another"))
}

func walksAsTheyWere(t *testing.T, s *subject) {
	s.commit(s.fail("a", 1, "1"), s.fail("b", 2, "2"), s.fail("c", 3, "3"))
	for name, walk := range map[string]iter.Seq2[engine.Record, error]{
		"Due": s.Due(start, math.MaxInt64), "ByKey": s.ByKey(""), "Failing": s.Failing(""),
	} {
		var got []string
		for r, err := range walk {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, r.Key+string(r.Data)); len(got) == 1 {
				s.commit(s.del("b"), s.put("c", 30, "4"), s.fail("d", 4, "5"))
			}
		}
		if !slices.Equal(got, []string{"a1", "b2", "c3"}) {
			t.Errorf("%s yields %q", name, got)
		}
		s.commit(s.fail("b", 2, "2"), s.fail("c", 3, "3"), s.del("d"))
	}
}

func keysAsTheyWere(t *testing.T, s *subject) {
	s.commit(s.put("a", 1, ""), s.put("b", 2, ""))
	keys := s.Keys()
	s.commit(s.del("a"), s.put("c", 3, ""), s.put("b", 9, ""))
	var got []string
	for key, err := range keys {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the keys as they were are %q", got)
	}
}

func givenOut(t *testing.T, s *subject) {
	data := []byte("data")
	s.commit(engine.Change{Key: "a", From: engine.None, Due: 1, Data: data})
	s.model["a"] = engine.Record{Key: "a", Due: 1, Data: []byte("data")}
	copy(data, "xxxx")
	s.check()
	r, _, err := s.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	copy(r.Data, "yyyy")
	s.check()
	for r := range s.Due(start, math.MaxInt64) {
		copy(r.Data, "zzzz")
	}
}

func emptyCommit(_ *testing.T, s *subject) {
	s.commit()
	s.commit(s.put("a", 1, ""))
	s.commit()
}

func largeRecord(_ *testing.T, s *subject) {
	data := strings.Repeat("0123456789abcdef", durable.MaxPayload/16)
	s.commit(s.put("large", 1, data), s.put("small", 2, ""))
	s.check()
	s.commit(s.put("large", 3, data[1:]))
}

// A commit is visible completely or not at all: its two records are equal in every read.
func readsBesideCommits(t *testing.T, s *subject) {
	s.commit(s.put("x", 0, "0"), s.put("y", 0, "0"))
	var wait sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				seen := map[string]string{}
				for r, err := range s.Due(start, math.MaxInt64) {
					if err != nil {
						t.Errorf("walk: %v", err)
						return
					}
					seen[r.Key] = string(r.Data)
				}
				if len(seen) != 2 || seen["x"] != seen["y"] {
					t.Errorf("half a commit is seen: %v", seen)
					return
				}
				if _, ok, err := s.Get("x"); !ok || err != nil {
					t.Errorf("a record that moves is not there: %v", err)
					return
				}
				_ = s.Len()
			}
		})
	}
	for i := range 2000 {
		n := fmt.Sprint(i)
		s.commit(s.put("x", int64(i%2), n), s.put("y", int64(i%3), n)) // moves both records back and forth
	}
	close(stop)
	wait.Wait()
}

func randomChanges(_ *testing.T, s *subject) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for round := range 60 {
		touched := map[string]bool{}
		var all []engine.Change
		for range rnd.IntN(20) {
			key := fmt.Sprint("k", rnd.IntN(40))
			if touched[key] {
				continue // a commit changes each key at most once
			}
			touched[key] = true
			if rnd.IntN(3) == 0 && s.due(key) != engine.None {
				all = append(all, s.del(key))
			} else {
				put := s.put
				if rnd.IntN(4) == 0 {
					put = s.fail
				}
				all = append(all, put(key, rnd.Int64N(30)-10, fmt.Sprint(round)))
			}
		}
		s.commit(all...)
		if round%10 == 0 {
			s.reopen()
		}
		s.check()
	}
}

func secondClose(t *testing.T, s *subject) {
	s.commit(s.put("a", 1, ""))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	s.Store = nil
	s.reopen()
}

// Settings outlive the process and are independent of the records.
func settings(t *testing.T, s *subject) {
	is := func(want string) {
		t.Helper()
		if got, err := s.Settings(); err != nil || string(got) != want {
			t.Errorf("the settings are %.40q, %v, want %.40q", got, err, want)
		}
	}
	set := func(text []byte) {
		t.Helper()
		if err := s.SetSettings(text); err != nil {
			t.Fatalf("SetSettings: %v", err)
		}
	}
	is("")
	s.commit(s.put("a", 1, "data"))
	given := []byte("first")
	set(given)
	copy(given, "xxxxx")
	is("first")
	got, err := s.Settings()
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "yyyyy")
	is("first")
	s.reopen()
	is("first")
	s.commit(s.put("b", 2, "data"), s.del("a"))
	long := bytes.Repeat([]byte{0, 0xff}, engine.MaxNote/2)
	set(long)
	s.check()
	s.reopen()
	is(string(long))
}

// The notes of a store that is an [engine.Noter] outlive the process and are independent of records and settings.
func notes(t *testing.T, s *subject) {
	noter, ok := s.Store.(engine.Noter)
	if !ok {
		return
	}
	set := func(notes ...engine.Record) {
		t.Helper()
		if err := noter.SetNotes(notes); err != nil {
			t.Fatalf("SetNotes: %v", err)
		}
	}
	are := func(over engine.Range, want ...string) {
		t.Helper()
		var got []string
		for note, err := range noter.Notes(over) {
			if err != nil {
				t.Fatalf("the notes of %+v: %v", over, err)
			}
			got = append(got, fmt.Sprintf("%s: %.20s", note.Key, note.Data))
			copy(note.Data, "yyyyy") // it is the caller's
		}
		if !slices.Equal(got, want) {
			t.Errorf("the notes of %+v are %q, want %q", over, got, want)
		}
	}
	note := func(name, data string) engine.Record { return engine.Record{Key: name, Data: []byte(data)} }
	are(engine.Range{})
	s.commit(s.put("b", 1, "data"))
	if err := s.SetSettings([]byte("settings")); err != nil {
		t.Fatal(err)
	}
	given := note("b", "first")
	set(note("c", "third"), given, note("d/\xff", ""))
	copy(given.Data, "xxxxx")
	all := []string{"b: first", "c: third", "d/\xff: "}
	are(engine.Range{}, all...)
	are(engine.Range{From: "b\x00"}, all[1:]...)
	are(engine.Range{From: "b", To: "c"}, all[0])
	are(engine.Range{From: "c", To: "e", Bare: true}, "c: ", "d/\xff: ")
	for range noter.Notes(engine.Range{}) {
		break
	}
	s.check()
	s.reopen()
	noter = s.Store.(engine.Noter)
	are(engine.Range{}, all...)
	set(engine.Record{Key: "b"}, note("c", "again"), engine.Record{Key: "nothing"})
	are(engine.Range{}, "c: again", all[2])
	s.commit(s.put("c", 2, "data"), s.del("b"))
	are(engine.Range{}, "c: again", all[2])
	if got, err := s.Settings(); err != nil || string(got) != "settings" {
		t.Errorf("the settings are %q, %v", got, err)
	}
	name := strings.Repeat("\xff", engine.MaxNoteName)
	set(engine.Record{Key: name, Data: bytes.Repeat([]byte{0, 0xff}, engine.MaxNote/2)})
	var done sync.WaitGroup
	done.Go(func() {
		for i := range 50 {
			s.commit(s.put(fmt.Sprint("beside ", i), int64(i), "data"))
		}
	})
	for i := range 50 {
		set(note("n", fmt.Sprint(i)))
	}
	done.Wait()
	are(engine.Range{From: "n", To: "o"}, "n: 49")
	n := 0
	for long, err := range noter.Notes(engine.Range{From: name}) {
		if n++; err != nil || len(long.Data) != engine.MaxNote {
			t.Errorf("the longest note has %d bytes, %v", len(long.Data), err)
		}
	}
	if n != 1 {
		t.Errorf("%d notes with the longest name", n)
	}
}
