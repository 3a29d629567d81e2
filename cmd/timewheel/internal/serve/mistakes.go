// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/near"
)

const (
	mostMistakes = 50  // of a document that are found
	mostGiven    = 100 // bytes of a caller's text in an answer
	mostSummed   = 3   // mistakes in the detail of a problem
	mostNames    = 20  // in a list of allowed names
)

// A mistake is a part of a request or of a configuration that is wrong.
type mistake struct {
	Line   int    `json:"line,omitempty"`  // of a batch
	Field  string `json:"field"`           // its path, such as retry.attempts; empty: the whole document
	Given  string `json:"given,omitempty"` // as it was written
	Detail string `json:"detail"`          // the mistake, or the allowed values
}

func (m mistake) String() string {
	text := m.Detail
	if m.Given != "" {
		text = m.Given + " " + text
	}
	if m.Field != "" {
		text = m.Field + ": " + text
	}
	if m.Line > 0 {
		text = fmt.Sprintf("line %d: %s", m.Line, text)
	}
	return text
}

// mistakes are all mistakes of a document, in its order.
type mistakes []mistake

// add adds a mistake, unless there are mostMistakes. The text that was given may be empty, to leave it out.
func (m *mistakes) add(field, given, format string, args ...any) {
	if !m.full() {
		*m = append(*m, mistake{Field: field, Given: cut(given), Detail: fmt.Sprintf(format, args...)})
	}
}

// take adds mistakes of a part, each of which place changes to one of the whole document.
func (m *mistakes) take(of mistakes, place func(*mistake)) {
	for _, one := range of {
		if place(&one); !m.full() {
			*m = append(*m, one)
		}
	}
}

func (m *mistakes) full() bool { return len(*m) >= mostMistakes }

func (m *mistakes) has(field string) bool {
	for _, one := range *m {
		if one.Field == field {
			return true
		}
	}
	return false
}

// in returns the mistakes of a field and of the fields in it, with their paths there.
func (m mistakes) in(field string) (found mistakes) {
	for _, one := range m {
		if rest, is := strings.CutPrefix(one.Field, field); is && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			one.Field = strings.TrimPrefix(rest, ".")
			found = append(found, one)
		}
	}
	return found
}

// with adds the mistakes of an error, and returns the problem, or nil if there are none. An error without mistakes, such as
// the one of a missing right, is returned alone.
func (m mistakes) with(err error) error {
	if err != nil {
		p := problemOf(err)
		if p.Errors == nil {
			return err
		}
		m.take(p.Errors, func(*mistake) {})
	}
	return m.problem()
}

// problem returns the mistakes as the problem of a request, or nil if there are none.
func (m mistakes) problem() error {
	if len(m) == 0 {
		return nil
	}
	p := problemf(http.StatusBadRequest, "%s", m.summary())
	p.Errors = m
	return p
}

func (m mistakes) summary() string {
	var all []string
	for i, one := range m {
		if i == mostSummed {
			all = append(all, fmt.Sprintf("and %d more", len(m)-i))
			break
		}
		all = append(all, one.String())
	}
	return strings.Join(all, "; ")
}

// wrongField returns the problem of a request with one mistake.
func wrongField(field, given, format string, args ...any) error {
	var m mistakes
	m.add(field, given, format, args...)
	return m.problem()
}

// cut returns the beginning of a text.
func cut(text string) string {
	if len(text) <= mostGiven {
		return text
	}
	n := mostGiven
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// oneOf returns what a name must be, for the detail of a mistake.
func oneOf(wrong string, names []string) string {
	text := "must be one of " + strings.Join(names[:min(len(names), mostNames)], ", ")
	if n := len(names) - mostNames; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + didYouMean(wrong, names)
}

// didYouMean returns a suggestion to append to a text, or "" if no name is close to the wrong one.
func didYouMean(wrong string, names []string) string {
	for _, name := range names {
		if strings.EqualFold(name, wrong) {
			return fmt.Sprintf(" (did you mean %s?)", name)
		}
	}
	if name := near.To(wrong, names); name != "" {
		return fmt.Sprintf(" (did you mean %s?)", name)
	}
	return ""
}
