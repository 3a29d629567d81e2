// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

// A change of the code from which a mutant is made must also change the mutant.
func TestList_everyMutant_fitsTheCode(t *testing.T) {
	root, err := library.Root()
	if err != nil {
		t.Fatal(err)
	}
	argued, err := os.ReadFile(filepath.Join(root, "test", "MUTANTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := parseLists()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range mutants {
		if seen[m.name] {
			t.Errorf("%s: there are two of that name", m.name)
		}
		seen[m.name] = true
		if _, err := m.files(root); err != nil {
			t.Error(err)
		}
		if m.survives != strings.Contains(string(argued), "| "+m.name+" |") {
			t.Errorf("%s: survives in the list: %v, and not so in MUTANTS.md", m.name, m.survives)
		}
	}
	if len(seen) < 40 {
		t.Errorf("there are %d mutants", len(seen))
	}
}

func TestParse_whatIsNotAList_isAnError(t *testing.T) {
	for _, text := range []string{
		"@ file", "-line", "= name\n-line before a file", "= name\n@ file\nneither kept nor changed",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
}

func TestFiles_textThatIsNotThereOnce_isAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("one\ntwo\ntwo\nthree\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for hunks, want := range map[string]string{
		"-one\n+1":          "1\ntwo\ntwo\nthree\n",
		" one\n-two":        "one\ntwo\nthree\n",
		"-one\n+1\n@ f\n-1": "two\ntwo\nthree\n",
		"-two":              "",
		"-wo":               "",
		"-four":             "",
	} {
		all, err := parse("= m\n@ f\n" + hunks)
		if err != nil {
			t.Fatal(err)
		}
		if files, err := all[0].files(dir); files["f"] != want || (err == nil) != (want != "") {
			t.Errorf("%q makes %q: %v", hunks, files["f"], err)
		}
	}
}

func TestRun_mutantThatIsKilledAndOneThatSurvives(t *testing.T) {
	for test, survives := range map[string]bool{"Test": false, "TestNone": true} {
		stages := []stage{{"tests", []string{"test", "-run=^" + test, packages}}}
		var out bytes.Buffer
		err := run(t.Context(), regexp.MustCompile("^crew: one starter too many$"), all, stages, &out, io.Discard)
		if (err != nil) != survives || strings.Contains(out.String(), "SURVIVES") != survives ||
			!strings.Contains(out.String(), "1 mutants") {
			t.Errorf("tests %s: %v\n%s", test, err, &out)
		}
	}
}

func TestPart_ofTheMutants(t *testing.T) {
	var second part
	if err := second.UnmarshalText([]byte("2/4")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false, false, false, true} {
		if second.has(i) != want || !all.has(i) {
			t.Errorf("mutant %d: %v, want %v", i, second.has(i), want)
		}
	}
	for _, text := range []string{"", "2", "0/4", "5/4", "1/0", "x/y"} {
		if err := new(part).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a part", text)
		}
	}
}

// The tests of its own package are to find a mutant, whichever packages the list names.
func TestFinders_haveTheOwnPackage(t *testing.T) {
	for tests, want := range map[string]string{"./b": "./a ./b", "./b ./a ./c": "./a ./b ./c"} {
		all, err := parse("tests " + tests + "\n= m\n@ a/f.go\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(all[0].finders(), " "); got != want {
			t.Errorf("tests %s: %s, want %s", tests, got, want)
		}
	}
}
