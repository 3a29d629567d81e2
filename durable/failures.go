// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// mostGroups is the maximum number of failure groups.
const mostGroups = 1000

func (s *Scheduler) failures(ctx context.Context) (f Failures, err error) {
	type name struct{ kind, text string }
	groups := make(map[name]*FailureGroup)
	left := false
	over := stretch{order: byFailing}
	end, err := s.look(ctx, &over, Query{}, s.node.now(), lookFor, func(v view) bool {
		r := v.rec
		if r.Paused != 0 { // as in the census
			return true
		}
		of := name{r.Kind, groupText(r.Failure())}
		g := groups[of]
		if g == nil {
			if len(groups) == mostGroups {
				left = true
				return true
			}
			g = &FailureGroup{Kind: of.kind, Text: of.text, Example: r.Key}
			groups[of] = g
		}
		g.Tasks++
		switch {
		case r.IsParked():
			g.Parked++
		case !r.HasFailed():
			g.GivenUp++
		}
		if len(r.Failed) > 0 && r.Failed[0].At > 0 {
			if at := time.Unix(0, r.Failed[0].At); at.After(g.Last) {
				g.Last = at
			}
		}
		return true
	})
	if err != nil {
		return f, err
	}
	f.Looked, f.Cut = end.looked, left || !end.whole
	for _, g := range groups {
		f.Groups = append(f.Groups, *g)
	}
	slices.SortFunc(f.Groups, func(a, b FailureGroup) int {
		return cmp.Or(-cmp.Compare(a.Tasks, b.Tasks), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return f, nil
}

// groupText returns the text of an error with each number replaced by #.
func groupText(s string) string {
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
	if !strings.ContainsFunc(s, isDigit) {
		return s
	}
	var b strings.Builder
	digit := false
	for _, r := range s {
		switch {
		case !isDigit(r):
			b.WriteRune(r)
		case !digit:
			b.WriteByte('#')
		}
		digit = isDigit(r)
	}
	return b.String()
}
