// SPDX-License-Identifier: MIT

package postgres_test

import (
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/postgres"
)

// notes returns the notes of the engine except the time, which a node stores at any moment.
func notes(t *testing.T, e engine.Engine) (all []string) {
	t.Helper()
	for note, err := range e.Walk(t.Context(), engine.Range{Order: engine.Notes}) {
		check(t, err)
		if note.Key != "time" {
			all = append(all, note.Key+"="+string(note.Data))
		}
	}
	return all
}

// Notes are read every half second. That reads little, however often they were written.
func TestNotes_writtenOften_areReadCheaply(t *testing.T) {
	e := open(t)
	for range 200 {
		commit(t, e, 0, note("a", strings.Repeat("x", 100)), note("pauses", strings.Repeat("y", 100)))
	}
	if n := readsOf(t, e, connect(t, shared.URL()), postgres.NotesSQL(e), []byte("a"), []byte{0xff}, false, 64); n > 16 {
		t.Errorf("to read the notes %d blocks are read", n)
	}
}
