// SPDX-License-Identifier: MIT

package dashboard

import (
	"time"

	"github.com/seed581295f1/timewheel/internal/health"
)

// A Note is a message of the program to the operators of its scheduler, such as that a system which handlers call is down.
type Note struct {
	Kind  string    // the kind of tasks that the note is about; empty if it is about none
	Since time.Time // zero if unknown
	Text  string    // one sentence without a full stop
}

// WithNotes returns a copy of s that also shows the notes of the program, below the findings. Each page and each request
// calls notes, which returns the current notes and must not block. At most 100 are shown. WithNotes has no effect on a
// wheel.
func (s Source) WithNotes(notes func() []Note) Source {
	open := s.open
	s.open = func() shown {
		all := open()
		if b, is := all.(*board); is {
			b.notes = notes
		}
		return all
	}
	return s
}

// ofProgram is the kind of the notes of the program.
const ofProgram health.Kind = "program"

// withNotes appends the notes of the program.
func (h healthJSON) withNotes(notes []Note) healthJSON {
	for _, n := range notes[:min(len(notes), maxKinds)] {
		h.Notes = append(h.Notes, findingJSON{ofProgram, known(n.Since), cut(n.Text, maxValueText), keyShown(n.Kind)})
	}
	return h
}
