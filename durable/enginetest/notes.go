// SPDX-License-Identifier: MIT

package enginetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// noteOf returns a write that puts a note.
func noteOf(name, data string, cond engine.Condition) engine.Write {
	return engine.Write{Record: engine.Record{Key: name, Data: []byte(data)}, If: cond, Note: true}
}

func deleteNote(name string, cond engine.Condition) engine.Write {
	return engine.Write{Record: engine.Record{Key: name}, If: cond, Note: true}
}

// notes returns the notes whose names are not less than from.
func (s *subject) notes(from string) []engine.Stored {
	s.t.Helper()
	return s.walk(engine.Range{Order: engine.Notes, From: from})
}

// note returns the note with the given name. The note must exist.
func (s *subject) note(name string) engine.Stored {
	s.t.Helper()
	all := s.notes(name)
	if len(all) == 0 || all[0].Key != name {
		s.t.Fatalf("there is no note %.20q", name)
	}
	return all[0]
}

// notesAre fails the test unless the notes whose names are not less than from are those in want, each formatted as its
// name and data.
func (s *subject) notesAre(from string, want ...string) {
	s.t.Helper()
	var got []string
	for _, n := range s.notes(from) {
		if n.Due != 0 || n.Kind != "" || n.Group != "" || n.Owner != 0 || n.Starts != 0 || n.Started != 0 || n.Revision <= 0 {
			s.t.Errorf("a note is %+v", n)
		}
		got = append(got, n.Key+": "+string(n.Data))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("the notes from %.20q on are %.300q, want %.300q", from, got, want)
	}
}

// Notes can be put, replaced and deleted, including those with the longest allowed names and data and with unusual
// bytes.
func notes(s *subject) {
	s.notesAre("")
	w := noteOf("b", "first", engine.IfAbsent)
	first := s.write(0, w)
	if first.Replaced || first.Held || first.Revision <= 0 {
		s.t.Errorf("putting a note has written %+v", first)
	}
	copy(w.Data, "xxxxx")
	s.notesAre("", "b: first")
	copy(s.note("b").Data, "yyyyy")
	s.notesAre("", "b: first")
	if got := s.note("b").Revision; got != first.Revision {
		s.t.Errorf("the note has the revision %d, and was put at %d", got, first.Revision)
	}
	second := s.write(s.join("a", long), noteOf("b", "second", engine.Always))
	if !second.Replaced || second.Held || second.Revision <= first.Revision {
		s.t.Errorf("replacing a note at %d has written %+v", first.Revision, second)
	}
	s.write(0, noteOf("a", "", engine.Always)) // empty, but present
	s.write(0, noteOf("c", "\x00\xff", engine.Always))
	s.notesAre("", "a: ", "b: second", "c: \x00\xff")
	s.notesAre("b", "b: second", "c: \x00\xff")
	s.notesAre("b\x00", "c: \x00\xff")
	s.notesAre("d")
	for _, over := range []engine.Range{{From: "a", To: "c"}, {To: "b\x00"}, {From: "b", To: "b\x00"}} {
		for _, over.Bare = range []bool{false, true} {
			var want []string
			for _, n := range []string{"a: ", "b: second", "c: \x00\xff"} {
				name, data, _ := strings.Cut(n, ": ")
				if over.Bare {
					data = ""
				}
				if name >= over.From && name < over.To {
					want = append(want, name+": "+data)
				}
			}
			var got []string
			over.Order = engine.Notes
			for _, n := range s.walk(over) {
				got = append(got, n.Key+": "+string(n.Data))
			}
			if !slices.Equal(got, want) {
				s.t.Errorf("the notes of %+v are %q, want %q", over, got, want)
			}
		}
	}
	if done := s.write(0, deleteNote("b", engine.IfPresent)); !done.Replaced {
		s.t.Errorf("deleting a note has written %+v", done)
	}
	s.notesAre("", "a: ", "c: \x00\xff")
	if again := s.write(0, noteOf("b", "again", engine.IfAbsent)); again.Revision <= second.Revision {
		s.t.Errorf("a note that was deleted has the revision %d, and had %d", again.Revision, second.Revision)
	}

	names := slices.Sorted(slices.Values(append(odd, strings.Repeat("\xff", engine.MaxNoteName))))
	for _, name := range names {
		s.write(0, noteOf(name, name, engine.Always))
	}
	for i, name := range names {
		if got := s.note(name); string(got.Data) != name {
			s.t.Errorf("the note %.20q has %.20q", name, got.Data)
		}
		if i > 0 && s.notes(names[i-1] + "\x00")[0].Key > name {
			s.t.Errorf("the note %.20q is left out", name)
		}
	}
	for _, n := range s.notes("") {
		s.write(0, deleteNote(n.Key, engine.IfPresent))
	}
	longest := noteOf("longest", "", engine.Always)
	longest.Data = bytes.Repeat([]byte{0, 0xff}, engine.MaxNote/2)
	s.write(0, longest)
	if got := s.note("longest"); !bytes.Equal(got.Data, longest.Data) {
		s.t.Errorf("the longest note has %d bytes", len(got.Data))
	}
	tooLong := longest
	tooLong.Data = append(slices.Clone(longest.Data), 0)
	onlyATask := noteOf("n", "x", engine.Always)
	for what, w := range map[string]engine.Write{
		"no name":          noteOf("", "x", engine.Always),
		"too long a name":  noteOf(strings.Repeat("n", engine.MaxNoteName+1), "x", engine.Always),
		"too much data":    tooLong,
		"no condition":     noteOf("n", "x", 0),
		"a due time":       func() engine.Write { w := onlyATask; w.Due = 1; return w }(),
		"a kind":           func() engine.Write { w := onlyATask; w.Kind = kind; return w }(),
		"a group":          of("g", onlyATask),
		"a holder":         held(onlyATask),
		"a failed attempt": fail(onlyATask),
	} {
		if _, err := s.Commit(s.ctx, 0, []engine.Batch{{w}}); err == nil {
			s.t.Errorf("a note with %s is accepted", what)
		}
	}
	if all := s.notes(""); len(all) != 1 {
		s.t.Errorf("there are %d notes, want one", len(all))
	}
}

// Every condition is tested on writes that put and writes that delete, with and without an existing note.
func noteConditions(s *subject) {
	for _, c := range conditionCases {
		for _, deletes := range []bool{false, true} {
			s.write(0, deleteNote("n", engine.Always))
			w, before, want := noteOf("n", "new", c.cond), []string(nil), []string{"n: new"}
			if c.present {
				w.Revision = s.write(0, noteOf("n", "old", engine.IfAbsent)).Revision
				before = []string{"n: old"}
				if c.stale {
					s.write(0, noteOf("n", "old", engine.Always))
				}
			}
			if deletes {
				w.Data, want = nil, nil
			}
			if !c.holds {
				want = before
			}
			r := s.commit(0, w)
			if (len(r.Unmet) == 0) != c.holds || !c.holds && r.Unmet[0] != "n" {
				s.t.Errorf("%s, deletes %v: the result is %+v", c.name, deletes, r)
			}
			s.notesAre("", want...)
		}
	}
}

// A note's name may equal a task's key. Walks, counts and claims of tasks do not include notes.
func notesAreNoTasks(s *subject) {
	id := s.join("a", long)
	s.write(0, noteOf("k", "note", engine.IfAbsent))
	s.absent("k")
	s.write(0, add("k", 1))
	s.write(0, noteOf("only", "note", engine.IfAbsent))
	s.commits(0, engine.Batch{noteOf("k", "changed", engine.IfPresent)}, engine.Batch{put("k", 2, engine.IfPresent)})
	s.is("k", put("k", 2, 0))
	s.notesAre("", "k: changed", "only: note")
	s.order(engine.ByKey, "", "k")
	s.order(engine.Failing, "")
	if n := s.len(); n != 1 {
		s.t.Errorf("there are %d tasks, want 1", n)
	}
	if got := s.due(engine.Position{Due: engine.None}, ahead); keys(got) != `"k" ` {
		s.t.Errorf("due are %s", keys(got))
	}
	if got := s.claimOf(id, []string{"", kind}, engine.None, ahead, 10); keys(got) != `"k" ` {
		s.t.Errorf("claimed are %s", keys(got))
	}
	if got := s.claimed(id); keys(got) != `"k" ` {
		s.t.Errorf("held are %s", keys(got))
	}
	if s.confirm(id, engine.Claim{Key: "only", Revision: s.note("only").Revision})[0] {
		s.t.Error("a note is confirmed as a start")
	}
	s.check(s.Leave(s.ctx, id))
	s.write(0, remove("k"))
	s.notesAre("", "k: changed", "only: note")
}

// A batch of notes is atomic. It cannot contain tasks.
func notesInBatches(s *subject) {
	s.write(0, noteOf("there", "old", engine.IfAbsent))
	results := s.commits(0,
		engine.Batch{noteOf("a", "1", engine.IfAbsent), noteOf("there", "new", engine.IfAbsent)},
		engine.Batch{noteOf("b", "1", engine.IfAbsent), noteOf("c", "1", engine.Always)},
		engine.Batch{add("a", 1), add("b", 1)},
		engine.Batch{noteOf("none", "1", engine.IfPresent)},
	)
	var unmet [][]string
	for _, r := range results {
		unmet = append(unmet, r.Unmet)
	}
	if got := fmt.Sprint(unmet); got != "[[there] [] [] [none]]" {
		s.t.Errorf("unmet are %s", got)
	}
	s.notesAre("", "b: 1", "c: 1", "there: old")
	s.is("a", add("a", 1))
	for what, batches := range map[string][]engine.Batch{
		"a batch of a note and a task":      {{noteOf("x", "1", engine.Always), add("y", 1)}},
		"a batch of a task and a note":      {{add("y", 1), noteOf("x", "1", engine.Always)}},
		"two writes of a note in a batch":   {{noteOf("x", "1", engine.Always), noteOf("x", "2", engine.Always)}},
		"two writes of a note in a commit":  {{noteOf("x", "1", engine.Always)}, {noteOf("x", "2", engine.Always)}},
		"two writes of a task in a commit":  {{add("y", 1)}, {add("y", 1)}},
		"a write of a task, and two a note": {{add("y", 1)}, {noteOf("x", "1", engine.Always)}, {noteOf("x", "2", engine.Always)}},
	} {
		if _, err := s.Commit(s.ctx, 0, batches); err == nil {
			s.t.Errorf("%s is accepted", what)
		}
	}
	s.notesAre("", "b: 1", "c: 1", "there: old")
	s.absent("y")
}

// A walk yields all notes, however many there are.
func manyNotes(s *subject) {
	var batch, removes engine.Batch
	var want []string
	for _, name := range s.keysOf("n", 2500) {
		batch = append(batch, noteOf(name, name, engine.IfAbsent))
		removes = append(removes, deleteNote(name, engine.IfPresent))
		want = append(want, name+": "+name)
	}
	slices.Reverse(batch)
	s.commit(0, batch...)
	s.notesAre("", want...)
	s.notesAre(batch[0].Key, want[2499])
	for n, err := range s.Walk(s.ctx, engine.Range{Order: engine.Notes}) {
		s.check(err)
		s.write(0, noteOf("after "+n.Key, "a walk that was broken off", engine.Always))
		break
	}
	s.commit(0, removes...)
	if all := s.notes("n"); len(all) != 0 {
		s.t.Errorf("there are %d notes, want none", len(all))
	}
}

// If several writers write a note at the same revision, exactly one succeeds, and no successful write is lost.
func noteOfSeveral(s *subject) {
	const each, of = 10, 4
	s.write(0, noteOf("n", "", engine.IfAbsent))
	all(times(of, func(i int) {
		for n := 0; n < each; {
			was := s.note("n")
			w := noteOf("n", string(was.Data)+string(rune('a'+i)), engine.IfUnchanged)
			w.Revision = was.Revision
			if len(s.commit(0, w).Unmet) == 0 {
				n++
			}
		}
	})...)
	got := s.note("n").Data
	for i := range of {
		if n := bytes.Count(got, []byte{byte('a' + i)}); n != each {
			s.t.Errorf("%d of the writes of one are there, want %d", n, each)
		}
	}
	var mu sync.Mutex
	won := 0
	all(times(of, func(int) {
		r := s.commit(0, noteOf("new", "x", engine.IfAbsent))
		mu.Lock()
		defer mu.Unlock()
		won += 1 - len(r.Unmet)
	})...)
	if won != 1 {
		s.t.Errorf("%d of %d writers have added the note", won, of)
	}
}
