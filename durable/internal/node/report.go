// SPDX-License-Identifier: MIT

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// An Info describes a node as the other nodes see it. It is the NodeInfo of package durable.
type Info struct {
	Name  string
	ID    engine.MemberID
	Self  bool          // this is the node that was asked
	Lease time.Duration // length of the node's lease
	Left  time.Duration // time until the lease expires; negative if it has expired

	Report
}

// A Report is a node's report about itself, sent each time it renews its lease. Package durable documents its fields,
// as NodeReport.
type Report struct {
	Held    int       `json:"held"`
	Version string    `json:"version"`
	Kinds   []string  `json:"kinds"`
	More    bool      `json:"more,omitempty"`
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`
	Workers int       `json:"workers"`
	Drained bool      `json:"drained,omitempty"`
	Idle    bool      `json:"idle,omitempty"` // Start has not been called
	Leaving bool      `json:"leaving,omitempty"`
	Away    bool      `json:"away,omitempty"`
	Started time.Time `json:"started"`

	TakenOver []Takeover `json:"taken_over,omitempty"`

	OldestWait time.Duration `json:"oldest_wait,omitempty"`
	SinceStart time.Duration `json:"since_start,omitempty"`

	Busiest KindRuns `json:"busiest,omitzero"`

	Limits []KindLimits `json:"limits,omitempty"`
}

// KindLimits holds the limits of a kind on a node.
type KindLimits struct {
	Kind    string      `json:"kind"`
	Here    limit.Bound `json:"here,omitzero"`
	Cluster limit.Bound `json:"cluster,omitzero"`
}

// KindRuns describes a kind's runs in progress.
type KindRuns struct {
	Kind    string        `json:"kind"`
	Running int           `json:"running"`
	Longest time.Duration `json:"longest"` // how long the longest of the runs has taken, in nanoseconds
}

// A Takeover records that a node's lease expired and another node freed its tasks.
type Takeover struct {
	Node string    `json:"node"` // the name of the node that was taken over, cut to MaxName bytes
	At   time.Time `json:"at"`   // when the tasks were freed, by the asking process's clock
}

// MaxName is the maximum size of a node's name, in bytes.
const MaxName = 200

// report returns a node's report about itself.
func (c *Config) report(w Workload, kinds *Kinds, held int) Report {
	names := kinds.Names()
	slices.Sort(names)
	var limits []KindLimits
	for _, k := range kinds.AllLimited() {
		here, cluster := k.Limiter.Bounds()
		limits = append(limits, KindLimits{k.Name, here, cluster})
	}
	return Report{
		Limits:  limits,
		Version: c.Version, Kinds: names, Held: held, Waiting: w.Waiting, Running: w.Running, Workers: w.Workers, Started: c.Made,
		OldestWait: w.OldestWait, SinceStart: w.SinceStart, Busiest: w.busiest(),
	}
}

// encode returns the report in the format that an engine stores. For each node, only the report with the greatest count
// is valid. encode omits limits and kinds that do not fit, and names that JSON cannot represent.
func (r Report) encode(count uint64) []byte {
	wild := func(kind string) bool { return !utf8.ValidString(kind) }
	if slices.ContainsFunc(r.Kinds, wild) {
		r.Kinds, r.More = slices.DeleteFunc(slices.Clone(r.Kinds), wild), true
	}
	r.Limits = slices.DeleteFunc(slices.Clone(r.Limits), func(l KindLimits) bool { return wild(l.Kind) })
	for {
		b, err := json.Marshal(struct {
			Renewal string `json:"renewal"` // the first field, with a fixed width
			Report
		}{fmt.Sprintf("%016x", count), r})
		if err != nil {
			return nil // a time is after the year 9999
		}
		switch {
		case len(b) <= engine.MaxReport:
			return b
		case len(r.TakenOver) > 1:
			r.TakenOver = r.TakenOver[1:]
		case len(r.Limits) > 0:
			r.Limits = r.Limits[:len(r.Limits)/2]
		default:
			r.Kinds, r.More = r.Kinds[:len(r.Kinds)/2], true
		}
	}
}

const mostTakeovers = 8 // maximum number in a node's report

// takenOver returns the last takeovers in a new slice: those in before, followed by one for each node at the given
// engine time.
func takenOver(before []Takeover, nodes []string, at time.Time) []Takeover {
	all := slices.Clone(before)
	for _, name := range nodes {
		name = strings.ToValidUTF8(name[:min(len(name), MaxName)], "\uFFFD")
		all = append(all, Takeover{name, at})
	}
	return all[max(len(all)-mostTakeovers, 0):]
}

// has reports whether the node may have a handler for the kind.
func (r Report) has(kind string) bool { return r.More || slices.Contains(r.Kinds, kind) }

// Nodes returns the members of the engine, ordered by name and ID. On an own engine it returns only this node.
func (n *Node) Nodes(ctx context.Context) ([]Info, error) {
	if n.alone {
		n.mu.Lock()
		held := len(n.held)
		n.mu.Unlock()
		return []Info{{Name: n.cfg.Name, Self: true, Report: n.cfg.report(n.Work(), n.kinds, held)}}, ctx.Err()
	}
	members, _, err := n.engine.Renew(ctx, 0, nil)
	if err != nil {
		return nil, n.unavailable(ctx, err)
	}
	self := engine.MemberID(0)
	n.mu.Lock()
	held := len(n.held)
	if n.term != nil {
		self = n.term.id
	}
	n.mu.Unlock()
	all := make([]Info, 0, len(members))
	for _, m := range members {
		i := Info{Name: m.Name, ID: m.ID, Self: m.ID == self, Lease: m.Lease, Left: m.Left, Report: reportOf(m)}
		if i.Self {
			i.Held = held
		}
		for j := range i.TakenOver { // convert the times to this process's clock
			i.TakenOver[j].At = time.Now().Add(i.TakenOver[j].At.Sub(time.Unix(0, n.clock.Earliest(n.own()))))
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// reportOf returns the member's report about itself. The report is empty if the member has not renewed its lease yet.
func reportOf(m engine.Membership) (r Report) {
	_ = json.Unmarshal(m.Report, &r)
	return r
}

// namer returns a function that looks up a member's name. The function returns "" if the name is unknown. It asks the
// engine for the names at most once.
func (n *Node) namer(ctx context.Context) func(engine.MemberID) string {
	asked := false
	return func(id engine.MemberID) string {
		if id == 0 {
			return ""
		}
		n.mu.Lock()
		name, ok := n.names[id]
		n.mu.Unlock()
		if ok || asked {
			return name
		}
		asked = true
		members, _, err := n.engine.Renew(ctx, 0, nil)
		if err != nil {
			return ""
		}
		names := make(map[engine.MemberID]string, len(members))
		for _, m := range members {
			names[m.ID] = m.Name
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.names = names
		return names[id]
	}
}
