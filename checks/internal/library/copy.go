// SPDX-License-Identifier: MIT

// Package library makes copies of the library, for checks that change its code.
package library

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// parts are the parts of the repository that a copy contains: everything that the library and its tests need.
var parts = []string{"timewheel", "pool", "internal", "test"}

// Documents matches the names of tests for files that a copy does not contain.
const Documents = "^TestGuarantees_|^TestReadme_|^TestMigrating_|^TestT5_theWallClockIsNotRead$"

// Root returns the folder of the repository in which the program runs.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOWORK: %w", err)
	}
	work := strings.TrimSpace(string(out))
	if work == "" || work == "off" {
		return "", fmt.Errorf("there is no go.work here")
	}
	return filepath.Dir(work), nil
}

// Copy copies the library from root to dir, which must be empty. The copy has its own go.work. In it the copy replaces
// the library, and every other module is the one that root uses. So a program of another module that is built in dir
// uses the copy.
func Copy(root, dir string) error {
	for _, part := range parts {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, part))); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "go.work.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return err
	}
	if text, err = moved(text, root); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.work"), text, 0o644)
}

// moved returns a go.work with the same meaning in another folder, except that root is that folder.
func moved(text []byte, root string) ([]byte, error) {
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	absolute := func(path string) string {
		if path = filepath.Clean(filepath.FromSlash(path)); path == "." || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(root, path)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "go %s\n", work.Go.Version)
	for _, use := range work.Use {
		fmt.Fprintf(&out, "use %s\n", modfile.AutoQuote(absolute(use.Path)))
	}
	for _, r := range work.Replace {
		path := absolute(r.New.Path)
		if path == "." {
			path = "./"
		}
		fmt.Fprintf(&out, "replace %s %s => %s\n", r.Old.Path, r.Old.Version, modfile.AutoQuote(path))
	}
	return []byte(out.String()), nil
}
