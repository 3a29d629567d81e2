// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

// A mutant that does not compile tests nothing, and a night tries only a tenth of them. So all are type-checked: each
// package with the changed file in the place of the original, which takes four seconds in all.
func TestList_everyMutant_compiles(t *testing.T) {
	root, err := library.Root()
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := parseLists()
	if err != nil {
		t.Fatal(err)
	}
	dirs := make(map[string]bool)
	for _, m := range mutants {
		for _, h := range m.hunks {
			dirs[path.Dir(h.file)] = true
		}
	}
	all := load(t, root, dirs)
	for _, m := range mutants {
		changed, err := m.files(root)
		if err != nil {
			t.Fatal(err)
		}
		byDir := make(map[string]map[string]string) // of a folder, the text by file
		for name, text := range changed {
			dir := path.Dir(name)
			if byDir[dir] == nil {
				byDir[dir] = make(map[string]string)
			}
			byDir[dir][path.Base(name)] = text
		}
		for dir, files := range byDir {
			if err := all.check(filepath.Join(root, dir), files); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

func TestCheck_textThatDoesNotCompile_isAnError(t *testing.T) {
	root, err := library.Root()
	if err != nil {
		t.Fatal(err)
	}
	all := load(t, root, map[string]bool{"internal/recent": true})
	for text, fits := range map[string]bool{
		"package recent\n": true,
		"package recent\n\nvar x int = \"no number\"\n": false,
		"package recent\n\nimport \"os\"\n":             false,
	} {
		if err := all.check(filepath.Join(root, "internal/recent"), map[string]string{"another.go": text}); (err == nil) != fits {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// loaded are packages by folder, and the importer of their imports.
type loaded struct {
	files   *token.FileSet
	parsed  map[string]map[string]*ast.File // of a folder, by name
	imports types.Importer
}

// load reads the packages in the folders of the library.
func load(t *testing.T, root string, dirs map[string]bool) *loaded {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly"}
	for dir := range dirs {
		args = append(args, "./"+dir)
	}
	text, err := goIn(t.Context(), root, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	l := &loaded{files: token.NewFileSet(), parsed: make(map[string]map[string]*ast.File)}
	exports := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader([]byte(text))); ; {
		var p struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		l.parsed[p.Dir] = make(map[string]*ast.File)
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(l.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			l.parsed[p.Dir][name] = file
		}
	}
	l.imports = importer.ForCompiler(l.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return l
}

// check type-checks the package in the folder, with other texts of some files.
func (l *loaded) check(dir string, others map[string]string) error {
	var files []*ast.File
	for name, file := range l.parsed[dir] {
		if _, ok := others[name]; !ok {
			files = append(files, file)
		}
	}
	for name, text := range others {
		file, err := parser.ParseFile(l.files, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: l.imports}).Check(dir, l.files, files, nil)
	return err
}
