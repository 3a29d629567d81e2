// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed preempt/preempt.go
var preempt []byte

// rewrite inserts a point, at which the goroutine may yield, before every statement of the packages, which are folders
// of the module in dir. Tests are not changed.
func rewrite(dir, module string, packages []string) error {
	at := filepath.Join(dir, "internal", "preempt")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(at, "preempt.go"), preempt, 0o644); err != nil {
		return err
	}
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(p), "*.go"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("package %s has no file", p)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if text, err = withPoints(name, text, module+"/internal/preempt"); err != nil {
				return err
			}
			if err := os.WriteFile(name, text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// withPoints returns the text of a Go file with a point before each statement. There are also points inside expressions
// where control may pass from one part to the next: between the two operands of && and ||, and between the statement
// and the condition of an if.
//
// Text is only inserted within lines: comments and directives stay in place, and the line numbers of a failure match
// the original.
func withPoints(name string, text []byte, path string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type insertion struct {
		at   int
		text string
	}
	var all []insertion
	insert := func(at token.Pos, text string) {
		all = append(all, insertion{fset.Position(at).Offset, text})
	}
	statements := func(list []ast.Stmt) {
		for _, s := range list {
			if _, empty := s.(*ast.EmptyStmt); !empty {
				insert(s.Pos(), "preempt.Point(); ")
			}
		}
	}
	condition := func(x ast.Expr) {
		insert(x.Pos(), "preempt.And() && (")
		insert(x.End(), ")")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR // constants, types and imports must not change
		case *ast.BlockStmt:
			statements(clauses(n.List))
		case *ast.CaseClause:
			statements(n.Body)
		case *ast.CommClause:
			statements(n.Body)
		case *ast.IfStmt:
			if n.Init != nil {
				condition(n.Cond)
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				condition(n.Y)
			}
		}
		return true
	})
	if len(all) == 0 {
		return text, nil // its import would be unused
	}
	insert(file.Name.End(), fmt.Sprintf("; import %q", path))

	// Of two insertions at one place, the one for the outer node was made first and comes first. For two closing
	// brackets the order does not matter.
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	var out bytes.Buffer
	done := 0
	for _, i := range all {
		out.Write(text[done:i.at])
		out.WriteString(i.text)
		done = i.at
	}
	out.Write(text[done:])
	return out.Bytes(), nil
}

// clauses returns the statements of a block, or none for the block of a switch or a select, which has only clauses.
func clauses(list []ast.Stmt) []ast.Stmt {
	if len(list) > 0 {
		switch list[0].(type) {
		case *ast.CaseClause, *ast.CommClause:
			return nil
		}
	}
	return list
}
