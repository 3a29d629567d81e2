// SPDX-License-Identifier: MIT

package enginetest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// asks leaves a question with the members but one.
func (s *subject) asks(by engine.MemberID, question string) int64 {
	s.t.Helper()
	id, err := s.Ask(s.ctx, by, []byte(question))
	s.check(err)
	return id
}

// asked fails the test unless the member has these questions.
func (s *subject) asked(by engine.MemberID, want ...int64) {
	s.t.Helper()
	all, err := s.Asked(s.ctx, by)
	s.check(err)
	var got []int64
	for _, q := range all {
		got = append(got, q.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("member %d is asked %v, want %v", by, got, want)
	}
}

// answers fails the test unless the question has these answers.
func (s *subject) answers(id int64, want ...engine.Answer) {
	s.t.Helper()
	got, err := s.Answers(s.ctx, id)
	s.check(err)
	slices.SortFunc(got, func(a, b engine.Answer) int { return cmp.Compare(a.Name, b.Name) })
	same := func(a, b engine.Answer) bool {
		return a.Name == b.Name && a.Last == b.Last && bytes.Equal(a.Data, b.Data) && (a.Data == nil) == (b.Data == nil)
	}
	if !slices.EqualFunc(got, want, same) {
		s.t.Errorf("the answers to %d are %+v, want %+v", id, got, want)
	}
}

func questions(s *subject) {
	a, b, c := s.join("a", long), s.join("b", long), s.join("c", long)
	first := s.asks(a, "first\x00\xff")
	second := s.asks(0, "second")
	late := s.join("late", long)
	s.asked(a, second)
	s.asked(b, first, second)
	s.asked(late)
	got, err := s.Asked(s.ctx, b)
	s.check(err)
	if len(got) != 2 || string(got[0].Data) != "first\x00\xff" || string(got[1].Data) != "second" {
		s.t.Errorf("the questions are %+v", got)
	}
	s.answers(first, engine.Answer{Name: "b"}, engine.Answer{Name: "c"})

	answer := func(by engine.MemberID, id int64, a engine.Answer) {
		s.t.Helper()
		s.check(s.Answer(s.ctx, by, id, a))
	}
	answer(b, first, engine.Answer{Data: []byte("for now")})
	s.asked(b, first, second)
	s.answers(first, engine.Answer{Name: "b", Data: []byte("for now")}, engine.Answer{Name: "c"})
	answer(b, first, engine.Answer{Data: []byte("done"), Last: true})
	answer(b, first, engine.Answer{Data: []byte("for now, and late")})
	answer(late, first, engine.Answer{Data: []byte("was not asked"), Last: true})
	s.asked(b, second)
	s.answers(first, engine.Answer{Name: "b", Data: []byte("done"), Last: true}, engine.Answer{Name: "c"})

	s.check(s.Leave(s.ctx, c))
	s.asked(c)
	s.answers(first, engine.Answer{Name: "b", Data: []byte("done"), Last: true})
	s.check(s.Forget(s.ctx, first))
	s.check(s.Forget(s.ctx, first))
	answer(b, first, engine.Answer{Data: []byte("too late"), Last: true})
	s.answers(first)
	s.asked(b, second)
	s.answers(second, engine.Answer{Name: "a"}, engine.Answer{Name: "b"})

	var many []int64
	for range 1100 {
		many = append(many, s.asks(a, "one of many"))
	}
	s.asked(late, many...)
	for _, id := range many {
		s.check(s.Forget(s.ctx, id))
	}

	long := bytes.Repeat([]byte{0, 0xff}, engine.MaxQuestion/2)
	third, err := s.Ask(s.ctx, b, long)
	s.check(err)
	answer(a, third, engine.Answer{Data: long})
	s.answers(third, engine.Answer{Name: "a", Data: long}, engine.Answer{Name: "late"})
	for _, n := range []int{0, engine.MaxQuestion + 1} {
		if _, err := s.Ask(s.ctx, b, make([]byte, n)); err == nil {
			s.t.Errorf("a question of %d bytes is accepted", n)
		}
	}
	if err := s.Answer(s.ctx, a, third, engine.Answer{Data: append(long, 0)}); err == nil {
		s.t.Error("an answer that is too long is accepted")
	}
}
