// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A checker validates a configuration, fills in the defaults, and collects the problems.
type checker struct {
	config   *Config
	getenv   func(string) string
	problems []error
}

func (k *checker) wrong(field, format string, args ...any) {
	k.problems = append(k.problems, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
}

func (k *checker) rate(field string, r *Rate) {
	if r == nil {
		return
	}
	k.positive(field+".per", &r.Per, time.Second)
	if r.Burst == 0 {
		r.Burst = r.Runs
	}
	if r.Runs <= 0 || r.Burst < 0 {
		k.wrong(field, "%d runs with bursts of %d: both must be positive", r.Runs, r.Burst)
	}
}

func (k *checker) positive(field string, d *Duration, byDefault time.Duration) {
	if *d == 0 {
		*d = Duration(byDefault)
	}
	if *d < 0 {
		k.wrong(field, "%v is negative", time.Duration(*d))
	}
}

func (k *checker) oneOf(field string, value *string, allowed ...string) {
	if *value == "" {
		*value = allowed[0]
	}
	if !slices.Contains(allowed, *value) {
		k.wrong(field, "%q must be one of %s", *value, strings.Join(allowed, ", "))
	}
}
