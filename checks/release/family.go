// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// A family consists of the modules of one repository. The published modules share one version. Each requires the others
// at that version, and go.work replaces each of them, at that version, by its folder. So go.work determines the
// published modules, and the version of the next or the latest release.
type family struct {
	dir     string // the root of the repository
	path    string // the path of the root's module
	version string // the version at which the modules require each other

	published []*member // the root first, and each module after the ones that it requires
	others    []*member // unpublished modules: benchmarks, examples, this program
}

// A member is one module of the family.
type member struct {
	path string
	dir  string // below the root of the repository, "." for the root
	file *modfile.File
}

// readFamily reads go.work and every go.mod that it names.
func readFamily(dir string) (*family, error) {
	f := &family{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, err
	}
	replaced := make(map[string]string) // module path to folder
	for _, r := range work.Replace {
		if f.version == "" {
			f.version = r.Old.Version
		}
		if r.Old.Version != f.version || !semver.IsValid(f.version) {
			return nil, fmt.Errorf("go.work replaces %s, and others at %s", r.Old, f.version)
		}
		replaced[r.Old.Path] = path.Clean(r.New.Path)
	}
	for _, use := range work.Use {
		m := &member{dir: path.Clean(use.Path)}
		if m.file, err = readMod(dir, m.dir); err != nil {
			return nil, err
		}
		m.path = m.file.Module.Mod.Path
		if m.dir == "." {
			f.path = m.path
		}
		folder, ok := replaced[m.path]
		if !ok {
			f.others = append(f.others, m)
			continue
		}
		if folder != m.dir {
			return nil, fmt.Errorf("go.work replaces %s by %s, and its folder is %s", m.path, folder, m.dir)
		}
		f.published = append(f.published, m)
		delete(replaced, m.path)
	}
	if len(replaced) > 0 || f.path == "" {
		return nil, fmt.Errorf("go.work replaces %v, which it does not use, or does not use the root", replaced)
	}
	return f, f.order()
}

func readMod(dir, sub string) (*modfile.File, error) {
	name := filepath.Join(dir, sub, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, data, nil)
}

// all returns every module, the published ones first.
func (f *family) all() []*member { return slices.Concat(f.published, f.others) }

// order puts each published module after the ones that it requires.
func (f *family) order() error {
	rest := f.published
	f.published = nil
	for len(rest) > 0 {
		next := slices.IndexFunc(rest, func(m *member) bool {
			return !slices.ContainsFunc(rest, func(other *member) bool { return m.require(other.path) != "" })
		})
		if next < 0 {
			return errors.New("the published modules require each other in a circle")
		}
		f.published = append(f.published, rest[next])
		rest = slices.Delete(slices.Clone(rest), next, next+1)
	}
	return nil
}

// require returns the version at which the module requires another, or "".
func (m *member) require(path string) string {
	for _, r := range m.file.Require {
		if r.Mod.Path == path {
			return r.Mod.Version
		}
	}
	return ""
}

// rules checks for mistakes that users of the modules on a proxy would notice.
func (f *family) rules() error {
	var errs []error
	for _, m := range f.published {
		if len(m.file.Replace) > 0 {
			errs = append(errs, fmt.Errorf("%s: go.mod has a replace, which counts in this repository alone", m.path))
		}
		if want := f.path + strings.TrimPrefix("/"+m.dir, "/."); m.path != want {
			errs = append(errs, fmt.Errorf("%s: the module of folder %s must be %s", m.path, m.dir, want))
		}
		for _, other := range f.others {
			if m.require(other.path) != "" {
				errs = append(errs, fmt.Errorf("%s requires %s, which is not published", m.path, other.path))
			}
		}
	}
	for _, m := range f.all() {
		for _, sibling := range f.published {
			if v := m.require(sibling.path); v != "" && v != f.version {
				errs = append(errs, fmt.Errorf("%s requires %s %s, and this is %s", m.path, sibling.path, v, f.version))
			}
		}
	}
	return errors.Join(errs...)
}

// find returns the published module that has the package, or nil.
func (f *family) find(pkg string) *member {
	var best *member
	for _, m := range f.published {
		if (pkg == m.path || strings.HasPrefix(pkg, m.path+"/")) && (best == nil || len(m.path) > len(best.path)) {
			best = m
		}
	}
	return best
}

// at returns a module with the version of the family.
func (f *family) at(m *member) module.Version {
	return module.Version{Path: m.path, Version: f.version}
}

// tag returns the git tag of a version of the module.
func (m *member) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}
