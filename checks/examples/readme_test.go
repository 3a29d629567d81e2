// SPDX-License-Identifier: MIT

package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Each program of the README is built and run as it stands, and prints the lines under its comment Output.
func TestREADME_programs(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(package main.*?// Output:\n(.*?)}\n)```").FindAllSubmatch(text, -1)
	if len(programs) != 2 {
		t.Fatalf("the README has %d programs", len(programs))
	}
	for _, p := range programs {
		dir := t.TempDir()
		source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
		if err := os.WriteFile(source, p[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		run := exec.Command(program)
		run.Dir = dir
		want := regexp.MustCompile(`(?m)^\t// ?`).ReplaceAllString(string(p[2]), "")
		if out, err := run.Output(); err != nil || string(out) != want {
			t.Errorf("it prints %q, %v; want %q", out, err, want)
		}
	}
}
