// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// repository returns the folder of the repository in which this program runs.
func repository() (string, error) {
	work, err := goEnv("GOWORK")
	return filepath.Dir(work), err
}

// goEnv returns the value of a variable of the go command.
func goEnv(key string) (string, error) {
	out, err := exec.Command("go", "env", key).Output()
	return strings.TrimSpace(string(out)), err
}

// git runs git in a folder and returns its output.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// exe returns the extension of a program's name.
func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}
