// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// A checker validates a configuration, fills in the defaults, and collects the problems.
type checker struct {
	config   *Config
	getenv   func(string) string
	form     mistakes // of the file, whose values are then missing
	problems mistakes // all of them
}

// wrong adds a problem, unless the field has no value because of its form.
func (k *checker) wrong(field, format string, args ...any) {
	if !k.form.has(field) {
		k.problems.add(field, "", format, args...)
	}
}

// err returns the problems, or nil if there are none.
func (k *checker) err() error {
	var all []error
	for _, one := range k.problems {
		all = append(all, errors.New(one.String()))
	}
	return errors.Join(all...)
}

// knows reports whether the fields have all the values of the file, so that another field can be compared with them.
func (k *checker) knows(fields ...string) bool {
	return !slices.ContainsFunc(fields, func(field string) bool { return k.form.in(field) != nil })
}

func (k *checker) rate(field string, r *Rate) {
	if r == nil {
		return
	}
	r.Per = cmp.Or(r.Per, Duration(time.Second))
	r.Burst = cmp.Or(r.Burst, r.Runs)
	if r.Runs == 0 {
		k.wrong(field+".runs", "it is missing")
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
