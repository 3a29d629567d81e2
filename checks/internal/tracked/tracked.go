// SPDX-License-Identifier: MIT

// Package tracked reads the files of the repository, for checks of their texts.
package tracked

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Generated are the files that benchmarks write.
var Generated = []string{"bench/RESULTS.md", "bench/CACHES.md", "bench/CLUSTER.md", "bench/durable/RESULTS.md"}

// A File is a file that git tracks. Its name is its path in the repository.
type File struct {
	Name string
	Text []byte
}

// Files returns the tracked files in the order of their names. It leaves out deleted files that are not yet committed.
func Files(t testing.TB) (files []File) {
	t.Helper()
	root := strings.TrimSpace(git(t, ".", "rev-parse", "--show-toplevel"))
	for _, name := range strings.Split(strings.TrimSuffix(git(t, root, "ls-files", "-z"), "\x00"), "\x00") {
		switch text, err := os.ReadFile(filepath.Join(root, name)); {
		case err == nil:
			files = append(files, File{name, text})
		case !errors.Is(err, fs.ErrNotExist):
			t.Error(err)
		}
	}
	return files
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
