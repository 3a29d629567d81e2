// SPDX-License-Identifier: MIT

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// Every test named in a table of guarantees must exist, and so must a row for every line of the contract.
func TestGuarantees_nameTestsThatExist(t *testing.T) {
	testkit.NotForRaces(t)
	tests := tests(t, "../*/*_test.go", "../durable/pebble/*_test.go", "../durable/postgres/*_test.go", "../durable/internal/*/*_test.go")
	for file, lines := range map[string]string{
		"../docs/guarantees.md": "T1 T2 T3 T4 T5 T6 T7 K1 K2 K3 K4 K5 K6 K7 K8 K9 L1 L2 L3 L4 L5 L6 S1 S2 S3 S4 S5 S6 C1 C2 C3",
		"../durable/README.md":  "D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 O1 O2 O3 O4 O5 O6",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Fields(lines) {
			row := regexp.MustCompile(`\n\| ` + line + ` \|.*`).Find(text)
			if !strings.Contains(string(row), "`Test") {
				t.Errorf("%s has no row for %s that names a test", file, line)
			}
		}
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)(?:/[^`]*)?`").FindAllStringSubmatch(string(text), -1) {
			there := slices.Contains(tests, m[1])
			if m[2] != "" {
				there = slices.ContainsFunc(tests, func(name string) bool { return strings.HasPrefix(name, m[1]) })
			}
			if !there {
				t.Errorf("%s names %s, which does not exist", file, m[1])
			}
		}
	}
}

// tests returns the names of the tests in the files.
func tests(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)`).FindAllSubmatch(source, -1) {
				names = append(names, string(m[1]))
			}
		}
	}
	return names
}
