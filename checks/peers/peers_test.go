// SPDX-License-Identifier: MIT

// Package peers runs the tests of other timer libraries on this one. An adapter in testdata implements the API of the
// other library with package timewheel. The tests are downloaded when this test runs.
package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// attempts is how often a failing test is run. Many tests of the peers expect a real timer to fire within some
// milliseconds, which a busy machine cannot guarantee.
const attempts = 5

func TestPeers(t *testing.T) {
	if os.Getenv("PEERS") == "" {
		t.Skip("make peers runs this: it downloads the peers and takes minutes")
	}
	for _, p := range peers {
		t.Run(p.adapter, func(t *testing.T) {
			dir := t.TempDir()
			p.build(t, dir)
			all := p.run(t, dir, ".")
			for range attempts - 1 {
				again := failed(all)
				if len(again) == 0 {
					break
				}
				for name, r := range p.run(t, dir, "^("+strings.Join(again, "|")+")$") {
					if r.passed || !all[name].passed {
						all[name] = r
					}
				}
			}
			t.Logf("%d tests pass, %d fail on purpose", len(all)-len(failed(all)), len(p.differs))
			for _, e := range p.judge(all) {
				t.Error(e)
			}
		})
	}
}

// A result is the result of a test with its subtests, or of an example.
type result struct {
	passed bool
	output string
}

func failed(all map[string]result) []string {
	var names []string
	for name, r := range all {
		if !r.passed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var location = regexp.MustCompile(`[a-z_]+_test\.go:\d+`)

// judge returns the differences between the results and the expected ones.
func (p peer) judge(all map[string]result) []string {
	var errs []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		d, differs := p.differs[name]
		switch {
		case r.passed && differs:
			errs = append(errs, fmt.Sprintf("%s passes, and is listed as different on purpose: %s", name, d.why))
		case !r.passed && !differs:
			errs = append(errs, fmt.Sprintf("%s fails:\n%s", name, r.output))
		case !r.passed:
			at := location.FindAllString(r.output, -1)
			slices.Sort(at)
			if lines := strings.Join(slices.Compact(at), " "); lines != d.at {
				errs = append(errs,
					fmt.Sprintf("%s fails at %s, and on purpose only at %s:\n%s", name, lines, d.at, r.output))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.differs)) {
		if _, ok := all[name]; !ok {
			errs = append(errs, name+" is listed as different on purpose, and there is no such test")
		}
	}
	return errs
}

// build creates a module in dir from the adapter and the tests of the peer.
func (p peer) build(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	var got struct{ Dir, Error string }
	out, err := exec.Command("go", "mod", "download", "-json", p.module+"@"+p.version).Output()
	if json.Unmarshal(out, &got) != nil || got.Dir == "" {
		t.Fatalf("go mod download: %v, %s", err, got.Error)
	}
	tests, err := filepath.Glob(filepath.Join(got.Dir, p.folder, "*_test.go"))
	must(t, err)
	left := maps.Clone(p.leftOut)
	for _, name := range tests {
		base := filepath.Base(name)
		if left[base] != "" {
			delete(left, base)
			continue
		}
		source, err := os.ReadFile(name)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, base), cut(t, base, source, left), 0o644))
	}
	for name := range left {
		t.Errorf("%s is left out, and does not exist", name)
	}
	adapter, err := os.ReadFile(filepath.Join("testdata", p.adapter, "adapter.go"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "adapter.go"), adapter, 0o644))

	const ours = "github.com/seed581295f1/timewheel"
	mod := fmt.Sprintf("module %s\n\ngo 1.25.0\n\nrequire %s v0.1.0\n\nreplace %s => %s\n", p.as, ours, ours, root)
	for _, r := range p.requires {
		mod += "\nrequire " + r + "\n"
	}
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644))
	sums, err := os.ReadFile(filepath.Join(root, "bench", "go.sum")) // it has the peers and their requirements
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644))

	// The adapters that set the clock manually find WithClock where the wheel's tests do.
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "timewheel", "export_peers.go"): filepath.Join(root, "timewheel", "export_test.go"),
	}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
}

// cut returns the source of a file without the functions in left, and removes them from left.
func cut(t *testing.T, name string, source []byte, left map[string]string) []byte {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	must(t, err)
	for _, decl := range slices.Backward(file.Decls) {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || left[name+": "+f.Name.Name] == "" {
			continue
		}
		delete(left, name+": "+f.Name.Name)
		// The other functions keep their line numbers.
		from, to := fset.Position(f.Pos()).Offset, fset.Position(f.End()).Offset
		lines := bytes.Repeat([]byte("\n"), bytes.Count(source[from:to], []byte("\n")))
		source = slices.Concat(source[:from], lines, source[to:])
	}
	return source
}

// run runs the tests that match the pattern, and returns the result of each.
func (p peer) run(t *testing.T, dir, pattern string) map[string]result {
	t.Helper()
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout=10m", "-overlay=overlay.json",
		"-run", pattern, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output() // it is also an error if a test fails
	all := make(map[string]result)
	var other strings.Builder
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output string }
		must(t, json.Unmarshal(line, &event))
		test, _, sub := strings.Cut(event.Test, "/")
		r := all[test]
		switch {
		case test == "":
			other.WriteString(event.Output)
			continue
		case event.Action == "output":
			r.output += event.Output
		case !sub && (event.Action == "pass" || event.Action == "skip"):
			r.passed = true
		}
		all[test] = r
	}
	if len(all) == 0 {
		t.Fatalf("no test has run: %v\n%s%s", err, &other, &stderr)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The check finds differences in invented results.
func TestJudge(t *testing.T) {
	p := peer{differs: map[string]difference{
		"TestStop":  {at: "a_test.go:5", why: "Stop may be called twice"},
		"TestSoon":  {at: "a_test.go:9", why: "no run is early"},
		"TestGone":  {at: "a_test.go:12", why: "it was there"},
		"TestOther": {at: "a_test.go:15", why: "it fails elsewhere"},
	}}
	got := p.judge(map[string]result{
		"TestFine":  {passed: true},
		"TestStop":  {output: "    a_test.go:5: stopped\n"},
		"TestSoon":  {passed: true},
		"TestBad":   {output: "    a_test.go:3: bad\n"},
		"TestOther": {output: "    a_test.go:15: as ever\n    a_test.go:16: and this\n"},
	})
	want := []string{
		"TestBad fails:", "TestOther fails at a_test.go:15 a_test.go:16,", "TestSoon passes", "TestGone is listed",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("it finds\n%s", strings.Join(got, "\n"))
	}
}
