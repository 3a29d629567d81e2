// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs is the folder with a program for each package whose installation the README describes. The wheel's program
// is in the README.
const programs = "checks/release/programs"

// check follows the installation lines of the README, each in an empty module, and builds and runs a program with each
// result. It starts with an empty module cache.
func check(f *family, dir string, out io.Writer) error {
	if err := f.rules(); err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(f.dir, "README.md"))
	if err != nil {
		return err
	}
	lines, commands := installs(string(readme)), commandsIn(string(readme))
	if err := f.complete(append(slices.Clone(lines), commands...)); err != nil {
		return err
	}
	w, err := newWorkshop(f, dir, true)
	if err != nil {
		return err
	}
	for _, m := range f.published {
		if err := w.alone(m, filepath.Join(dir, "alone")); err != nil {
			return fmt.Errorf("go.mod and go.sum of %s are not enough for it: %w", m.path, err)
		}
	}
	for _, line := range lines {
		fmt.Fprintf(out, "== go get %s\n", line)
		user := filepath.Join(dir, "user", path.Base(line))
		printed, err := w.install(user, line, string(readme))
		if err != nil {
			return err
		}
		fmt.Fprint(out, printed)
	}
	for _, command := range commands {
		fmt.Fprintf(out, "== go install %s\n", command)
		printed, err := w.installCommand(filepath.Join(dir, "bin"), command)
		if err != nil {
			return err
		}
		fmt.Fprint(out, printed)
	}
	return nil
}

// installCommand installs a command, and runs it with the argument version.
func (w *workshop) installCommand(bin, pkg string) (printed string, err error) {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	if err := w.denyParts(pkg); err != nil {
		return "", err
	}
	in := *w
	in.env = append(slices.Clip(w.env), "GOBIN="+bin)
	if _, err := in.download(bin, "install", pkg+"@latest"); err != nil {
		return "", err
	}
	return w.run(bin, filepath.Join(bin, path.Base(pkg)+exe()), "version")
}

// denyParts makes the shelf deny each part of the path of a package.
func (w *workshop) denyParts(pkg string) error {
	for dir := pkg; dir != path.Dir(w.path); dir = path.Dir(dir) {
		if err := w.shelf.deny(dir); err != nil {
			return err
		}
	}
	return nil
}

// alone checks that a module requires everything that it and its tests import, with sums. Between two releases go.sum
// of the working tree lacks the modules of the family, so it is completed in a copy.
func (w *workshop) alone(m *member, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, path.Base(m.path))
	mod, err := os.ReadFile(filepath.Join(w.dir, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(w.dir, m.dir, "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, sibling := range w.published {
		if m.require(sibling.path) == "" || strings.Contains(string(sums), sibling.path+" "+w.version+" ") {
			continue
		}
		lines, err := w.shelf.sum(w.at(sibling))
		if err != nil {
			return err
		}
		sums = append(sums, strings.Join(lines, "\n")+"\n"...)
	}
	err = errors.Join(os.WriteFile(name+".mod", mod, 0o644), os.WriteFile(name+".sum", sums, 0o644))
	if err != nil {
		return err
	}
	_, err = w.download(filepath.Join(w.dir, m.dir), "list", "-modfile="+name+".mod", "-deps", "-test", "./...")
	return err
}

// installs returns the packages that a text says to get, in the order of the text.
func installs(text string) []string { return packagesOf(text, "\\bgo get ([^\\s`]+/[^\\s`]+)") }

// commandsIn returns the commands that a text says to install, in the order of the text.
func commandsIn(text string) []string {
	return packagesOf(text, "\\bgo install ([^\\s`@]+/[^\\s`@]+)@latest")
}

// packagesOf returns the distinct matches of the pattern in a text.
func packagesOf(text, pattern string) []string {
	var packages []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(packages, m[1]) {
			packages = append(packages, m[1])
		}
	}
	return packages
}

// complete checks that there is exactly one line for every published module.
func (f *family) complete(lines []string) error {
	var errs []error
	for _, m := range f.published {
		if !slices.ContainsFunc(lines, func(line string) bool { return f.find(line) == m }) {
			errs = append(errs, fmt.Errorf("the README does not say how to get %s", m.path))
		}
	}
	for _, line := range lines {
		if f.find(line) == nil {
			errs = append(errs, fmt.Errorf("the README says go get %s, which no published module has", line))
		}
	}
	return errors.Join(errs...)
}

// install gets a package in an empty module, builds the program for it, and runs that.
func (w *workshop) install(user, pkg, readme string) (printed string, err error) {
	program, want, err := w.program(pkg, readme)
	if err != nil {
		return "", err
	}
	if err := w.get(user, pkg, program); err != nil {
		return "", err
	}
	if _, err := w.run(user, "go", "build", "-o", "program"+exe(), "."); err != nil {
		return "", err
	}
	printed, err = w.run(user, filepath.Join(user, "program"+exe()))
	if err == nil && want != "" && printed != want {
		err = fmt.Errorf("the program of the README prints\n%sand the README says\n%s", printed, want)
	}
	return printed, err
}

// get makes an empty module, gets the package in it, if there is one, and writes the program.
func (w *workshop) get(user, pkg, program string) error {
	if err := os.MkdirAll(user, 0o755); err != nil {
		return err
	}
	if _, err := w.run(user, "go", "mod", "init", "example.com/user"); err != nil {
		return err
	}
	if pkg != "" {
		if err := w.denyParts(pkg); err != nil {
			return err
		}
		if _, err := w.download(user, "get", pkg); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(user, "main.go"), []byte(program), 0o644)
}

// program returns the program for a package, and its output if the README states it.
func (w *workshop) program(pkg, readme string) (text, want string, err error) {
	m := regexp.MustCompile("(?s)```go\n(package main\n.*?)```\n").FindStringSubmatch(readme)
	if m != nil && strings.Contains(m[1], `"`+pkg+`"`) {
		if _, lines, ok := strings.Cut(m[1], "\t// Output:\n"); ok {
			lines, _, _ = strings.Cut(lines, "}\n")
			want = regexp.MustCompile(`(?m)^\t// ?`).ReplaceAllString(lines, "")
		}
		return m[1], want, nil
	}
	data, err := os.ReadFile(filepath.Join(w.dir, programs, path.Base(pkg), "main.go"))
	return string(data), "", err
}
