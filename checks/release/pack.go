// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// A shelf is a folder with packed modules, laid out as a module proxy serves them: the go command reads it as
// GOPROXY=file://….
type shelf string

// put packs a module of the family onto the shelf, as a proxy would pack a commit of the working tree: the files known
// to git, without nested modules, and the licence of the root.
func (s shelf) put(f *family, m *member) error {
	files, err := f.files(m)
	if err != nil {
		return err
	}
	v := f.at(m)
	dir, err := s.dir(v.Path)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, v.Version)
	mod, err := os.ReadFile(filepath.Join(f.dir, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{v.Version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for file, text := range map[string][]byte{
		name + ".mod": mod, name + ".info": info, filepath.Join(dir, "list"): []byte(v.Version + "\n"),
	} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	packed, err := os.Create(name + ".zip")
	if err != nil {
		return err
	}
	if err := zip.Create(packed, v, files); err != nil {
		_ = packed.Close()
		return fmt.Errorf("packing %s: %w", v, err)
	}
	return packed.Close()
}

// dir creates the folder of a module.
func (s shelf) dir(modulePath string) (string, error) {
	escaped, err := module.EscapePath(modulePath)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(string(s), filepath.FromSlash(escaped), "@v")
	return dir, os.MkdirAll(dir, 0o755)
}

// deny makes the shelf answer that there is no such module. To find the module of a package, the go command asks for
// each part of its path: it must not ask a public proxy for names of this family.
func (s shelf) deny(modulePath string) error {
	dir, err := s.dir(modulePath)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "list")
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	return os.WriteFile(name, nil, 0o644)
}

// sum returns the lines of go.sum for a module on the shelf.
func (s shelf) sum(v module.Version) ([]string, error) {
	dir, err := s.dir(v.Path)
	if err != nil {
		return nil, err
	}
	packed, err := dirhash.HashZip(filepath.Join(dir, v.Version+".zip"), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(dir, v.Version+".mod"))
	})
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s %s %s", v.Path, v.Version, packed),
		fmt.Sprintf("%s %s/go.mod %s", v.Path, v.Version, mod),
	}, nil
}

// files returns the files of a module.
func (f *family) files(m *member) ([]zip.File, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", m.dir)
	list.Dir = f.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(f.dir, name)) // removed, but still in git's index
		return err != nil
	})
	var nested []string // the folders of other modules
	for _, name := range names {
		if dir := path.Dir(name); path.Base(name) == "go.mod" && dir != m.dir {
			nested = append(nested, dir+"/")
		}
	}
	var files []zip.File
	licensed := false
	for _, name := range names {
		if slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			continue
		}
		in := strings.TrimPrefix(name, m.dir+"/")
		licensed = licensed || in == "LICENSE"
		files = append(files, file{in, filepath.Join(f.dir, name)})
	}
	if !licensed {
		files = append(files, file{"LICENSE", filepath.Join(f.dir, "LICENSE")})
	}
	return files, nil
}

// A file is a packed file.
type file struct{ path, name string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.name) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.name) }
