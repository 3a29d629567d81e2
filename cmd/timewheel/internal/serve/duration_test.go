// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"testing"
	"time"
)

// A number of seconds is any JSON number.
func TestDuration_everyNumber(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"1h30m"`: 90 * time.Minute, `1`: time.Second, `0.0001`: 100 * time.Microsecond, `-1.5`: -1500 * time.Millisecond,
		`5e-05`: 50 * time.Microsecond, `1e3`: 1000 * time.Second, `1E+2`: 100 * time.Second, `2.5e-1`: 250 * time.Millisecond,
		`0e0`: 0, `-2e0`: -2 * time.Second, `9.2e9`: 9_200_000_000 * time.Second, `1e-300`: 0,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(d), err)
		}
	}
	for _, text := range []string{`1e10`, `-1e10`, `1e300`, `1e999`, `9300000000`, `true`, `{}`, `[1]`, `"soon"`, `"1e3"`, `""`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s: %v", text, time.Duration(d))
		}
	}
}
