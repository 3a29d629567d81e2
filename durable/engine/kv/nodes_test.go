// SPDX-License-Identifier: MIT

package kv_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// Schedulers on a shared Engine on a KV keep the contract of every scheduler. Package durable tests an exclusive one.
func TestNodes_keepTheContract(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		on    func(*memory.KV) engine.KV
	}{
		{"three", 3, func(m *memory.KV) engine.KV { return m }},
		{"no clock", 2, func(m *memory.KV) engine.KV { return memory.NoClock(m) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.nodes == 3 {
				testkit.NotForRaces(t) // as many races as "no clock"
			}
			suite.Test(t, c.nodes, func(t *testing.T) engine.Engine { return open(t, c.on(memory.New())) })
		})
	}
}
