// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

const (
	listedGroups = 10

	// countedGroups is how many groups are counted separately. The tasks of all further groups are counted together.
	countedGroups = 10_000
)

func (g *GroupCounts) add(more GroupCounts) {
	g.Tasks += more.Tasks
	g.Due += more.Due
	if !more.Oldest.IsZero() && (g.Oldest.IsZero() || more.Oldest.Before(g.Oldest)) {
		g.Oldest = more.Oldest
	}
}

func (s *Scheduler) groups(ctx context.Context, q Query) (g Groups, err error) {
	now := s.node.Now()
	over := q.stretch(now)
	type name struct{ kind, group string }
	groups := make(map[name]*GroupCounts)
	further := false
	end, err := s.look(ctx, &over, q, now, cmp.Or(q.For, node.LookFor), func(v node.View) bool {
		one := GroupCounts{Tasks: 1}
		if stateOfView(v, now) == Waiting {
			one.Due, one.Oldest = 1, time.Unix(0, v.Rec.Due)
		}
		of := name{v.Rec.Kind, v.Rec.Group}
		group := groups[of]
		switch {
		case group != nil:
			group.add(one)
		case len(groups) == countedGroups:
			further = true
			g.Others.add(one)
		default:
			one.Kind, one.Group = of.kind, of.group
			groups[of] = &one
		}
		return true
	})
	if err != nil {
		return Groups{}, err
	}
	g.Looked, g.Cut = end.looked, further || !end.whole
	for _, group := range groups {
		g.Largest = append(g.Largest, *group)
	}
	slices.SortFunc(g.Largest, func(a, b GroupCounts) int {
		return cmp.Or(-cmp.Compare(a.Tasks, b.Tasks), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group))
	})
	for len(g.Largest) > listedGroups {
		last := len(g.Largest) - 1
		g.Others.add(g.Largest[last])
		g.Largest = g.Largest[:last]
		g.More++
	}
	return g, nil
}
