// SPDX-License-Identifier: MIT

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// There is an archive for each system, with the program, the licence and the README, and SHA256SUMS has the sum of each.
// The program of this system runs. A second call writes the same.
func TestArchive_hasAProgramForEachSystem(t *testing.T) {
	f := family0(t, repositoryOf(t, map[string]string{
		"LICENSE": "a licence", "cache/tool/README.md": "how to use it",
		"cache/tool/main.go": "package main\n\nimport \"example.test/fam/cache\"\n\nfunc main() { println(cache.Size) }\n",
	}))
	systems := []string{runtime.GOOS + "/" + runtime.GOARCH, "windows/arm64"} // a tar and a zip
	out := t.TempDir()
	if err := archive(f, t.TempDir(), out, "example.test/fam/cache/tool", systems); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, system := range systems {
		base, extension, name := "tool_v0.1.0_"+strings.ReplaceAll(system, "/", "_"), ".tar.gz", "tool"
		if strings.HasPrefix(system, "windows") {
			extension, name = ".zip", "tool.exe"
		}
		names = append(names, base+extension)
		text := readFile(t, filepath.Join(out, base+extension))
		files := unpacked(t, base+extension, []byte(text))
		for _, want := range []struct {
			name, text string
			mode       fs.FileMode
		}{{name, "", 0o755}, {"LICENSE", "a licence", 0o644}, {"README.md", "how to use it", 0o644}} {
			got, is := files[base+"/"+want.name]
			if !is || got.mode != want.mode || want.text != "" && string(got.text) != want.text {
				t.Errorf("%s has no %s, or another one", base, want.name)
			}
		}
		if len(files) != 3 {
			t.Errorf("%s has %d files", base, len(files))
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), base+extension); !strings.Contains(readFile(t, filepath.Join(out, "SHA256SUMS")), line) {
			t.Errorf("SHA256SUMS has no %q", line)
		}
		if system == runtime.GOOS+"/"+runtime.GOARCH {
			program := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(program, files[base+"/"+name].text, 0o755); err != nil {
				t.Fatal(err)
			}
			if said, err := exec.Command(program).CombinedOutput(); err != nil || len(said) == 0 {
				t.Errorf("the program says %q, %v", said, err)
			}
		}
	}
	again := t.TempDir()
	if err := archive(f, t.TempDir(), again, "example.test/fam/cache/tool", systems); err != nil {
		t.Fatal(err)
	}
	if a, b := readFile(t, filepath.Join(out, "SHA256SUMS")), readFile(t, filepath.Join(again, "SHA256SUMS")); a != b {
		t.Errorf("the sums are\n%s and then\n%s", a, b)
	}
	files, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	names = append(names, "SHA256SUMS")
	slices.Sort(names)
	if !slices.Equal(files, names) {
		t.Errorf("the files are %q, want %q", files, names)
	}
}

// unpacked returns the files of an archive.
func unpacked(t *testing.T, name string, text []byte) map[string]packed {
	t.Helper()
	files := make(map[string]packed)
	add := func(name string, mode fs.FileMode, from io.Reader) {
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = packed{name, mode.Perm(), content}
	}
	if strings.HasSuffix(name, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			from, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.Mode(), from)
		}
		return files
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		add(h.Name, h.FileInfo().Mode(), r)
	}
}
