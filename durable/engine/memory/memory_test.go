// SPDX-License-Identifier: MIT

package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kvtest"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

func TestKV_keepsTheContract(t *testing.T) {
	for name, open := range map[string]func() engine.KV{
		"memory":    func() engine.KV { return memory.New() },
		"no clock":  func() engine.KV { return memory.NoClock(memory.New()) },
		"exclusive": func() engine.KV { return memory.Exclusive(memory.New()) },
		"limited": func() engine.KV {
			return memory.Limited(engine.Limits{Value: 100_000, Operations: 128, Bytes: 10_000_000})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kvtest.Test(t, func(*testing.T) engine.KV { return open() })
		})
	}
}

func TestKV_hasTheCapabilitiesThatItIsGiven(t *testing.T) {
	kv := memory.New()
	for name, c := range map[string]struct {
		kv               engine.KV
		clock, exclusive bool
	}{
		"memory":    {kv, true, false},
		"no clock":  {memory.NoClock(kv), false, false},
		"exclusive": {memory.Exclusive(kv), true, true},
	} {
		_, clock := c.kv.(engine.Clock)
		_, alone := c.kv.(engine.Exclusive)
		if clock != c.clock || alone != c.exclusive {
			t.Errorf("%s: it has a clock: %v, and is exclusive: %v", name, clock, alone)
		}
	}
}

// The clock is that of the bubble, and a test can set it.
func TestKV_clock_isThatOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv, began := memory.New(), time.Now()
		is := func(wantNow, wantUp time.Duration) {
			t.Helper()
			now, up, err := kv.Now(t.Context())
			if err != nil || now != began.Add(wantNow).UnixNano() || up != began.Add(wantUp).UnixNano() {
				t.Errorf("it is %d, and up since %d (%v)", now, up, err)
			}
		}
		kv.Restart()
		is(0, 0)
		time.Sleep(time.Hour)
		is(time.Hour, 0)
		kv.Step(-time.Minute)
		kv.Restart()
		is(59*time.Minute, 59*time.Minute)
	})
}

// A commit that is too large has no effect, and its error names the exceeded limit.
func TestKV_limits(t *testing.T) {
	large := engine.Tx{
		If:     []engine.Check{{Key: "j"}},
		Put:    []engine.Entry{{Key: "abc", Value: []byte("defg")}},
		Delete: []string{"hi"},
	}
	for _, l := range []engine.Limits{{Value: 3}, {Operations: 2}, {Bytes: 9}} {
		kv := memory.Limited(l)
		_, err := kv.Commit(t.Context(), large)
		if !errors.Is(err, engine.ErrTooLarge) || !errors.Is(err, engine.ErrNotDone) {
			t.Errorf("%+v: the error is %v", l, err)
		}
	}
	if _, err := memory.Limited(engine.Limits{Value: 4, Operations: 3, Bytes: 10}).Commit(t.Context(), large); err != nil {
		t.Error(err)
	}
}
