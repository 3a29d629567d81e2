// SPDX-License-Identifier: MIT

package figures

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// measured finds what may have been measured: a number with a unit. Sizes in KiB and MiB are limits, and durations without a
// space (5s) are values of an option.
var measured = regexp.MustCompile(`\b\d[\d,]*(?:\.\d+)?(?: |\n *)(?:%|×|(?:ns|µs|ms|s|bytes|B|KB|MB|GB|times|a second)\b)`)

// notProse matches the parts of a Markdown file that are not prose: blocks and spans of code, quoted messages, and the
// targets of links.
var notProse = regexp.MustCompile("(?ms)^ *```.*?^ *```|^\n(?:(?:    |\t)[^\n]*\n)+|`[^`]*`|\"[^\"]*\"|\\]\\([^)]*\\)")

// proseOf returns the text with everything but prose replaced by spaces: in a Go file the documentation of the package
// and of exported declarations remains. It returns "" for a file that is neither Go nor Markdown.
func proseOf(name, text string) (string, error) {
	switch {
	case strings.HasSuffix(name, ".md"):
		return notProse.ReplaceAllStringFunc(text, blank), nil
	case strings.HasSuffix(name, "_test.go") || filepath.Ext(name) != ".go":
		return "", nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	left := []byte(blank(text))
	for _, comment := range file.Comments {
		if !exported(file, comment) {
			continue
		}
		for _, line := range comment.List {
			if at := files.Position(line.Pos()).Offset; !strings.HasPrefix(line.Text, "//\t") { // a block of code
				copy(left[at:], notProse.ReplaceAllStringFunc(strings.Replace(line.Text, "//", "  ", 1), blank))
			}
		}
	}
	return string(left), nil
}

// exported reports whether a comment is of the package or of an exported declaration, or within an exported type, constant or
// variable.
func exported(file *ast.File, comment *ast.CommentGroup) bool {
	if comment.End() <= file.Package {
		return comment == file.Doc
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == comment {
				return d.Name.IsExported()
			}
		case *ast.GenDecl:
			within := d.Doc == comment || d.Pos() <= comment.Pos() && comment.End() <= d.End()
			for _, spec := range d.Specs {
				if !within {
					break
				}
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						return true
					}
				case *ast.ValueSpec:
					if spec.Names[0].IsExported() {
						return true
					}
				}
			}
		}
	}
	return false
}

// blank returns as many spaces as the text has bytes. Line ends stay.
func blank(text string) string {
	b := []byte(text)
	for i := range b {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
	return string(b)
}

// number is a figure in the text of a row.
var number = `(\d[\d,]*(?:\.\d+)?|none|One round|(?:` + strings.Join(counts[1:], "|") + `) rounds)`

// pattern converts a text to a regular expression, in which # is a figure and a space may be the end of a line, even in
// a comment.
func pattern(text string) *regexp.Regexp {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = strings.ReplaceAll(regexp.QuoteMeta(word), "#", number)
	}
	return regexp.MustCompile(strings.Join(words, `\s+(?:// *)?`))
}
