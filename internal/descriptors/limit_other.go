// SPDX-License-Identifier: MIT

//go:build !unix

package descriptors

import "math"

// Limit returns math.MaxInt, because the system has no such limit.
func Limit() int { return math.MaxInt }
