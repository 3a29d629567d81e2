// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tidy runs go mod tidy in every module. Plain go mod tidy fails until the version at which the modules require each
// other is published. Afterwards go.sum has no lines for modules of the family, because they would be wrong after the
// next change; a release adds them.
func tidy(f *family, dir string) error {
	w, err := newWorkshop(f, dir, false)
	if err != nil {
		return err
	}
	// The machine's cache may have the family from an earlier run, with other contents.
	w.env = append(w.env, "GOMODCACHE="+filepath.Join(dir, "modcache"))
	for _, m := range f.all() {
		if err := f.dropSums(m); err != nil {
			return err
		}
		if _, err := w.download(filepath.Join(f.dir, m.dir), "mod", "tidy"); err != nil {
			return err
		}
		if err := f.dropSums(m); err != nil {
			return err
		}
	}
	return nil
}

// dropSums removes the modules of the family from a module's go.sum.
func (f *family) dropSums(m *member) error {
	return f.editSums(m, nil)
}

// editSums replaces the lines for the modules of the family by the given lines.
func (f *family) editSums(m *member, lines []string) error {
	name := filepath.Join(f.dir, m.dir, "go.sum")
	old, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	kept := slices.Clone(lines)
	for line := range strings.Lines(string(old)) {
		if line = strings.TrimSpace(line); line != "" && f.find(strings.Fields(line)[0]) == nil {
			kept = append(kept, line)
		}
	}
	if len(kept) == 0 && len(old) == 0 {
		return nil
	}
	slices.Sort(kept)
	return os.WriteFile(name, []byte(strings.Join(kept, "\n")+"\n"), 0o644)
}
