// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Two changes of a key are never in the same commit, and no change overtakes another that shares a key with it.
func TestSplitChanges(t *testing.T) {
	of := func(size int, keys ...string) *change {
		c := &change{size: size}
		for _, key := range keys {
			c.batch = append(c.batch, engine.Write{Record: engine.Record{Key: key}})
		}
		return c
	}
	names := func(changes []*change) (s string) {
		for _, c := range changes {
			for _, w := range c.batch {
				s += w.Key
			}
			s += " "
		}
		return s
	}
	var many []*change
	for i := range 3 * changesMost {
		many = append(many, of(1, fmt.Sprint(i)))
	}
	for _, c := range []struct {
		waiting     []*change
		group, left string
	}{
		{[]*change{of(1, "a")}, "a ", ""},
		{[]*change{of(1, "a"), of(1, "b"), of(1, "c", "d")}, "a b cd ", ""},
		{[]*change{of(1, "a"), of(1, "b"), of(1, "a"), of(1, "c"), of(1, "a")}, "a b c ", "a a "},
		{[]*change{of(1, "a"), of(1, "a", "b"), of(1, "b"), of(1, "c")}, "a c ", "ab b "},
		{[]*change{of(changesBytes+1, "a"), of(1, "b")}, "a ", "b "},
		{[]*change{of(1, "a"), of(1, "a"), of(changesBytes, "b"), of(1, "c")}, "a ", "a b c "},
	} {
		if group, left := splitChanges(c.waiting); names(group) != c.group || names(left) != c.left {
			t.Errorf("%q is split into %q and %q, want %q and %q",
				names(c.waiting), names(group), names(left), c.group, c.left)
		}
	}
	if group, left := splitChanges(many); len(group) != changesMost || len(left) != len(many)-changesMost {
		t.Errorf("of %d the group has %d, and %d are left", len(many), len(group), len(left))
	}
}

// Of consecutive changes that set a key only the last one is written, and none overtakes another change of its key.
// Each caller that is still waiting gets an answer, and only the first of them may have found no task.
func TestSplitChanges_thatSetAKey_areOneWrite(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	names := make(map[*change]string)
	set := func(name, key string, on engine.Condition, ctx context.Context) *change {
		c := newChange(ctx, engine.Write{Record: engine.Record{Key: key, Data: []byte(name)}, If: on}, nil, 1)
		c.answered = make(chan struct{})
		names[c] = name
		return c
	}
	group, left := splitChanges([]*change{
		set("1", "a", engine.Always, t.Context()), set("2", "b", engine.Always, t.Context()), set("3", "a", engine.Always, t.Context()),
		set("4", "a", engine.Always, gone), set("5", "b", engine.IfPresent, t.Context()), set("6", "b", engine.Always, t.Context()),
	})
	if len(group) != 2 || len(left) != 2 || len(group[0].under) != 2 || string(left[0].batch[0].Data) != "5" || string(left[1].batch[0].Data) != "6" {
		t.Fatalf("the group is %+v, and left is %+v", group, left)
	}
	c := group[0].living()
	if string(c.batch[0].Data) != "3" {
		t.Errorf("of the callers that wait the last is %+v", c)
	}
	c.end(engine.Result{Written: []engine.Written{{Revision: 7}}}, nil)
	var heard []string
	for c, name := range names {
		select {
		case <-c.answered:
			heard = append(heard, fmt.Sprint(name, " ", c.err == nil && c.r.Written[0].Replaced, " ", c.err))
		default:
		}
	}
	slices.Sort(heard)
	if want := []string{"1 false <nil>", "3 true <nil>", "4 false context canceled"}; !slices.Equal(heard, want) {
		t.Errorf("the callers hear %q, want %q", heard, want)
	}
	if c := set("7", "a", engine.Always, gone); c.living() != nil {
		t.Error("a change is made whose caller has gone")
	}
}
