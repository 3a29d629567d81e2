// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

// circumstances are the data without which figures mean nothing.
type circumstances struct {
	date, command, revision      string
	cpu, system, load            string
	processors                   int
	goVersion, server, libraries string
}

func observe() circumstances {
	return circumstances{
		date:       time.Now().UTC().Format(time.DateOnly),
		command:    "cd bench && go run ./cluster " + rounds.Arguments(),
		cpu:        rounds.CPU(),
		processors: runtime.NumCPU(),
		system:     runtime.GOOS + "/" + runtime.GOARCH,
		goVersion:  runtime.Version(),
		revision:   rounds.Revision(),
		server:     output("postgres", "--version"),
		libraries:  rounds.Versions("github.com/jackc/pgx/v5", "github.com/riverqueue/river"),
		load:       loadAverage(),
	}
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// loadAverage returns the load averages at the end of the measurement. The benchmark itself is part of the load.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) >= 3 {
		return strings.Join(fields[:3], ", ")
	}
	return "unknown"
}
