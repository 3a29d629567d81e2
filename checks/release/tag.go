// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// tag makes a release. It sets the version at which the modules require each other, and writes the sums of the packed
// modules into go.sum. It checks the result as make release-check does, and commits it. Then it tags the modules: the
// root first, and each module after the modules that it requires. It pushes nothing, and prints the commands for that.
//
// The order matters twice. First, the sum of a module is in the go.sum of every module that requires it, so it must be
// final before their sums are computed. Second, a proxy that is asked for a module also asks for the modules that it
// requires.
func tag(f *family, dir, version string, out io.Writer) (err error) {
	if err := f.releasable(version); err != nil {
		return err
	}
	root := f.dir
	defer func() {
		if err != nil { // the working tree was clean, and becomes so again
			_, added := git(root, "add", "--all") // including a new go.sum
			_, undone := git(root, "reset", "--hard", "--quiet")
			err = errors.Join(err, added, undone)
		}
	}()
	if err := f.setVersion(version); err != nil {
		return err
	}
	if f, err = readFamily(root); err != nil {
		return err
	}
	if err := f.writeSums(filepath.Join(dir, "sums")); err != nil {
		return err
	}
	if err := check(f, filepath.Join(dir, "check"), out); err != nil {
		return fmt.Errorf("the modules at %s: %w", version, err)
	}
	if _, err := git(f.dir, "add", "--all"); err != nil {
		return err
	}
	changed, err := git(f.dir, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		if _, err := git(f.dir, "commit", "--quiet", "--message", "Release "+version); err != nil {
			return err
		}
	}
	var tags []string
	for _, m := range f.published {
		name := m.tag(version)
		if _, err := git(f.dir, "tag", "--annotate", "--message", m.path+" "+version, name); err != nil {
			return err
		}
		tags = append(tags, name)
	}
	fmt.Fprintf(out, "tagged %s\nnothing is pushed: git push --atomic origin HEAD %s\n",
		strings.Join(tags, ", "), strings.Join(tags, " "))
	return nil
}

// releasable checks that the version can be released from the working tree.
func (f *family) releasable(version string) error {
	if semver.Canonical(version) != version || module.CheckPathMajor(version, "") != nil {
		return fmt.Errorf("%q is not a version like v0.1.0", version)
	}
	changed, err := git(f.dir, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the working tree has changes that are not committed:\n%s", changed)
	}
	tags, err := git(f.dir, "tag", "--list")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(tags) {
		if v := name[strings.LastIndex(name, "/")+1:]; semver.IsValid(v) && semver.Compare(v, version) >= 0 {
			return fmt.Errorf("%s is not after the tag %s", version, name)
		}
	}
	text, err := os.ReadFile(filepath.Join(f.dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	return changelogHas(string(text), version)
}

// changelogHas checks that the changelog contains a dated, non-empty section for the version, right below an empty
// [Unreleased].
func changelogHas(text, version string) error {
	sections := regexp.MustCompile(`(?m)^## `).Split(text, -1)[1:]
	name := strings.TrimPrefix(version, "v")
	switch {
	case len(sections) < 2:
		return errors.New("CHANGELOG.md has no sections")
	case strings.TrimSpace(sections[0]) != "[Unreleased]":
		return fmt.Errorf("CHANGELOG.md must begin with an empty [Unreleased]: what is in it belongs into %s", name)
	}
	dated := regexp.MustCompile(`^\[` + regexp.QuoteMeta(name) + `\] - \d{4}-\d\d-\d\d\n(?s:.*)\n- `)
	if !dated.MatchString(sections[1]) {
		return fmt.Errorf("CHANGELOG.md has no section %q with a date and a change below [Unreleased]", "["+name+"]")
	}
	return nil
}

// setVersion makes every module require the family at the version, and go.work replace that version.
func (f *family) setVersion(version string) error {
	for _, m := range f.all() {
		for _, sibling := range f.published {
			if m.require(sibling.path) == "" {
				continue
			}
			if err := m.file.AddRequire(sibling.path, version); err != nil {
				return err
			}
		}
		m.file.Cleanup()
		text := modfile.Format(m.file.Syntax)
		if err := os.WriteFile(filepath.Join(f.dir, m.dir, "go.mod"), text, 0o644); err != nil {
			return err
		}
	}
	name := filepath.Join(f.dir, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed := strings.ReplaceAll(string(text), " "+f.version+" => ", " "+version+" => ")
	return os.WriteFile(name, []byte(changed), 0o644)
}

// writeSums writes the sums of the required modules into the go.sum of each published module, in the order of
// the releases.
func (f *family) writeSums(dir string) error {
	s := shelf(dir)
	for _, m := range f.published {
		var lines []string
		for _, sibling := range f.published {
			if m.require(sibling.path) == "" {
				continue
			}
			sums, err := s.sum(f.at(sibling))
			if err != nil {
				return err
			}
			lines = append(lines, sums...)
		}
		if err := f.editSums(m, lines); err != nil {
			return err
		}
		if err := s.put(f, m); err != nil {
			return err
		}
	}
	return nil
}
