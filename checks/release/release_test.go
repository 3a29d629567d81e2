// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// These tests release a family of two small modules without other requirements, in a separate git repository.

var small = map[string]string{
	"LICENSE":      "free\n",
	"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-01-02\n\n### Added\n\n- everything\n",
	"README.md": "# fam\n\n```\ngo get example.test/fam/wheel\ngo get example.test/fam/cache   # too\n```\n\n" +
		"```go\npackage main\n\nimport \"example.test/fam/wheel\"\n\nfunc main() { println(wheel.Spokes) }\n```\n",
	"go.mod":         "module example.test/fam\n\ngo 1.25.0\n",
	"wheel/wheel.go": "package wheel\n\nconst Spokes = 8\n",
	"cache/go.mod":   "module example.test/fam/cache\n\ngo 1.25.0\n\nrequire example.test/fam v0.1.0\n",
	"cache/cache.go": "package cache\n\nimport \"example.test/fam/wheel\"\n\nvar Size = wheel.Spokes\n",
	"checks/go.mod":  "module example.test/fam/checks\n\ngo 1.25.0\n\nrequire example.test/fam/cache v0.1.0\n",
	"checks/release/programs/cache/main.go": "package main\n\nimport \"example.test/fam/cache\"\n\n" +
		"func main() { println(cache.Size) }\n",
	"go.work": "go 1.25.0\n\nuse (\n\t./cache\n\t.\n\t./checks\n)\n\nreplace (\n" +
		"\texample.test/fam/cache v0.1.0 => ./cache\n\texample.test/fam v0.1.0 => ./\n)\n",
}

// repositoryOf creates a repository with the files of small, some of them changed, in one commit.
func repositoryOf(t *testing.T, changed map[string]string) string {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	dir := t.TempDir()
	write(t, dir, small)
	write(t, dir, changed)
	for _, args := range [][]string{
		{"init", "--quiet"}, {"config", "user.name", "test"}, {"config", "user.email", "test@example.test"},
		{"config", "commit.gpgsign", "false"}, {"config", "tag.gpgsign", "false"},
		{"add", "."}, {"commit", "--quiet", "--message", "all"},
	} {
		gitIn(t, dir, args...)
	}
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func family0(t *testing.T, dir string) *family {
	t.Helper()
	f, err := readFamily(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFamily_published_areInTheOrderOfTheirRequirements(t *testing.T) {
	f := family0(t, repositoryOf(t, nil))
	if len(f.published) != 2 || f.published[0].path != "example.test/fam" || f.version != "v0.1.0" ||
		len(f.others) != 1 {
		t.Errorf("published are %v, others %v, at %s", f.published, f.others, f.version)
	}
}

func TestCheck_whatInstalls_passes(t *testing.T) {
	var out bytes.Buffer
	if err := check(family0(t, repositoryOf(t, nil)), t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	if want := "== go get example.test/fam/wheel\n== go get example.test/fam/cache\n"; out.String() != want {
		t.Errorf("it did %q", out.String())
	}
}

func TestCheck_whatDoesNotInstall_fails(t *testing.T) {
	replaced := func(name, old, new string) map[string]string {
		if !strings.Contains(small[name], old) {
			t.Fatalf("%s has no %q", name, old)
		}
		return map[string]string{name: strings.ReplaceAll(small[name], old, new)}
	}
	for name, c := range map[string]struct {
		changed map[string]string
		want    string
	}{
		"a version that is not there": {
			replaced("cache/go.mod", "v0.1.0", "v0.0.0"), "requires example.test/fam v0.0.0, and this is v0.1.0"},
		"a requirement that is missing": {
			replaced("cache/go.mod", "require example.test/fam v0.1.0", ""), "go.mod and go.sum of example.test/fam/cache"},
		"a replace": {
			replaced("cache/go.mod", "v0.1.0", "v0.1.0\n\nreplace example.test/fam => ../"), "has a replace"},
		"the root, which has no package": {
			replaced("README.md", "go get example.test/fam/wheel", "go get example.test/fam/"), "example.test/fam"},
		"another package than the program has": {
			replaced("README.md", "go get example.test/fam/wheel", "go get example.test/fam/spoke"), "spoke"},
		"a module that the README does not have": {
			replaced("README.md", "go get example.test/fam/cache", ""), "does not say how to get example.test/fam/cache"},
		"a package of no module": {
			replaced("README.md", "go get example.test/fam/cache", "go get example.test/cache"), "no published module has"},
		"a program that does not build": {
			replaced("README.md", "wheel.Spokes", "wheel.Tyre"), "wheel.Tyre"},
		"a program that fails": {
			replaced("README.md", "println(wheel.Spokes)", "panic(wheel.Spokes)"), "panic: 8"},
		"a program that prints something else": {
			replaced("README.md", "{ println(wheel.Spokes) }", "{\n\tprintln(wheel.Spokes)\n\t// Output:\n\t// 9\n}"), "and the README says\n9"},
		"a file that git does not have": {
			map[string]string{".gitignore": "hub.go\n", "wheel/hub.go": "package wheel\n\nconst Spokes = 8\n",
				"wheel/wheel.go": "package wheel\n"}, "Spokes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(family0(t, repositoryOf(t, c.changed)), t.TempDir(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A failed download is tried again, and repeated failure is an error.
func TestWorkshop_download_isTriedAgain(t *testing.T) {
	w, err := newWorkshop(family0(t, repositoryOf(t, nil)), t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, pauses := range []int{1, 2} {
		var asked atomic.Int32
		files := http.FileServer(http.Dir(string(w.shelf)))
		proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ".info") && asked.Add(1) <= 2 { // the first that it asks for
				http.Error(rw, "not now", http.StatusServiceUnavailable)
				return
			}
			files.ServeHTTP(rw, r)
		}))
		defer proxy.Close()
		in := *w
		in.pauses = make([]time.Duration, pauses)
		in.env = append(slices.Clip(w.env), "GOPROXY="+proxy.URL)
		_, err := in.download(t.TempDir(), "mod", "download", "example.test/fam@v0.1.0")
		if (err == nil) != (pauses == 2) || err != nil && !strings.Contains(err.Error(), "not now") {
			t.Errorf("two requests fail, and with %d more tries: %v", pauses, err)
		}
	}
}

// A module is packed as a proxy packs its tag.
func TestShelf_put_packsWhatAProxyPacks(t *testing.T) {
	dir := repositoryOf(t, nil)
	write(t, dir, map[string]string{"cache/untracked.o": "x", ".gitignore": "*.o\n.gitignore\n"})
	f, s := family0(t, dir), shelf(t.TempDir())
	for _, m := range f.published {
		if err := s.put(f, m); err != nil {
			t.Fatal(err)
		}
		sums, err := s.sum(f.at(m))
		if err != nil {
			t.Fatal(err)
		}
		if want := sumOfTag(t, dir, f.at(m), "HEAD", m.dir); sums[0] != want {
			t.Errorf("packed %s, and a proxy has %s", sums[0], want)
		}
	}
}

// sumOfTag returns the line of go.sum for a module at a commit.
func sumOfTag(t *testing.T, dir string, v module.Version, revision, sub string) string {
	t.Helper()
	if sub == "." {
		sub = ""
	}
	name := filepath.Join(t.TempDir(), "module.zip")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromVCS(file, v, dir, revision, sub); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	sum, err := dirhash.HashZip(name, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	return v.Path + " " + v.Version + " " + sum
}

func TestTag_makesAReleaseThatHoldsTogether(t *testing.T) {
	dir := repositoryOf(t, nil)
	if err := tag(family0(t, dir), t.TempDir(), "v0.2.0", io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := gitIn(t, dir, "tag", "--list"); got != "cache/v0.2.0\nv0.2.0" {
		t.Errorf("the tags are %q", got)
	}
	if got := gitIn(t, dir, "log", "-1", "--format=%s"); got != "Release v0.2.0" {
		t.Errorf("the commit is %q", got)
	}
	if got := gitIn(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("the working tree has changes: %s", got)
	}
	if got := gitIn(t, dir, "show", "cache/v0.2.0:cache/go.mod"); !strings.Contains(got, "example.test/fam v0.2.0") {
		t.Errorf("the cache requires another version:\n%s", got)
	}
	root := sumOfTag(t, dir, module.Version{Path: "example.test/fam", Version: "v0.2.0"}, "v0.2.0", "")
	lines := strings.Split(gitIn(t, dir, "show", "cache/v0.2.0:cache/go.sum"), "\n")
	if len(lines) != 2 || !slices.Contains(lines, root) {
		t.Errorf("go.sum of the cache is\n%s\nand the root has\n%s", strings.Join(lines, "\n"), root)
	}
	if f := family0(t, dir); f.version != "v0.2.0" || f.rules() != nil {
		t.Errorf("go.work has %s, %v", f.version, f.rules())
	}
	if err := tag(family0(t, dir), t.TempDir(), "v0.2.0", io.Discard); err == nil {
		t.Error("the same version is released again")
	}
}

func TestTag_whatIsNotReady_isRefusedAndLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		changed map[string]string
		want    string
	}{
		"no version":          {"0.2.0", nil, "is not a version"},
		"not whole":           {"v0.2", nil, "is not a version"},
		"another major":       {"v2.0.0", nil, "is not a version"},
		"not in the log":      {"v0.3.0", nil, `no section "[0.3.0]"`},
		"more in Unreleased":  {"v0.2.0", map[string]string{"CHANGELOG.md": "## [Unreleased]\n\n- x\n\n## [0.2.0] - 2026-01-02\n\n- y\n"}, "empty [Unreleased]"},
		"no date":             {"v0.2.0", map[string]string{"CHANGELOG.md": "## [Unreleased]\n\n## [0.2.0]\n\n- y\n"}, "with a date"},
		"nothing in it":       {"v0.2.0", map[string]string{"CHANGELOG.md": "## [Unreleased]\n\n## [0.2.0] - 2026-01-02\n"}, "a change"},
		"what does not build": {"v0.2.0", map[string]string{"cache/cache.go": "package cache\n\nvar Size = Spokes\n"}, "Spokes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repositoryOf(t, c.changed)
			err := tag(family0(t, dir), t.TempDir(), c.version, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left := gitIn(t, dir, "tag", "--list") + gitIn(t, dir, "status", "--porcelain"); left != "" {
				t.Errorf("it leaves %q", left)
			}
		})
	}
	dir := repositoryOf(t, nil)
	write(t, dir, map[string]string{"wheel/new.go": "package wheel\n"})
	if err := tag(family0(t, dir), t.TempDir(), "v0.2.0", io.Discard); err == nil {
		t.Error("a working tree with changes is released")
	}
}

func TestTidy_leavesNoSumOfTheFamily(t *testing.T) {
	dir := repositoryOf(t, map[string]string{"cache/go.sum": "example.test/fam v0.1.0 h1:old=\n"})
	if err := tidy(family0(t, dir), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "cache", "go.sum")); err != nil || strings.TrimSpace(string(text)) != "" {
		t.Errorf("go.sum is %q, %v", text, err)
	}
}

func TestSizes_markdown(t *testing.T) {
	got := markdown([]size{{"example.test/fam", 3, 2, 1.25}})
	if !strings.HasSuffix(got, "\n| `example.test/fam` | 3 | 2 | 1.2 |\n") {
		t.Errorf("got %q", got)
	}
}
