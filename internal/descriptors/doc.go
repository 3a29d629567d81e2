// SPDX-License-Identifier: MIT

// Package descriptors reads how many file descriptors the process may have open.
package descriptors
