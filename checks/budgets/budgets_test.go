// SPDX-License-Identifier: MIT

// Package budgets checks the size of package durable and the packages below it, the order of their imports, and the map
// of all packages in docs/design.md.
package budgets

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/seed581295f1/timewheel/"

const (
	mostFile    = 450  // lines of a file
	mostPackage = 3300 // lines of a package
	mostFields  = 25   // fields of a struct
	mostAll     = 10600
)

// all are the packages that together have mostAll lines.
var all = []string{
	"durable", "durable/author", "durable/engine", "durable/engine/kv", "durable/engine/memory", "durable/internal/clock", "durable/internal/fingerprint",
	"durable/internal/lane", "durable/internal/limit", "durable/internal/need", "durable/internal/node", "durable/internal/past",
	"durable/internal/series", "durable/internal/task", "durable/internal/valid",
}

// apart are packages that are checked as well, and are not among those with mostAll lines.
var apart = []string{"durable/pebble", "durable/postgres"}

// over lists the items over their budget, with their allowed sizes. They rise only with a new promise, or with a mended
// defect. Items within their budget must be removed from the list.
var over = map[string]int{
	"all": 20937, "durable": 4965, "durable/internal/node": 7330,
}

// order lists the packages from the lowest to the highest. Each may import earlier packages, and no other package of
// durable.
var order = []string{
	"durable/engine", "durable/internal/task", "durable/internal/limit", "durable/internal/fingerprint", "durable/internal/clock", "durable/internal/lane", "durable/internal/need", "durable/internal/past", "durable/internal/series", "durable/internal/node", "durable", "durable/author",
	"durable/internal/valid", "durable/engine/kv", "durable/engine/memory",
}

func TestBudgets(t *testing.T) {
	got := make(map[string]int)
	sum := 0
	for _, name := range slices.Concat(all, apart) {
		p := measure(t, filepath.Join("..", "..", filepath.FromSlash(name)))
		if !slices.Contains(apart, name) {
			sum += p.lines
		}
		note := func(what string, n, budget int) {
			if n > budget {
				got[what] = n
			}
		}
		note(name, p.lines, mostPackage)
		for file, n := range p.files {
			note(name+"/"+file, n, mostFile)
		}
		for of, n := range p.fields {
			note(name+"."+of, n, mostFields)
		}
	}
	if sum > mostAll {
		got["all"] = sum
	}
	for what, n := range got {
		switch most, known := over[what]; {
		case !known:
			t.Errorf("%s is over its budget: %d", what, n)
		case n > most:
			t.Errorf("%s has grown over its budget from %d to %d", what, most, n)
		case n < most:
			t.Errorf("%s has shrunk from %d to %d: say so in over", what, most, n)
		}
	}
	for what := range over {
		if got[what] == 0 {
			t.Errorf("%s is within its budget, or gone: take it out of over", what)
		}
	}
}

// A size is the size of a package without its tests.
type size struct {
	lines  int
	files  map[string]int // lines by file
	fields map[string]int // fields by struct
}

func measure(t *testing.T, dir string) size {
	t.Helper()
	s := size{files: make(map[string]int), fields: make(map[string]int)}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s has no Go files: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(text, []byte("\n"))
		s.files[filepath.Base(name)] = n
		s.lines += n
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for of, n := range fields(file) {
			s.fields[of] = n
		}
	}
	return s
}

// fields returns the number of fields of each named struct in the file.
func fields(file *ast.File) map[string]int {
	of := make(map[string]int)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if is, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range is.Fields.List {
				of[spec.Name.Name] += max(len(f.Names), 1)
			}
		}
		return true
	})
	return of
}

// A package imports only packages of durable that are below it.
func TestOrder(t *testing.T) {
	for _, wrong := range upward(imports(t, "durable/..."), order) {
		t.Error(wrong)
	}
}

// upward returns the imports that point upwards.
func upward(of map[string][]string, order []string) (wrong []string) {
	for i, name := range order {
		for _, other := range of[name] {
			if at := slices.Index(order, other); at >= i || at < 0 && strings.HasPrefix(other, "durable") {
				wrong = append(wrong, name+" imports "+other+", which is not below it")
			}
		}
	}
	return wrong
}

// imports returns the imports of each package that the pattern matches from this repository, without its tests.
func imports(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+pattern).Output()
	if err != nil {
		t.Fatal(err)
	}
	of := make(map[string][]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		of[name] = nil
		for _, other := range p.Imports {
			if strings.HasPrefix(other, module) {
				of[name] = append(of[name], strings.TrimPrefix(other, module))
			}
		}
	}
	return of
}

// The checks find the mistakes that they look for.
func TestBudgets_findWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	text := "package p\n\ntype a struct {\n\tb, c int\n\td string\n\te\n}\n\ntype e struct{}\n"
	if err := cmp.Or(os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "p_test.go"), []byte("package p\n\ntype x struct{ y int }\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if s := measure(t, dir); s.lines != 9 || s.files["p.go"] != 9 || len(s.files) != 1 || s.fields["a"] != 4 || s.fields["x"] != 0 {
		t.Errorf("the size is %+v", s)
	}
	of := map[string][]string{"durable/engine": {"durable"}, "durable": {"durable/engine", "timewheel", "durable/odd"}}
	got := upward(of, []string{"durable/engine", "durable"})
	want := []string{
		"durable/engine imports durable, which is not below it", "durable imports durable/odd, which is not below it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("upward are %q, want %q", got, want)
	}
	if len(imports(t, "durable/...")["durable"]) == 0 {
		t.Error("package durable imports nothing")
	}
}
