// SPDX-License-Identifier: MIT

package kv

import "github.com/seed581295f1/timewheel/durable/engine"

// NewMemory returns a KV in memory. Package memory sets it, which this package cannot import.
var NewMemory func(exclusive bool) engine.KV
