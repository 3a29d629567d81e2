// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

// goIn runs the go command in a folder and returns its output.
func goIn(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "INTERLEAVE_EVERY=4")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Yielding statements reveal a race that a plain run does not find.
func TestRewrite_plantedRace_isFound(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "sample"), os.DirFS("testdata/sample")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module planted\n\ngo 1.25.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := goIn(dir, "test", "-vet=off", "./sample"); err != nil {
		t.Fatalf("the plain run fails: %v\n%s", err, out)
	}
	if err := rewrite(dir, "planted", []string{"sample"}); err != nil {
		t.Fatal(err)
	}
	if out, err := goIn(dir, "test", "-vet=off", "-count=1", "./sample"); err == nil || !strings.Contains(out, "called 2 times") {
		t.Errorf("the interleaved run does not find the race: %v\n%s", err, out)
	}
}

func TestRewrite_library_compilesAndKeepsItsLines(t *testing.T) {
	root, err := library.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := library.Copy(root, dir); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(dir, module, core); err != nil {
		t.Fatal(err)
	}
	for _, p := range core {
		if out, err := goIn(dir, "vet", "./"+p); err != nil {
			t.Errorf("%s: %v\n%s", p, err, out)
		}
	}
	for _, name := range []string{"timewheel/loop.go", "timewheel/dispatch.go", "internal/crew/queue.go", "pool/pool.go"} {
		before, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := strings.Count(string(before), "\n"), strings.Count(string(after), "\n"); a != b {
			t.Errorf("%s had %d lines and has %d", name, a, b)
		}
		if n := strings.Count(string(after), "preempt.Point()"); n < 20 {
			t.Errorf("%s has %d points", name, n)
		}
	}
	// The programs of other modules are built with the copy.
	out, err := goIn(dir, "list", "-deps", module+"/checks/soak")
	if err != nil || !strings.Contains(out, module+"/internal/preempt") {
		t.Errorf("the soak is not built with the copy: %v\n%s", err, out)
	}
}

func TestRewrite_packageThatIsNotThere_isAnError(t *testing.T) {
	if err := rewrite(t.TempDir(), module, []string{"gone"}); err == nil {
		t.Error("a package without files was rewritten")
	}
}

// A failure is reported with its output, the seed, and how to repeat it.
func TestRunProgram_failure_saysHowToRepeatIt(t *testing.T) {
	dir := t.TempDir()
	p := program{"false", []string{"-for=0s"}, "."}
	text := "package main\n\nfunc main() { panic(\"broken\") }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := goIn(dir, "build", "-o", binary(dir, p), "main.go"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := config{every: 5}.runProgram(t.Context(), dir, p, 7)
	if err == nil {
		t.Fatal("a program that fails passes")
	}
	for _, want := range []string{"panic: broken", "seed 7", "-seed 7 -every 5 -rounds 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
