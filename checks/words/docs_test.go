// SPDX-License-Identifier: MIT

package words

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/tracked"
)

// Package documentation is read from the top to the bottom.
const (
	mostWords = 30 // of a sentence
	mostLines = 6  // of a paragraph
)

var sentenceEnd = regexp.MustCompile("[.!?:;]\\s+[A-Z\\[`\"]")

func TestPackageDocumentation_sentencesAndParagraphs_areShort(t *testing.T) {
	checked := 0
	for _, f := range tracked.Files(t) {
		if filepath.Ext(f.Name) != ".go" || strings.HasSuffix(f.Name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil || file.Doc == nil {
			continue
		}
		checked++
		for _, problem := range tooLong(file.Doc.Text()) {
			t.Errorf("%s: %s", f.Name, problem)
		}
	}
	if checked < 30 {
		t.Errorf("only %d packages were checked", checked)
	}
}

func TestTooLong_ofADocument(t *testing.T) {
	words := strings.Repeat("word ", mostWords-1) + "word"
	lines := strings.Repeat("A line.\n", mostLines)
	for text, want := range map[string]int{
		words + "more. " + words:                  1,
		words[1:] + ". " + strings.ToUpper(words): 0,
		lines + "One more.\n\nAnother.\n":         1,
		lines + "\n" + lines:                      0,
		"\t" + words + " " + words + "\n":         0,
		"  - " + lines + "  - " + lines:           0,
	} {
		if got := tooLong(text); len(got) != want {
			t.Errorf("%q: found %q, want %d", text, got, want)
		}
	}
}

// tooLong returns the sentences and paragraphs of the documentation that are too long. It leaves out code and tables.
func tooLong(text string) (problems []string) {
	var paragraph []string
	end := func() {
		if len(paragraph) > mostLines {
			problems = append(problems, "a long paragraph: "+paragraph[0])
		}
		rest := strings.Join(paragraph, " ")
		for rest != "" {
			sentence := rest
			if at := sentenceEnd.FindStringIndex(rest); at != nil {
				sentence = rest[:at[0]+1]
			}
			if len(strings.Fields(sentence)) > mostWords {
				problems = append(problems, "a long sentence: "+sentence)
			}
			rest = strings.TrimSpace(rest[len(sentence):])
		}
		paragraph = nil
	}
	for _, line := range strings.Split(text, "\n") {
		switch item := strings.HasPrefix(line, "  - "); {
		case strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
			end()
			continue
		case item:
			end()
		}
		paragraph = append(paragraph, strings.TrimSpace(line))
	}
	end()
	return problems
}
