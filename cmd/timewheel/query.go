// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable"
)

// stateNames returns the values of -state.
func stateNames() (names []string) {
	for _, s := range durable.States() {
		names = append(names, s.String())
	}
	return names
}

// A search holds the values of the search flags.
type search struct {
	durable.Query
	all bool
}

// define defines the search flags. all is the help text of -all.
func (s *search) define(f *flag.FlagSet, state bool, all string) {
	f.BoolVar(&s.all, "all", false, all)
	s.defineQuery(f, state)
}

// defineQuery defines the search flags except -all.
func (s *search) defineQuery(f *flag.FlagSet, state bool) {
	textFlag(f, &s.Prefix, "prefix", "tasks whose key begins with `TEXT`")
	textFlag(f, &s.Kind, "kind", "tasks of the `KIND`")
	textFlag(f, &s.Group, "group", "tasks of the `GROUP`, such as a tenant")
	textFlag(f, &s.Failure, "failure", "tasks whose last error contains `TEXT`, or belongs to that group of failures")
	f.BoolVar(&s.Repeating, "repeating", false, "tasks with more than one run left")
	if !state {
		return
	}
	f.Func("state", "tasks in the `STATE`: "+strings.Join(stateNames(), ", "), func(value string) (err error) {
		if s.State, err = durable.ParseState(value); err != nil {
			err = fmt.Errorf("%w%s", err, didYouMean(value, stateNames()))
		}
		return err
	})
}

// given reports whether any search flag was set.
func (s *search) given() bool {
	return s.all || s.Prefix != "" || s.Kind != "" || s.Group != "" || s.Failure != "" || s.Repeating || s.State != durable.AnyState
}

// textFlag defines a flag whose value is text as quoteText writes it.
func textFlag(f *flag.FlagSet, to *string, name, usage string) {
	f.Func(name, usage, func(value string) (err error) {
		*to, err = unquoteText(value)
		return err
	})
}

// someKeys is like keysOf, but requires at least one argument. Without one, it returns the question as an error.
func someKeys(args []string, question string) ([]string, error) {
	if len(args) == 0 {
		return nil, usagef("%s", question)
	}
	return keysOf(args)
}

// keysOf returns the keys that the arguments name.
func keysOf(args []string) ([]string, error) {
	keys := make([]string, len(args))
	for i, arg := range args {
		var err error
		if keys[i], err = unquoteText(arg); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
