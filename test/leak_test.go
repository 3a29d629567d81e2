// SPDX-License-Identifier: MIT

package test

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The README has a leak check ignore two goroutines: exactly the two that importing ants starts.
func TestReadme_leakCheck_ignoresTheGoroutinesOfAnts(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	ignored := regexp.MustCompile(`goleak\.IgnoreTopFunction\("(.*?)"\)`).FindAllStringSubmatch(string(readme), -1)
	if len(ignored) != 2 {
		t.Fatalf("the README ignores %d functions, and ants starts 2", len(ignored))
	}
	for _, m := range ignored {
		if !strings.Contains(string(stacks), "\n"+m[1]+"(") {
			t.Errorf("no goroutine is in %s", m[1])
		}
	}
}
