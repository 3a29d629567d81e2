// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// mostGroups is how many groups of failures there may be.
const mostGroups = 1000

func (s *Scheduler) failures(ctx context.Context) (f Failures, err error) {
	type name struct{ kind, text string }
	groups := make(map[name]*FailureGroup)
	left := false
	over := stretch{order: byFailing}
	end, err := s.look(ctx, &over, Query{}, s.below.now(), lookFor, func(v view) bool {
		r := v.rec
		if r.paused != 0 { // as in the census
			return true
		}
		of := name{r.kind, groupText(r.failure())}
		g := groups[of]
		if g == nil {
			if len(groups) == mostGroups {
				left = true
				return true
			}
			g = &FailureGroup{Kind: of.kind, Text: of.text, Example: r.key}
			groups[of] = g
		}
		g.Tasks++
		if r.due == never {
			g.Parked++
		}
		if len(r.failed) > 0 && r.failed[0].at > 0 {
			if at := time.Unix(0, r.failed[0].at); at.After(g.Last) {
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

// groupText returns an error with # in place of each number.
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
