// SPDX-License-Identifier: MIT

//go:build !unix

package main

import "syscall"

// ownGroup returns nil, because the system has no process groups.
func ownGroup() *syscall.SysProcAttr { return nil }
