// SPDX-License-Identifier: MIT

//go:build unix

package main

import "syscall"

// ownGroup puts a process into a new process group, so that Ctrl-C in the terminal does not reach it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
