// SPDX-License-Identifier: MIT

package testkit

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// WrongClock writes an overlay for the go command to the directory, and returns its path. In a program built with the
// overlay, package time has a wrong wall clock. The value of the environment variable selects the error: "ahead" or
// "behind" by an hour, or "stepped" by two hours every three seconds. With any other value the clock is correct. Such a
// build takes a minute or two.
//
// The program can also take a stop of its process for a suspension of its machine: stop the process, and call
// [Suspended.Skip] before it continues. The variable named by [SuspendedVariable] has the path of the file. The runtime's
// timers do not stand still meanwhile.
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
		{`_ "unsafe" // for go:linkname`, `"unsafe"`},
		{"\t\treturn subMono(runtimeNano()-startNano, t.ext)", "\t\treturn subMono(runtimeNano()-suspended[0]-startNano, t.ext)"},
		{"\t\treturn subMono(t.ext, runtimeNano()-startNano)", "\t\treturn subMono(t.ext, runtimeNano()-suspended[0]-startNano)"},
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

var suspended = openSuspended()

func openSuspended() *[2]int64 {
	path, _ := syscall.Getenv("` + SuspendedVariable + `")
	file, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return new([2]int64)
	}
	memory, err := syscall.Mmap(file, 0, 16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("no memory for the clock")
	}
	return (*[2]int64)(unsafe.Pointer(&memory[0]))
}

func Now() Time {`},
		{"\tif mono == 0 {", `	sec += wrongBy(mono)
	mono -= suspended[0]
	if by := suspended[1]; by != 0 {
		wall := sec*1e9 + int64(nsec) - by
		sec, nsec = wall/1e9, int32(wall%1e9)
	}
	if mono == 0 {`},
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

// SuspendedVariable is the environment variable with the path of the file of a Suspended.
const SuspendedVariable = "TIMEWHEEL_TEST_SUSPENDED"

// A Suspended is the time that the clocks of a program do not show: see [WrongClock].
type Suspended struct {
	Path       string
	mono, wall time.Duration
}

// NewSuspended returns a Suspended with a new file in the directory.
func NewSuspended(dir string) (*Suspended, error) {
	file, err := os.CreateTemp(dir, "suspended")
	if err != nil {
		return nil, err
	}
	s := &Suspended{Path: file.Name()}
	return s, errors.Join(file.Close(), s.write())
}

// Skip takes a time out of the program's monotonic clock, and out of its wall clock if that does not show it either. The
// process must have been stopped for longer than that.
func (s *Suspended) Skip(d time.Duration, wall bool) error {
	if s.mono += d; wall {
		s.wall += d
	}
	return s.write()
}

// write changes the file in place, because the program has mapped it.
func (s *Suspended) write() error {
	file, err := os.OpenFile(s.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	text := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, uint64(s.mono)), uint64(s.wall))
	_, err = file.WriteAt(text, 0)
	return errors.Join(err, file.Close())
}
