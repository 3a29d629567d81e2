// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestDidYouMean(t *testing.T) {
	names := []string{"mail.send", "a b\n"}
	for wrong, want := range map[string]string{
		"mail.sned": " (did you mean mail.send?)",
		"a b":       " (did you mean \"a b\\n\"?)",
		"mail":      "",
	} {
		if got := didYouMean(wrong, names); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}

// An unknown kind is paused, because its tasks may come later, and the command says that it is unknown.
func TestPauseKind_thatIsUnknown(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		got := r.do("pause-kind", "mial", "mail")
		if got.code != done || timeless(got.out) != "Kind mail is paused, AT, by ann.\nKind mial is paused, AT, by ann.\n" ||
			got.err != "timewheel: no task has kind mial (did you mean mail?)\n" {
			r.Errorf("pause-kind: %+v", got)
		}
		if got := r.do("resume-kind", "mial", "mail"); got.code != done || got.err != "" {
			r.Errorf("resume-kind: %+v", got)
		}
	})
}

// Kinds that the nodes of a cluster handle count as known, and stats names the kinds that no node handles.
func TestKinds_ofNodes(t *testing.T) {
	r := inDatabase(t)
	r.restore(fixture(t))
	e := r.engine()
	defer e.Close()
	s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
	check(t, err)
	for _, kind := range []string{"order", "invoice"} {
		check(t, s.Handle(kind, func(context.Context, durable.Run) error { return nil }))
	}
	for { // its kinds are known once it has renewed its lease
		if nodes, err := s.Nodes(t.Context()); err != nil || len(nodes) == 1 && len(nodes[0].Kinds) == 2 {
			check(t, err)
			break
		}
	}
	got := r.do("pause-kind", "invioce", "invoice")
	if got.code != done || got.err != "timewheel: no task has kind invioce, and no node handles it (did you mean invoice?)\n" {
		t.Errorf("pause-kind: %+v", got)
	}
	if got := r.must("stats"); !regexp.MustCompile(`(?m)^Kind mail has no handler on any node\.$`).MatchString(got) ||
		strings.Count(got, "no handler") != 1 {
		t.Errorf("the stats are\n%s", got)
	}
	if got := r.must("stats", "-json"); !strings.Contains(got, `"unhandled":["mail"]`) {
		t.Errorf("the stats are %s", got)
	}
	check(t, s.Shutdown(t.Context()))
}
