// SPDX-License-Identifier: MIT

package postgres_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// A walk over the largest tasks sends a few of them at a time, also behind small ones. It yields all of them.
func TestWalk_ofLargeTasks_readsFewAtATime(t *testing.T) {
	e := open(t)
	const small, large = 100, 24
	data := bytes.Repeat([]byte("x"), durable.MaxPayload)
	var want []string
	for i := range small + large {
		w := add(fmt.Sprintf("%03d", i), int64(i+1))
		w.Failing = true
		if i >= small {
			w.Data = data
		}
		commit(t, e, 0, w)
		want = append(want, w.Key)
	}
	for _, over := range []engine.Range{
		{After: engine.Position{Due: engine.None}, Until: math.MaxInt64}, {Order: engine.ByKey}, {Order: engine.Failing},
	} {
		var got []string
		for s, err := range e.Walk(t.Context(), over) {
			check(t, err)
			got = append(got, s.Key)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in the order %d it yields %q", over.Order, got)
		}
	}
	for name, from := range map[string][]any{
		"due": {int64(small), []byte("099"), int64(math.MaxInt64), 1024}, "byKey": {[]byte("100"), 1024}, "failing": {[]byte("100"), 1024},
	} {
		rows, err := connect(t, shared.URL()).Query(t.Context(), postgres.Statements(e)[name], from...)
		check(t, err)
		n := 0
		for rows.Next() {
			n++
		}
		if check(t, rows.Err()); n != 4 {
			t.Errorf("a page of %s has %d MiB, want 4", name, n)
		}
	}
}
