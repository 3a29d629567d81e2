// SPDX-License-Identifier: MIT

package peers

// A peer is a library whose tests run on this one.
type peer struct {
	module, version string
	folder          string   // of the package, in the module
	adapter         string   // the folder of ours in testdata
	as              string   // the path of the module with the adapter and the tests
	requires        []string // modules that the tests import

	leftOut map[string]string     // files of tests, and "file: function", with the reason why they cannot run
	differs map[string]difference // tests that are expected to fail
}

// A difference contains the lines at which a test fails, and how this library differs.
type difference struct{ at, why string }

const internals = "it looks into the structure of that library, not at what a timer does"

// The versions come from bench/go.mod. Two libraries of MIGRATING.md are missing: ouqiang/timewheel has no tests, and
// the tests of package time need internal packages of Go.
var peers = []peer{
	{
		module: "github.com/RussellLuo/timingwheel", version: "v0.0.0-20220218152713-54845bda3108",
		adapter: "russellluo", as: "github.com/RussellLuo/timingwheel",
		leftOut: map[string]string{"bucket_test.go": internals},
	},
	{
		module: "github.com/antlabs/timer", version: "v0.1.4",
		adapter: "antlabs", as: "github.com/antlabs/timer",
		leftOut: map[string]string{
			"min_heap_node_test.go":     internals,
			"t_test.go":                 internals,
			"time_wheel_test.go":        internals,
			"timer_wheel_utils_test.go": internals,
		},
	},
	{
		module: "github.com/zeromicro/go-zero", version: "v1.10.3", folder: "core/collection",
		adapter: "gozero", as: "github.com/seed581295f1/timewheel/peers/gozero",
		requires: []string{"github.com/zeromicro/go-zero v1.10.3", "github.com/stretchr/testify v1.12.1"},
		leftOut: map[string]string{
			"cache_test.go":         "it tests another type",
			"fifo_test.go":          "it tests another type",
			"ring_test.go":          "it tests another type",
			"rollingwindow_test.go": "it tests another type",
			"safemap_test.go":       "it tests another type",
			"set_test.go":           "it tests another type",
		},
		differs: map[string]difference{
			"TestTimingWheel_Drain": {"timingwheel_test.go:59",
				"Drain works after Stop, and there it returns ErrClosed"},
			"TestTimingWheel_RemoveTimer": {"timingwheel_test.go:187",
				"RemoveTask works after Stop, and there it returns ErrClosed"},
			"TestTimingWheel_MoveTimerSoon": {"timingwheel_test.go:151 timingwheel_test.go:152",
				"a run is never early: a task that is moved to half a tick from now is due at the next tick, " +
					"and there it runs at once"},
		},
	},
	{
		module: "github.com/rfyiamcool/go-timewheel", version: "v1.1.0",
		adapter: "rfyiamcool", as: "github.com/rfyiamcool/go-timewheel",
		requires: []string{"github.com/stretchr/testify v1.12.1"},
		leftOut: map[string]string{
			"timer_test.go: TestCalcPos":          internals,
			"timer_test.go: TestStopTicker2":      internals,
			"timer_test.go: TestResetStopWithSec": internals,
			"timer_test.go: TestTickerSecond": "it wants 101 runs in 110 ms, one a millisecond: on a busy machine a " +
				"repeating task misses some, here and there",
		},
	},
}
