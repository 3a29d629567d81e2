// SPDX-License-Identifier: MIT

//go:build unix

package main

import "syscall"

// ownGroup returns attributes that start a process in a new process group, so that Ctrl-C in the terminal does not
// reach it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
