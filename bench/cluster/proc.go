// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is the CPU time of a process, user and system.
type usage struct {
	own      time.Duration
	children time.Duration // children that it has waited for
	parent   int
}

// jiffy is the unit of the times in /proc: USER_HZ is 100 on every Linux.
const jiffy = 10 * time.Millisecond

func cpuOf(pid int) (usage, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return usage{}, err
	}
	return parseStat(string(text))
}

// parseStat reads a line of /proc/PID/stat. The second field may have spaces in it, and ends with the last
// parenthesis.
func parseStat(line string) (usage, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 15 {
		return usage{}, fmt.Errorf("%q is no line of a stat file", line)
	}
	var n [5]int
	for i, at := range []int{1, 11, 12, 13, 14} { // fields 4 and 14 to 17 of proc(5)
		v, err := strconv.Atoi(fields[at])
		if err != nil {
			return usage{}, err
		}
		n[i] = v
	}
	return usage{
		parent: n[0], own: time.Duration(n[1]+n[2]) * jiffy, children: time.Duration(n[3]+n[4]) * jiffy,
	}, nil
}

// cpuOfServer returns the CPU time used by a process and its children, including ended ones.
func cpuOfServer(pid int) (time.Duration, error) {
	first, err := cpuOf(pid)
	if err != nil {
		return 0, err
	}
	sum := first.own + first.children
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		if u, err := parseStat(string(text)); err == nil && u.parent == pid {
			sum += u.own
		}
	}
	return sum, nil
}
