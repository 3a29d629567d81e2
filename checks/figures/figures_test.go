// SPDX-License-Identifier: MIT

// Package figures checks that each figure in prose matches its source: a file written by a benchmark, or a test or
// benchmark that determines it. prose_test.go defines prose, and table_test.go lists the source of each figure. When
// make bench-all has written the sources again,
//
//	go test ./checks/figures -fix
//
// writes their figures into the prose, and the words around them must be read again.
package figures

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/tracked"
)

var fix = flag.Bool("fix", false, "write the figures of the sources into the prose")

// root is the folder of the repository.
var root = filepath.Join("..", "..")

func TestFigures_areThoseOfTheirSources(t *testing.T) {
	texts, rows := files(t), table(t)
	problems := compare(texts, rows)
	if *fix {
		for _, name := range repair(texts, problems) {
			if err := os.WriteFile(filepath.Join(root, name), []byte(texts[name]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		rows = table(t) // some prose is a source as well
		problems = compare(texts, rows)
	}
	for _, p := range problems {
		t.Error(p)
	}
	for _, p := range uncovered(texts, rows, exceptions) {
		t.Error(p)
	}
}

// files returns the texts of the files that may contain figures in prose, by name.
func files(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, f := range tracked.Files(t) {
		code := slices.ContainsFunc([]string{"bench/", "checks/", "examples/", "test/", "internal/", "durable/internal/"},
			func(dir string) bool { return strings.HasPrefix(f.Name, dir) })
		ext := filepath.Ext(f.Name)
		if ext == ".md" && !slices.Contains(tracked.Generated, f.Name) || ext == ".go" && !code {
			texts[f.Name] = string(f.Text)
		}
	}
	if len(texts) < 200 {
		t.Fatalf("there are only %d files", len(texts))
	}
	return texts
}

// A problem is a figure that differs from its source, or another disagreement.
type problem struct {
	file     string
	line     int    // 0 if there is none
	what     string // the wrong item
	from, to int    // of the figure in the text, and
	want     string // the right text; empty if unknown
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.what) }

// compare returns the figures of the rows that differ from their sources.
func compare(texts map[string]string, rows []row) (problems []problem) {
	for _, r := range rows {
		found := pattern(r.text).FindAllStringSubmatchIndex(texts[r.file], -1)
		if len(found) != 1 {
			problems = append(problems, problem{file: r.file, what: fmt.Sprintf(
				"%q stands there %d times: table_test.go wants it once", r.text, len(found))})
			continue
		}
		at := found[0]
		line := 1 + strings.Count(texts[r.file][:at[0]], "\n")
		if n := len(at)/2 - 1; n != len(r.figures) {
			problems = append(problems, problem{file: r.file, line: line, what: fmt.Sprintf(
				"%q has %d figures, and %d in table_test.go", r.text, n, len(r.figures))})
			continue
		}
		if r.by != "" && !there(r.by) {
			problems = append(problems, problem{file: r.file, line: line, what: fmt.Sprintf(
				"%q: its source %q is gone", r.text, r.by)})
		}
		for i, f := range r.figures {
			p := problem{file: r.file, from: at[2*i+2], to: at[2*i+3], want: f.want}
			p.line = 1 + strings.Count(texts[r.file][:p.from], "\n")
			stands := texts[r.file][p.from:p.to]
			switch {
			case f.want == "":
				p.what = fmt.Sprintf("%q: %s stands there, and %s is not there", r.text, stands, f.from)
			case !strings.EqualFold(f.want, stands):
				p.what = fmt.Sprintf("%q: %s stands there, and must be %s by %s", r.text, stands, f.want, f.from)
			default:
				continue
			}
			problems = append(problems, p)
		}
	}
	return problems
}

// there reports whether a file has a text: they are separated by a colon.
func there(by string) bool {
	name, what, _ := strings.Cut(by, ": ")
	text, err := os.ReadFile(filepath.Join(root, name))
	return err == nil && strings.Contains(string(text), what)
}

// repair writes the known figures into the texts, and returns the names of the changed texts.
func repair(texts map[string]string, problems []problem) (changed []string) {
	problems = slices.SortedFunc(slices.Values(problems), func(a, b problem) int { return b.from - a.from }) // last one first
	for _, p := range problems {
		if p.want == "" {
			continue
		}
		texts[p.file] = texts[p.file][:p.from] + p.want + texts[p.file][p.to:]
		if !slices.Contains(changed, p.file) {
			changed = append(changed, p.file)
		}
	}
	return changed
}

// uncovered returns the figures with a unit that are in no row and no exception, and the unneeded exceptions.
func uncovered(texts map[string]string, rows []row, exceptions []exception) (problems []problem) {
	left := make(map[string]string, len(texts))
	for name, text := range texts {
		only, err := proseOf(name, text)
		if err != nil {
			problems = append(problems, problem{file: name, what: err.Error()})
		}
		left[name] = only
	}
	for _, r := range rows {
		if at := pattern(r.text).FindStringIndex(texts[r.file]); at != nil && left[r.file] != "" {
			left[r.file] = left[r.file][:at[0]] + blank(left[r.file][at[0]:at[1]]) + left[r.file][at[1]:]
		}
	}
	needed := make(map[string]bool)
	for name, text := range left {
		for _, at := range measured.FindAllStringIndex(text, -1) {
			figure := strings.Join(strings.Fields(text[at[0]:at[1]]), " ")
			if excepted(exceptions, name, figure) {
				needed[name+": "+figure] = true
				continue
			}
			problems = append(problems, problem{file: name, line: 1 + strings.Count(text[:at[0]], "\n"), what: fmt.Sprintf(
				"%s has no source in table_test.go, and is not among its exceptions", figure)})
		}
	}
	for _, e := range exceptions {
		for _, figure := range e.figures {
			if !needed[e.file+": "+figure] {
				problems = append(problems, problem{file: e.file, what: fmt.Sprintf(
					"%s is an exception in table_test.go, and not in the file", figure)})
			}
		}
	}
	return problems
}

func excepted(exceptions []exception, name, figure string) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool { return e.file == name && slices.Contains(e.figures, figure) })
}

// Each source says how it was measured: with the command of the Makefile, in three rounds or more.
func TestSources_areOfWholeRuns(t *testing.T) {
	for _, name := range tracked.Generated {
		s, err := readSource(root, name)
		if err != nil {
			t.Fatal(err)
		}
		if !s.isWhole() {
			t.Errorf("%s does not say its date and revision, three rounds or more, and the command of the Makefile", name)
		}
	}
}
