// SPDX-License-Identifier: MIT

package dashboard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/recent"
)

const (
	// hourEvery is for how long the last hour is reused for all pages.
	hourEvery = 30 * time.Second

	hourMinutes = 60
	hourKinds   = 8 // the busiest kinds, which have their own charts
	hourMarks   = 100
	hourNodes   = 100
)

// An hourJSON holds what the processes of a node, or of all nodes, have done in the last hour.
type hourJSON struct {
	Now   time.Time      `json:"now"`
	First time.Time      `json:"first"` // the beginning of the first minute
	Nodes []string       `json:"nodes"`
	Marks []markJSON     `json:"marks"` // oldest first
	Kinds []hourKindJSON `json:"kinds"` // busiest first
}

// A markJSON says when a process started, or ended properly.
type markJSON struct {
	Node  string    `json:"node"`
	At    time.Time `json:"at"`
	Ended bool      `json:"ended"`
}

// An hourKindJSON holds the numbers of a kind in each minute. Kind is empty for all other kinds together.
type hourKindJSON struct {
	Kind      string              `json:"kind"`
	Succeeded [hourMinutes]uint64 `json:"succeeded"`
	Failed    [hourMinutes]uint64 `json:"failed"`
	Overdue   [hourMinutes]int    `json:"overdue"` // on all nodes, at the end of the minute; -1 if unknown
}

func newHourKind(kind string) *hourKindJSON {
	k := &hourKindJSON{Kind: kind}
	for i := range k.Overdue {
		k.Overdue[i] = -1
	}
	return k
}

func (k *hourKindJSON) runs() (n uint64) {
	for i := range hourMinutes {
		n += k.Succeeded[i] + k.Failed[i]
	}
	return n
}

// add adds the numbers of another kind.
func (k *hourKindJSON) add(other *hourKindJSON) {
	for i, due := range other.Overdue {
		k.Succeeded[i] += other.Succeeded[i]
		k.Failed[i] += other.Failed[i]
		if due >= 0 {
			k.Overdue[i] = max(k.Overdue[i], 0) + due
		}
	}
}

// lastHour returns the last hour of a node, or of all nodes if node is empty.
func (b *board) lastHour(ctx context.Context, node string) (hourJSON, error) {
	hours, err := inTurn(ctx, b, func(ctx context.Context) ([]durable.NodeHour, error) {
		if recent.Since(b.hoursAt) < hourEvery {
			return b.hours, nil
		}
		hours, err := b.s.LastHour(ctx)
		if err == nil {
			b.hours, b.hoursAt = hours, time.Now()
		}
		return hours, err
	})
	if err != nil {
		return hourJSON{}, err
	}
	return newHourJSON(hours, node, time.Now()), nil
}

// newHourJSON merges the processes by kind and minute. Overdue tasks are counted on all nodes, so the highest number counts.
func newHourJSON(hours []durable.NodeHour, node string, now time.Time) hourJSON {
	j := hourJSON{Now: now, Nodes: []string{}, Marks: []markJSON{}, Kinds: []hourKindJSON{}}
	end := now
	for _, h := range hours {
		for _, k := range h.Kinds {
			for _, m := range k.Minutes {
				if end == now { // which is in a minute
					end = m.At.Add(now.Sub(m.At) / time.Minute * time.Minute)
				}
				if after := m.At.Add(time.Minute); after.After(end) && after.Sub(end) < time.Hour { // the engine's clock is ahead
					end = after
				}
			}
		}
	}
	j.First = end.Add(-hourMinutes * time.Minute)
	kinds := make(map[string]*hourKindJSON)
	for _, h := range hours {
		name := keyShown(h.Node)
		if !slices.Contains(j.Nodes, name) && len(j.Nodes) < hourNodes {
			j.Nodes = append(j.Nodes, name)
		}
		if node != "" && node != name {
			continue
		}
		for _, m := range []markJSON{{name, h.Started, false}, {name, h.Ended, true}} {
			if !m.At.Before(j.First) {
				j.Marks = append(j.Marks, m)
			}
		}
		for _, k := range h.Kinds {
			of := kinds[k.Kind]
			if of == nil {
				of = newHourKind(keyShown(k.Kind))
				kinds[k.Kind] = of
			}
			for _, m := range k.Minutes {
				if i := int(m.At.Sub(j.First) / time.Minute); !m.At.Before(j.First) && i < hourMinutes {
					of.Succeeded[i] += m.Succeeded
					of.Failed[i] += m.Failed
					of.Overdue[i] = max(of.Overdue[i], m.Overdue)
				}
			}
		}
	}
	slices.SortStableFunc(j.Marks, func(a, b markJSON) int { return a.At.Compare(b.At) })
	j.Marks = j.Marks[max(len(j.Marks)-hourMarks, 0):]
	others := newHourKind("")
	if rest := kinds[""]; rest != nil {
		others.add(rest)
		delete(kinds, "")
	}
	for i, k := range slices.SortedFunc(maps.Values(kinds), func(a, b *hourKindJSON) int {
		return cmp.Or(cmp.Compare(b.runs(), a.runs()), cmp.Compare(a.Kind, b.Kind))
	}) {
		if i < hourKinds {
			j.Kinds = append(j.Kinds, *k)
		} else {
			others.add(k)
		}
	}
	if *others != *newHourKind("") {
		j.Kinds = append(j.Kinds, *others)
	}
	return j
}
