// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clockEnv says how the clock of a process is wrong, if it runs a program of wrongClock.
const clockEnv = "TIMEWHEEL_TEST_CLOCK"

// clocks are the ways in which a clock is wrong.
var clocks = []string{"ahead", "behind", "stepped"}

// wrongClock builds the test program with a package time whose time of day is wrong by an hour, as on a machine
// whose clock is. It takes a minute or two.
func wrongClock(t *testing.T) (programs []program) {
	t.Helper()
	root, err := osexec.Command("go", "env", "GOROOT").Output()
	check(t, err)
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	check(t, err)
	text := string(source)
	replace := func(old, new string) {
		if !strings.Contains(text, old) {
			t.Fatalf("%s does not have %q", original, old)
		}
		text = strings.Replace(text, old, new, 1)
	}
	replace("import (", "import (\n\t\"syscall\"")
	replace("func Now() Time {", `var wrongClock, _ = syscall.Getenv("`+clockEnv+`")

func wrongBy(mono int64) int64 {
	switch wrongClock {
	case "ahead":
		return 3600
	case "behind":
		return -3600
	case "stepped": // each three seconds by two hours
		return 3600 - 7200*(mono/3e9%2)
	}
	return 0
}

func Now() Time {`)
	replace("\tif mono == 0 {", "\tsec += wrongBy(mono)\n\tif mono == 0 {")
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay")
	path := filepath.Join(dir, "wrong")
	check(t, os.WriteFile(changed, []byte(text), 0o600))
	files, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	check(t, err)
	check(t, os.WriteFile(overlay, files, 0o600))
	out, err := osexec.Command("go", "test", "-c", "-overlay", overlay, "-o", path, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, clock := range clocks {
		programs = append(programs, program{clock, path})
	}
	return programs
}
