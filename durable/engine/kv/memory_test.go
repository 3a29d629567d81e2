// SPDX-License-Identifier: MIT

package kv_test

import (
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

func init() {
	kv.NewMemory = func(exclusive bool) engine.KV {
		if exclusive {
			return memory.Exclusive(memory.New())
		}
		return memory.New()
	}
}
