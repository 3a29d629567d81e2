// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// The notes of the program follow the others, on the page of a scheduler and in the overview, as long as the program returns
// them. A scheduler that was shut down has none.
func TestWithNotes_showsWhatTheProgramSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		var notes atomic.Pointer[[]Note]
		notes.Store(new([]Note))
		h := Handler([]Source{Scheduler("tasks", s, nil).WithNotes(func() []Note { return *notes.Load() })})
		time.Sleep(2 * lookEvery) // the tasks are counted
		is := func(want ...findingJSON) {
			t.Helper()
			state, sources := stateOf(t, h), answer[sourcesJSON](t, ask(h, "GET", "/api/sources", nil), 200)
			for _, got := range []healthJSON{state.Health, sources.Sources[0].Health} {
				if len(got.Notes) != len(want) || len(want) > 0 && !reflect.DeepEqual(got.Notes, want) {
					t.Errorf("the notes are %+v, want %+v", got.Notes, want)
				}
			}
		}
		is()
		since := time.Now().UTC()
		notes.Store(&[]Note{{Kind: "bad", Since: since, Text: "The shop is <closed>"}, {Text: "All is well"}})
		said := []findingJSON{{"program", &since, "The shop is <closed>", "bad"}, {"program", nil, "All is well", ""}}
		is(said...)
		if got := stateOf(t, h).Health; !got.Well {
			t.Errorf("with notes the health is %+v", got)
		}
		if err := s.PauseKind(t.Context(), "ok"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		if got := stateOf(t, h).Health.Notes; len(got) != 3 || got[0].Kind != "paused" || !reflect.DeepEqual(got[1:], said) {
			t.Errorf("with a paused kind the notes are %+v", got)
		}
		if err := s.ResumeKind(t.Context(), "ok"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		notes.Store(&[]Note{{Text: "It was open"}})
		is(findingJSON{Kind: "program", Text: "It was open"})
		notes.Store(new([]Note))
		is()
		notes.Store(&[]Note{{Text: "It is not read"}})
		if err := s.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		is()
	})
}

// Many long notes are cut off.
func TestWithNotes_isBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		h := Handler([]Source{Scheduler("tasks", s, nil).WithNotes(func() (all []Note) {
			for i := range 2 * maxKinds {
				all = append(all, Note{Kind: strings.Repeat("k", 1<<20), Text: fmt.Sprint(i, strings.Repeat("\xff", 1<<20))})
			}
			return all
		})})
		if n := ask(h, "GET", "/api/scheduler", nil).Body.Len(); n > 1<<18 {
			t.Errorf("the answer has %d bytes", n)
		}
		if got := stateOf(t, h).Health.Notes; len(got) != maxKinds || got[99].Text[:2] != "99" {
			t.Errorf("there are %d notes", len(got))
		}
	})
}

// A wheel has no notes of the program.
func TestWithNotes_ofAWheel_hasNoEffect(t *testing.T) {
	tw, rec := newWheel(t, 8)
	h := Handler([]Source{Wheel("wheel", tw, rec).WithNotes(func() []Note {
		t.Error("it is asked for notes")
		return nil
	})})
	answer[stateJSON](t, ask(h, "GET", "/api/wheel", nil), 200)
	answer[sourcesJSON](t, ask(h, "GET", "/api/sources", nil), 200)
}
