// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// repository returns the folder of the repository that this program is run in.
func repository() (string, error) {
	work, err := goEnv("GOWORK")
	return filepath.Dir(work), err
}

// goEnv returns what the go command takes for one of its variables.
func goEnv(key string) (string, error) {
	out, err := exec.Command("go", "env", key).Output()
	return strings.TrimSpace(string(out)), err
}

// git runs git in a folder and returns what it prints.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// exe is how the name of a program ends.
func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}
