// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

// circumstances are the data without which figures mean nothing.
type circumstances struct {
	Date       string
	Command    string
	Quick      bool
	CPU        string
	Processors int
	Memory     string
	System     string
	Go         string
	Revision   string            // commit of this repository
	Versions   map[string]string // versions of the peers' modules
}

// observe collects the circumstances of the machine and of this program.
func observe(arguments []string, quick bool) circumstances {
	return circumstances{
		Date:       time.Now().UTC().Format("2006-01-02"),
		Command:    strings.Join(append([]string{"cd bench && go run ."}, arguments...), " "),
		Quick:      quick,
		CPU:        field("/proc/cpuinfo", "model name", ":"),
		Processors: runtime.GOMAXPROCS(0),
		Memory:     memory(),
		System:     system(),
		Go:         strings.TrimPrefix(runtime.Version(), "go") + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Revision:   rounds.Revision(),
		Versions:   versions(),
	}
}

// field returns the value of a name in a file of names and values, or "unknown".
func field(file, name, separator string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, separator)
		if ok && strings.TrimSpace(before) == name {
			return strings.Trim(strings.TrimSpace(after), `"`)
		}
	}
	return "unknown"
}

// memory returns the size of the memory.
func memory() string {
	var kilobytes float64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal", ":"), "%f kB", &kilobytes); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", kilobytes/(1<<20))
}

// system returns the name and the kernel of the operating system.
func system() string {
	name := field("/etc/os-release", "PRETTY_NAME", "=")
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		name += ", kernel " + strings.TrimSpace(string(kernel))
	}
	return name
}

// versions returns the versions of the modules that this program is built from.
func versions() map[string]string {
	list := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return list
	}
	for _, m := range info.Deps {
		list[m.Path] = m.Version
	}
	return list
}

// version returns the version of a peer.
func (c circumstances) version(d definition) string {
	switch {
	case oursToo(d):
		return "revision " + c.Revision
	case d.module == "":
		return "go" + c.Go
	case c.Versions[d.module] == "":
		return "unknown"
	}
	return d.module + " " + c.Versions[d.module]
}
