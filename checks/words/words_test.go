// SPDX-License-Identifier: MIT

// Package words checks that prose does without the words that make it read like a translation: in the Markdown
// files, the scripts, the comments of all Go files, and the string literals of Go files that are not tests.
package words

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/tracked"
)

// banned are words for which plain English has a better one. "Those that" and "who" are left out: as the subject
// of a sentence they are wrong as well, but in other places they are often right.
var banned = regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(strings.Join([]string{
	"goes? on",         // a job is running, a program continues
	"is told", "tells", // reports, returns, says
	"of no use", "beside", "anew", "be it", "to and fro", "as it comes", "what comes of it",
	"so many",     // n, a number of
	"hands? over", // dispatches, passes
	"look(s|ing)? on",
	"who has", "nobody", "whoever", // name the thing: the caller, the handler
	"he", "his", "him",
}, "|"), " ", `\s+`) + `)\b`)

// patterns are what remains of constructions that a native writer would not use, with a bound of their number, which
// may only fall. Some hits are right, so they are counted and not banned.
var patterns = []struct {
	name string
	re   *regexp.Regexp
	most int
}{
	{"a clause for a noun: what is due; better: due tasks", phrase(
		`what (is|was|are|were|has|had|waits?|falls?|runs?|comes?|came|needs?|remains|lies|it|they) `), 66},
	{"has X done; better: does, or asks X to do", phrase(
		`(has|have|had) (the|an?|its|it|them|all|every|each|what) (\w+ )?(\w+ed|confirm|write|call|run|made|read) `), 13},
	{"any more, no more; better: no longer, no further", phrase(`any more|no more ([a-su-z]|t[a-gi-z])\w*`), 10},
	{"those that; better: the noun", phrase(`those (that|of|which) `), 28},
	{"becomes of; better: the outcome of", phrase(`(becomes?|became) of `), 1},
	{", for it; better: because it", phrase(`, for (it|they|there|this|nothing|what|some|all|each) `), 5},
	{"as far as, as ever, sees to, somebody", phrase(`(as far as|as ever|sees? to|somebody|someone) `), 2},
	{"a lease runs out; better: expires", phrase(`leases? (that )?((has|have|had) )?(run|runs|ran) out `), 5},
	{"revolution, take-over, prolong, put off; better: circle, takeover, extend, postpone", phrase(
		`(revolutions?|take-overs?|prolongs?|puts? (it|them) off|puts? off) `), 13},
	{"under way, on whatever, all the same; better: in progress, on any, still", phrase(
		`(under way|on whatever|all the same) `), 2},
}

// phrase returns the pattern with \s+ for each space, in any case, at the beginning of a word.
func phrase(pattern string) *regexp.Regexp {
	pattern = strings.TrimSuffix(pattern, " ") + `\b`
	return regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(pattern, " ", `\s+`) + `)`)
}

// allowed are the exceptions, each with its reason.
var allowed = map[string]string{
	"Makefile: he":                           "options of grep",
	"internal/pgtest/server_unix.go: nobody": "the name of a user of the system",
}

func TestProse_hasNoneOfTheWords(t *testing.T) {
	checked, needed, hits := 0, make(map[string]bool), make([][]string, len(patterns))
	for _, file := range tracked.Files(t) {
		name, text := file.Name, prose(file.Name, file.Text)
		if text == nil || slices.Contains(tracked.Generated, name) { // the literals of programs that write files are checked
			continue
		}
		checked++
		for i, p := range patterns {
			for _, at := range p.re.FindAllIndex(text, -1) {
				hits[i] = append(hits[i], fmt.Sprintf("%s:%d: %q", name, lineOf(text, at[0]), text[at[0]:at[1]]))
			}
		}
		for _, f := range find(text) {
			exception := name + ": " + f.word
			needed[exception] = true
			if allowed[exception] == "" {
				t.Errorf("%s:%d: %q", name, f.line, f.word)
			}
		}
	}
	for i, p := range patterns {
		switch n := len(hits[i]); {
		case n > p.most:
			t.Errorf("%s: %d hits, and there may be %d:\n\t%s", p.name, n, p.most, strings.Join(hits[i], "\n\t"))
		case n < p.most:
			t.Errorf("%s: only %d hits are left of %d: say so in patterns", p.name, n, p.most)
		}
	}
	for exception := range allowed {
		if !needed[exception] {
			t.Errorf("the exception %q is no longer needed", exception)
		}
	}
	if checked < 100 {
		t.Errorf("only %d files were checked", checked)
	}
}

func TestFind_wordsInProse_areFoundWithTheirLines(t *testing.T) {
	const source = "package x\n\n// It goes\n// on.\nvar beside = \"Tells\" // Anew\n\n/* so\nmany */ var he = `his`\n"
	for name, want := range map[string]string{
		"a.go":      "3 goes on, 5 tells, 5 anew, 7 so many, 8 his",
		"a_test.go": "3 goes on, 5 anew, 7 so many",
		"a.md":      "5 beside, 5 tells, 5 anew, 7 so many, 8 he, 8 his",
		"a.png":     "",
	} {
		var got []string
		for _, f := range find(prose(name, []byte(source))) {
			got = append(got, fmt.Sprint(f.line, " ", f.word))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: found %s, want %s", name, got, want)
		}
	}
}

// A finding is a banned word in lower case.
type finding struct {
	line int
	word string
}

func find(text []byte) (all []finding) {
	for _, at := range banned.FindAllIndex(text, -1) {
		words := bytes.Fields(bytes.ToLower(text[at[0]:at[1]]))
		all = append(all, finding{lineOf(text, at[0]), string(bytes.Join(words, []byte(" ")))})
	}
	return all
}

func lineOf(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// prose returns the text with all that is not prose replaced by dots, or nil if the file has no prose. Spaces
// and line ends stay, so that a phrase may be broken over two lines of a comment.
func prose(name string, text []byte) []byte {
	switch filepath.Ext(name) {
	case ".md", ".sh", ".yml", "":
		return text
	case ".go":
	default:
		return nil
	}
	left := make([]byte, len(text))
	for i, b := range text {
		if left[i] = '.'; b == ' ' || b == '\t' || b == '\n' {
			left[i] = b
		}
	}
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return left
		case kind == token.COMMENT:
			literal = strings.Replace(literal, "//", "  ", 1)
		case kind != token.STRING || strings.HasSuffix(name, "_test.go"):
			continue
		}
		copy(left[file.Offset(pos):], literal)
	}
}
