// SPDX-License-Identifier: MIT

package testkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// WrongClock writes an overlay for the go command to the directory, and returns its path. In a program built with the
// overlay, package time has a wrong wall clock. The value of the environment variable selects the error: "ahead" or
// "behind" by an hour, or "stepped" by two hours every three seconds. With any other value the clock is correct. Such a
// build takes a minute or two.
func WrongClock(dir, variable string) (overlay string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, change := range [][2]string{
		{"import (", "import (\n\t\"syscall\""},
		{"func Now() Time {", `var wrongClock, _ = syscall.Getenv("` + variable + `")

func wrongBy(mono int64) int64 {
	switch wrongClock {
	case "ahead":
		return 3600
	case "behind":
		return -3600
	case "stepped":
		return 3600 - 7200*(mono/3e9%2)
	}
	return 0
}

func Now() Time {`},
		{"\tif mono == 0 {", "\tsec += wrongBy(mono)\n\tif mono == 0 {"},
	} {
		if !strings.Contains(text, change[0]) {
			return "", fmt.Errorf("%s does not have %q", original, change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	changed, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay")
	files, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	return overlay, errors.Join(err, os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, files, 0o600))
}
