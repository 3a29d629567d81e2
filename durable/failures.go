// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// mostGroups is the maximum number of failure groups.
const mostGroups = 1000

func (s *Scheduler) failures(ctx context.Context) (f Failures, err error) {
	type name struct{ kind, text string }
	groups := make(map[name]*FailureGroup)
	left := false
	over := node.Stretch{Order: node.ByFailing}
	end, err := s.look(ctx, &over, Query{}, s.node.Now(), node.LookFor, func(v node.View) bool {
		r := v.Rec
		if r.Paused != 0 { // as in the census
			return true
		}
		of := name{r.Kind, node.GroupText(r.Failure())}
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
