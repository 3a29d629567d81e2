// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every action is pinned to a commit, the token can only read, every job has a time limit, and the nightly job runs
// every part of make nightly.
func TestWorkflows_arePinnedBoundedAndComplete(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	var all string
	for _, name := range files {
		text := readFile(t, name)
		all += text
		for _, use := range regexp.MustCompile(`(?m)^.*\buses:.*$`).FindAllString(text, -1) {
			if !regexp.MustCompile(`^ +- uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(use) {
				t.Errorf("%s: %q names no commit with its version", name, use)
			}
		}
		granted := regexp.MustCompile(`(?m)^permissions:\n  contents: read\n\w`).MatchString(text)
		if !granted || strings.Count(text, "permissions:") != 1 {
			t.Errorf("%s: the permissions are not contents: read alone", name)
		}
		jobs := regexp.MustCompile(`(?m)^    runs-on:`).FindAllString(text, -1)
		limits := regexp.MustCompile(`(?m)^    timeout-minutes: \d+`).FindAllString(text, -1)
		if len(jobs) == 0 || len(limits) != len(jobs) {
			t.Errorf("%s: %d jobs have %d time limits", name, len(jobs), len(limits))
		}
	}
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^(night-\w+):`).FindAllStringSubmatch(readFile(t, "../../Makefile"), -1) {
		targets = append(targets, m[1])
	}
	slices.Sort(targets)
	parts := regexp.MustCompile(`(?m)^ +part: \[(.*)\]$`).FindStringSubmatch(all)
	if parts == nil {
		t.Fatal("no workflow runs make nightly in parts")
	}
	got := strings.Split(parts[1], ", ")
	slices.Sort(got)
	if !slices.Equal(got, targets) {
		t.Errorf("the workflow runs %q, the Makefile has %q", got, targets)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
