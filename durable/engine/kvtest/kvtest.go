// SPDX-License-Identifier: MIT

// Package kvtest tests whether an [engine.KV] satisfies its contract. A KV's own test calls it:
//
//	func TestKV(t *testing.T) {
//		kvtest.Test(t, func(t *testing.T) engine.KV { return open(t) }) // an empty KV
//	}
//
// No test depends on the speed of the KV.
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Test runs the suite. It calls open for each test.
func Test(t *testing.T, open func(t *testing.T) engine.KV) {
	for _, c := range []struct {
		name     string
		test     func(s *subject)
		versions bool // whether the test needs checks and versions, which an exclusive KV may lack
	}{
		{"empty", empty, false},
		{"calls whose context is done", contextDone, false},
		{"any bytes", anyBytes, false},
		{"bounds of a scan", bounds, false},
		{"checks", checks, true},
		{"a transaction is whole or not", whole, true},
		{"transactions are independent", independent, true},
		{"versions only rise", versionsRise, true},
		{"bytes are copied", bytesCopied, false},
		{"one of many commits wins", oneWins, true},
		{"scan during changes", scanDuringChanges, false},
		{"limits", limits, false},
		{"clock", clock, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			s := &subject{KV: open(t), t: t, ctx: ctx}
			if s.unchecked = s.lacksChecks(); s.unchecked && c.versions {
				t.Skip("the KV is exclusive, and has no checks")
			}
			c.test(s)
		})
	}
}

type subject struct {
	engine.KV
	t         *testing.T
	ctx       context.Context
	unchecked bool
}

// lacksChecks reports whether the KV is exclusive and refuses checks.
func (s *subject) lacksChecks() bool {
	if _, ok := s.KV.(engine.Exclusive); !ok {
		return false
	}
	_, err := s.Commit(s.ctx, engine.Tx{If: []engine.Check{{Key: "a"}}})
	if err != nil && !errors.Is(err, engine.ErrNotDone) {
		s.t.Errorf("a transaction with a check is refused with %v", err)
	}
	return err != nil
}

func (s *subject) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// commit reports which of the transactions were applied.
func (s *subject) commit(txs ...engine.Tx) []bool {
	s.t.Helper()
	done, err := s.Commit(s.ctx, txs...)
	s.check(err)
	if len(done) != len(txs) {
		s.t.Fatalf("%d answers for %d transactions", len(done), len(txs))
	}
	return done
}

// put puts an entry and returns its version.
func (s *subject) put(key, value string) int64 {
	s.t.Helper()
	tx := put(key, value)
	if !s.commit(tx)[0] {
		s.t.Fatalf("a put of %q without a check is not done", key)
	}
	return tx.Put[0].Version
}

func put(key, value string, checks ...engine.Check) engine.Tx {
	return engine.Tx{If: checks, Put: []engine.Entry{{Key: key, Value: []byte(value)}}}
}

func (s *subject) delete(keys ...string) {
	s.t.Helper()
	if !s.commit(engine.Tx{Delete: keys})[0] {
		s.t.Fatalf("a deletion of %q without a check is not done", keys)
	}
}

// is checks that the keys have the wanted entries, formatted by say.
func (s *subject) is(keys []string, want ...string) {
	s.t.Helper()
	found, err := s.Get(s.ctx, keys...)
	s.check(err)
	if got := say(found); !slices.Equal(got, want) {
		s.t.Errorf("Get(%q) returns %q, want %q", keys, got, want)
	}
}

// scan checks that a scan yields the wanted entries.
func (s *subject) scan(from, to string, want ...string) {
	s.t.Helper()
	var found []engine.Entry
	for e, err := range s.Scan(s.ctx, from, to) {
		s.check(err)
		found = append(found, e)
	}
	if got := say(found); !slices.Equal(got, want) {
		s.t.Errorf("Scan(%q, %q) yields %q, want %q", from, to, got, want)
	}
}

func say(entries []engine.Entry) (said []string) {
	for _, e := range entries {
		said = append(said, e.Key+"="+string(e.Value))
	}
	return said
}

func empty(s *subject) {
	s.is([]string{"a", "\x00"})
	s.is(nil)
	s.scan("\x00", "\xff\xff")
	s.delete("a", "b")
	if done := s.commit(); len(done) != 0 {
		s.t.Errorf("a commit of nothing returns %v", done)
	}
	txs := []engine.Tx{{}}
	if !s.unchecked {
		txs = append(txs, engine.Tx{If: []engine.Check{{Key: "a"}}})
	}
	if done := s.commit(txs...); slices.Contains(done, false) {
		s.t.Errorf("of an empty transaction and one with a check alone done are %v", done)
	}
}

func contextDone(s *subject) {
	s.put("a", "1")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.Get(ctx, "a"); err == nil {
		s.t.Error("Get returns no error")
	}
	if _, err := s.Commit(ctx, put("a", "2")); err == nil {
		s.t.Error("Commit returns no error")
	}
	var err error
	for _, err = range s.Scan(ctx, "a", "b") {
		if err != nil {
			break
		}
	}
	if err == nil {
		s.t.Error("Scan yields no error")
	}
}

func anyBytes(s *subject) {
	keys := []string{"\x00", "\x00\x00", "\x01", " ", "%", "A", "a", "a\x00", "a\x00b", "ab", "a\u0308", "ä", "\xed\xa0\x80",
		"\xff", "\xff\x00", "\xff\xff", strings.Repeat("x", 3000)}
	slices.Sort(keys)
	var all []string
	for i, key := range keys {
		value := keys[len(keys)-1-i]
		if i == 3 {
			value = "" // an empty value is still a value
		}
		s.put(key, value)
		s.is([]string{key}, key+"="+value)
		all = append(all, key+"="+value)
	}
	s.is(keys, all...)
	s.scan("\x00", "\xff\xff\xff", all...)
	for i := range keys {
		s.scan(keys[i], keys[len(keys)-1], all[i:len(keys)-1]...)
	}
	slices.Reverse(keys)
	slices.Reverse(all)
	s.is(append(keys, "none"), all...)
}

func bounds(s *subject) {
	for _, key := range []string{"a", "b", "b\x00", "c"} {
		s.put(key, "1")
	}
	s.scan("a", "c", "a=1", "b=1", "b\x00=1")
	s.scan("b", "b\x00", "b=1")
	s.scan("b\x00", "c\x00", "b\x00=1", "c=1")
	s.scan("b", "b")
	s.scan("c", "a")
	for e, err := range s.Scan(s.ctx, "a", "z") { // a scan may be stopped early, and allows other calls
		s.check(err)
		s.delete(e.Key)
		break
	}
	s.scan("a", "c", "b=1", "b\x00=1")
}

func checks(s *subject) {
	absent := engine.Check{Key: "a"}
	done := func(tx engine.Tx, want bool) {
		s.t.Helper()
		if got := s.commit(tx)[0]; got != want {
			s.t.Errorf("%+v is done: %v", tx, got)
		}
	}
	done(put("a", "1", engine.Check{Key: "a", Version: 1 << 40}), false)
	done(put("a", "1", absent), true)
	done(put("a", "2", absent), false)
	found, err := s.Get(s.ctx, "a")
	s.check(err)
	first := engine.Check{Key: "a", Version: found[0].Version}
	done(put("b", "1", first), true) // the check is on a different entry
	done(put("a", "2", first), true)
	done(put("b", "2", first), false)
	done(engine.Tx{If: []engine.Check{first}, Delete: []string{"a"}}, false)
	s.is([]string{"a", "b"}, "a=2", "b=1")
	s.delete("a")
	done(put("a", "3", first), false)
	done(put("a", "3", engine.Check{Key: "b"}, absent), false)
	done(put("a", "3", absent, engine.Check{Key: "c"}), true)
	done(put("a", "4", first), false)
}

func whole(s *subject) {
	v := s.put("a", "1")
	tx := engine.Tx{
		If:     []engine.Check{{Key: "a", Version: v}, {Key: "b"}},
		Put:    []engine.Entry{{Key: "b", Value: []byte("2")}, {Key: "c", Value: []byte("3")}},
		Delete: []string{"a", "none"},
	}
	if !s.commit(tx)[0] || s.commit(tx)[0] {
		s.t.Error("the transaction is not done, or twice")
	}
	s.is([]string{"a", "b", "c"}, "b=2", "c=3")
	found, err := s.Get(s.ctx, "b", "c")
	s.check(err)
	for i, e := range found {
		if e.Version != tx.Put[i].Version || e.Version <= v {
			s.t.Errorf("Commit says that %q has the version %d, and it has %d", e.Key, tx.Put[i].Version, e.Version)
		}
	}
}

func independent(s *subject) {
	s.put("a", "1")
	got := s.commit(put("a", "2", engine.Check{Key: "a"}), put("b", "2", engine.Check{Key: "b"}),
		engine.Tx{If: []engine.Check{{Key: "a"}}, Delete: []string{"a"}}, put("c", "2"))
	if !slices.Equal(got, []bool{false, true, false, true}) {
		s.t.Errorf("done are %v", got)
	}
	s.scan("a", "z", "a=1", "b=2", "c=2")
	var many []engine.Tx
	for i := range 1000 {
		many = append(many, put(fmt.Sprintf("k%04d", i), "1", engine.Check{Key: fmt.Sprintf("k%04d", i)}))
	}
	if slices.Contains(s.commit(many...), false) || slices.Contains(s.commit(many...), true) {
		s.t.Error("a thousand transactions at once are not done once")
	}
}

// The version of an entry is greater than all earlier versions of its key and all versions committed before.
func versionsRise(s *subject) {
	var last int64
	of := make(map[string]int64)
	for i := range 30 {
		key := []string{"a", "b", "a", "c"}[i%4]
		v := s.put(key, "same")
		if v <= of[key] || v <= last {
			s.t.Errorf("the version of %q is %d; it was %d, and that of another was %d", key, v, of[key], last)
		}
		last, of[key] = v, v
		if i%3 == 0 {
			s.delete(key)
		}
	}
}

func bytesCopied(s *subject) {
	tx := put("a", "first")
	s.commit(tx)
	copy(tx.Put[0].Value, "xxxxx")
	found, err := s.Get(s.ctx, "a")
	s.check(err)
	copy(found[0].Value, "yyyyy")
	for e, err := range s.Scan(s.ctx, "a", "b") {
		s.check(err)
		copy(e.Value, "zzzzz")
	}
	s.is([]string{"a"}, "a=first")
}

// Of several commits at the same version, exactly one is applied, so no update is lost.
func oneWins(s *subject) {
	const callers, each = 8, 25
	s.put("a", "")
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			for n := 0; n < each; {
				found, err := s.Get(s.ctx, "a")
				if err != nil || len(found) != 1 {
					s.t.Errorf("Get returns %v, %v", found, err)
					return
				}
				check := engine.Check{Key: "a", Version: found[0].Version}
				done, err := s.Commit(s.ctx, put("a", string(found[0].Value)+string(rune('a'+i)), check))
				if err != nil {
					s.t.Error(err)
					return
				}
				if done[0] {
					n++
				}
			}
		})
	}
	wait.Wait()
	found, err := s.Get(s.ctx, "a")
	s.check(err)
	if n := len(found[0].Value); n != callers*each {
		s.t.Errorf("%d of %d writes are there", n, callers*each)
	}
}

// A scan yields each entry that exists throughout the scan once and in order, whatever else changes.
func scanDuringChanges(s *subject) {
	const n = 1000
	for i := range n {
		s.put(fmt.Sprintf("k%04d", i), "stays")
	}
	i, last := 0, ""
	for e, err := range s.Scan(s.ctx, "k", "l") {
		s.check(err)
		if e.Key <= last {
			s.t.Fatalf("%q comes after %q", e.Key, last)
		}
		last = e.Key
		if string(e.Value) == "stays" {
			if want := fmt.Sprintf("k%04d", i); e.Key != want {
				s.t.Fatalf("the scan yields %q, want %q", e.Key, want)
			}
			i++
		}
		if i%10 == 0 {
			s.put(fmt.Sprintf("k%04d-", (i*7)%n), "comes")
			s.delete(fmt.Sprintf("k%04d-", (i*3)%n))
		}
	}
	if i != n {
		s.t.Errorf("the scan yields %d of %d", i, n)
	}
}

func limits(s *subject) {
	l := s.Limits()
	if l != s.Limits() {
		s.t.Error("the limits change")
	}
	var large []engine.Tx
	if l.Value > 0 {
		s.put("a", strings.Repeat("v", l.Value))
		large = append(large, put("b", strings.Repeat("v", l.Value+1)))
	}
	if l.Operations > 0 {
		var tx engine.Tx
		for i := range l.Operations {
			tx.Put = append(tx.Put, engine.Entry{Key: fmt.Sprint("c", i)})
		}
		if !s.commit(tx)[0] {
			s.t.Errorf("a transaction of %d operations is not done", l.Operations)
		}
		tx.Delete = []string{"d"}
		large = append(large, tx)
	}
	for _, tx := range large {
		if _, err := s.Commit(s.ctx, tx); err == nil {
			s.t.Error("a transaction that is too large is accepted")
		}
	}
	s.is([]string{"b"})
}

func clock(s *subject) {
	c, ok := s.KV.(engine.Clock)
	if !ok {
		s.t.Skip("the KV has no clock")
	}
	var last int64
	for range 10 {
		now, up, err := c.Now(s.ctx)
		s.check(err)
		if now < last || up > now {
			s.t.Errorf("the clock is %d after %d, and the KV is up since %d", now, last, up)
		}
		last = now
	}
	if off := time.Until(time.Unix(0, last)); off.Abs() > 24*time.Hour {
		s.t.Errorf("the clock is %v off", off)
	}
}
