// SPDX-License-Identifier: MIT

package kv_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// open returns an Engine on the KV.
func open(t testing.TB, on engine.KV) engine.Engine {
	t.Helper()
	e, err := kv.New(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEngine_keepsTheContract(t *testing.T) {
	for name, subject := range map[string]func(t *testing.T, m *memory.KV) enginetest.Subject{
		"clock": func(t *testing.T, m *memory.KV) enginetest.Subject {
			return enginetest.Subject{Engine: open(t, m), Restart: func(*testing.T) { m.Restart() }}
		},
		"no clock": func(t *testing.T, m *memory.KV) enginetest.Subject {
			return enginetest.Subject{Engine: open(t, memory.NoClock(m))}
		},
		"exclusive": func(t *testing.T, m *memory.KV) enginetest.Subject {
			return enginetest.Subject{Engine: open(t, memory.Exclusive(m))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Test(t, func(t *testing.T) enginetest.Subject { return subject(t, memory.New()) })
		})
	}
}
