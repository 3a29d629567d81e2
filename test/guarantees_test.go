// SPDX-License-Identifier: MIT

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every test that docs/guarantees.md names must exist, and so must a row for every line of the contract.
func TestGuarantees_nameTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)`).FindAllSubmatch(source, -1) {
			tests = append(tests, string(m[1]))
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 31 {
		t.Errorf("docs/guarantees.md names %d tests, and there are 31 promises", len(named))
	}
	for _, m := range named {
		there := slices.Contains(tests, m[1])
		if m[2] != "" {
			there = slices.ContainsFunc(tests, func(name string) bool { return strings.HasPrefix(name, m[1]) })
		}
		if !there {
			t.Errorf("docs/guarantees.md names %s, which does not exist", m[1])
		}
	}
	lines := "T1 T2 T3 T4 T5 T6 T7 K1 K2 K3 K4 K5 K6 K7 K8 K9 L1 L2 L3 L4 L5 L6 S1 S2 S3 S4 S5 S6 C1 C2 C3"
	for _, line := range strings.Fields(lines) {
		if !strings.Contains(string(text), "\n| "+line+" |") {
			t.Errorf("docs/guarantees.md has no row for %s", line)
		}
	}
}
