// SPDX-License-Identifier: MIT

package rounds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An interrupted run continues with the samples that are kept, and takes the failed ones again.
func TestPlan_keepsSamples(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept")
	var taken []string
	failing := "b/y"
	plan := Plan{
		Rounds: 2, Cases: []string{"a", "b"}, Peers: []string{"x", "y"}, Kept: file,
		Applies: func(c, p string) bool { return c == "b" || p == "x" },
	}
	measure := func() []Sample {
		t.Helper()
		taken = nil
		samples, err := plan.Measure(func(c, p string) Sample {
			taken = append(taken, c+"/"+p)
			if c+"/"+p == failing {
				return Sample{Failure: "of the test"}
			}
			return Sample{Figures: map[string]float64{"n": float64(len(taken))}}
		})
		if err != nil {
			t.Fatal(err)
		}
		return samples
	}
	first := measure()
	if want := []string{"a/x", "b/x", "b/y", "a/x", "b/y", "b/x"}; !slices.Equal(taken, want) || len(first) != len(want) {
		t.Fatalf("it took %v, and returns %+v", taken, first)
	}
	failing = ""
	if again := measure(); !slices.Equal(taken, []string{"b/y", "b/y"}) || again[1].Figures["n"] != 2 {
		t.Errorf("then it took %v, and returns %+v", taken, again)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := strings.TrimSuffix(string(text), "}\n")
	if err := os.WriteFile(file, []byte(half), 0o600); err != nil {
		t.Fatal(err)
	}
	if measure(); !slices.Equal(taken, []string{"b/y"}) {
		t.Errorf("after a crash it took %v", taken)
	}
	if measure(); taken != nil {
		t.Errorf("then it took %v again", taken)
	}
}

// A report names neither the file of the samples nor where it is, however the flag is written.
func TestArguments_leaveOutTheSamples(t *testing.T) {
	for _, args := range []string{"-kept /tmp/f -out R.md", "-out R.md --kept /tmp/f", "-kept=/tmp/f -out R.md", "-out R.md --kept=/tmp/f", "-out R.md -kept"} {
		if got := withoutKept(strings.Fields(args)); got != "-out R.md" {
			t.Errorf("of %q remains %q", args, got)
		}
	}
}
