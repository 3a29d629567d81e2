// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	sizesFile  = "docs/design.md"
	sizesBegin = "<!-- sizes: make sizes writes what is between these lines -->\n"
	sizesEnd   = "<!-- /sizes -->\n"
)

// A size is the size that a module adds to a program.
type size struct {
	module    string
	modules   int // modules in its build list, including those of the family
	linked    int // the ones with a package in the program
	megabytes float64
}

// writeSizes measures every published module and writes the table.
func writeSizes(f *family, dir string) error {
	w, err := newWorkshop(f, dir, true)
	if err != nil {
		return err
	}
	sizes, err := w.sizes(dir)
	if err != nil {
		return err
	}
	name := filepath.Join(f.dir, sizesFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	table := regexp.MustCompile(`(?s)(` + sizesBegin + `).*(` + sizesEnd + `)`)
	if !table.Match(text) {
		return fmt.Errorf("%s has no place for the table", sizesFile)
	}
	text = table.ReplaceAll(text, []byte("${1}"+markdown(sizes)+"${2}"))
	return os.WriteFile(name, text, 0o644)
}

// sizes builds the programs that check builds, one per published module, and a program with only the standard library.
func (w *workshop) sizes(dir string) ([]size, error) {
	base, err := w.build(filepath.Join(dir, "size", "nothing"), "",
		"package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }\n")
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(w.dir, "README.md"))
	if err != nil {
		return nil, err
	}
	var sizes []size
	for _, m := range w.published {
		pkg := ""
		for _, line := range installs(string(readme)) {
			if pkg == "" && w.find(line) == m {
				pkg = line
			}
		}
		if pkg == "" {
			continue // a command, which is not part of other programs
		}
		program, _, err := w.program(pkg, string(readme))
		if err != nil {
			return nil, err
		}
		user := filepath.Join(dir, "size", filepath.Base(pkg))
		s, err := w.build(user, pkg, program)
		if err != nil {
			return nil, err
		}
		s.module = m.path
		s.megabytes -= base.megabytes
		sizes = append(sizes, s)
	}
	return sizes, nil
}

// build builds a program as for a release, without debug information.
func (w *workshop) build(user, pkg, program string) (size, error) {
	if err := w.get(user, pkg, program); err != nil {
		return size{}, err
	}
	name := "program" + exe()
	if _, err := w.run(user, "go", "build", "-ldflags=-s -w", "-o", name, "."); err != nil {
		return size{}, err
	}
	info, err := os.Stat(filepath.Join(user, name))
	if err != nil {
		return size{}, err
	}
	all, err := w.download(user, "list", "-mod=mod", "-m", "all")
	if err != nil {
		return size{}, err
	}
	deps, err := w.run(user, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	if err != nil {
		return size{}, err
	}
	linked := make(map[string]bool)
	for _, path := range strings.Fields(deps) {
		linked[path] = true
	}
	return size{
		modules:   strings.Count(all, "\n") - 1, // without the program's own
		linked:    len(linked) - 1,
		megabytes: float64(info.Size()) / 1e6,
	}, nil
}

func markdown(sizes []size) string {
	var b strings.Builder
	b.WriteString("| module | modules in `go list -m all` | modules linked | megabytes in the program |\n" +
		"|---|--:|--:|--:|\n")
	for _, s := range sizes {
		fmt.Fprintf(&b, "| `%s` | %d | %d | %.1f |\n", s.module, s.modules, s.linked, s.megabytes)
	}
	return b.String()
}
