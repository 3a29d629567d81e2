// SPDX-License-Identifier: MIT

package durable_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// The simulation also finds no violation on a KV without a clock, and on one for a single process.
func TestSimulation_onKV(t *testing.T) {
	t.Parallel()
	counts := make(map[string]int)
	for name, on := range map[string]func(*memory.KV) engine.KV{
		"no clock":  func(m *memory.KV) engine.KV { return memory.NoClock(m) },
		"exclusive": func(m *memory.KV) engine.KV { return memory.Exclusive(m) },
	} {
		t.Run(name, func(t *testing.T) {
			walks(t, simWalks, 50, 10, func(t *testing.T, seed uint64) {
				m := memory.New()
				e, err := kv.New(ctx, on(m))
				if err != nil {
					t.Fatal(err)
				}
				locks := enginetest.NewLocks(e)
				if e = locks; name != "no clock" {
					e = restartable{locks, m.Restart}
				}
				simulate(t, seed, "", e).agrees(t, counts)
			})
		})
	}
}
