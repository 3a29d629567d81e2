// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// report returns a scheduler's report about itself.
func (c *config) report(w workload, kinds *kinds, held int) NodeReport {
	names := kinds.names()
	slices.Sort(names)
	return NodeReport{
		Version: c.version, Kinds: names, Held: held, Waiting: w.Waiting, Running: w.Running, Workers: w.Workers, Started: c.made,
		OldestWait: w.OldestWait, SinceStart: w.sinceStart, Busiest: w.busiest(),
	}
}

// encode returns the report in the format that an engine stores. For each node, only the report with the greatest count
// is valid. encode omits kinds that do not fit and names that JSON cannot represent.
func (r NodeReport) encode(count uint64) []byte {
	wild := func(kind string) bool { return !utf8.ValidString(kind) }
	if slices.ContainsFunc(r.Kinds, wild) {
		r.Kinds, r.More = slices.DeleteFunc(slices.Clone(r.Kinds), wild), true
	}
	for {
		b, err := json.Marshal(struct {
			Renewal string `json:"renewal"` // the first field, with a fixed width
			NodeReport
		}{fmt.Sprintf("%016x", count), r})
		if err != nil {
			return nil // a time is after the year 9999
		}
		switch {
		case len(b) <= engine.MaxReport:
			return b
		case len(r.TakenOver) > 1:
			r.TakenOver = r.TakenOver[1:]
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
		name = strings.ToValidUTF8(name[:min(len(name), MaxNodeName)], "\uFFFD")
		all = append(all, Takeover{name, at})
	}
	return all[max(len(all)-mostTakeovers, 0):]
}

// has reports whether the node may have a handler for the kind.
func (r NodeReport) has(kind string) bool { return r.More || slices.Contains(r.Kinds, kind) }

// buildVersion returns the version of this package from the build information, or "" if it is not listed there.
func buildVersion() string {
	const path = "github.com/seed581295f1/timewheel/durable"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != path {
			continue
		}
		if m.Replace != nil && m.Replace.Version != "" {
			return m.Replace.Version
		}
		return m.Version
	}
	return ""
}

func (n *node) nodes(ctx context.Context) ([]NodeInfo, error) {
	if n.alone {
		n.mu.Lock()
		held := len(n.held)
		n.mu.Unlock()
		return []NodeInfo{{Name: n.cfg.name, Self: true, NodeReport: n.cfg.report(n.work(), n.kinds, held)}}, ctx.Err()
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
	all := make([]NodeInfo, 0, len(members))
	for _, m := range members {
		i := NodeInfo{Name: m.Name, ID: m.ID, Self: m.ID == self, Lease: m.Lease, Left: m.Left, NodeReport: reportOf(m)}
		if i.Self {
			i.Held = held
		}
		for j := range i.TakenOver { // convert the times to this process's clock
			i.TakenOver[j].At = time.Now().Add(i.TakenOver[j].At.Sub(time.Unix(0, n.clock.Earliest(n.own()))))
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b NodeInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// reportOf returns the member's report about itself. The report is empty if the member has not renewed its lease yet.
func reportOf(m engine.Membership) (r NodeReport) {
	_ = json.Unmarshal(m.Report, &r)
	return r
}

// namer returns a function that looks up a member's name. The function returns "" if the name is unknown. It asks the
// engine for the names at most once.
func (n *node) namer(ctx context.Context) func(engine.MemberID) string {
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

func (s *Scheduler) kindInfos() (all []KindInfo) {
	paused, running := s.kinds.pauses(), s.node.work().kinds
	for _, name := range s.kinds.names() {
		k := s.kinds.get(name)
		i := KindInfo{
			Kind: name, Attempts: int(k.policy.Attempts), Least: k.policy.Least, Most: k.policy.Most, Missed: Missed(k.policy.Missed), Paused: paused.Has(name),
			Limit: Limit(k.Here), Cluster: Limit(k.Cluster), History: k.keeps, Running: running[name].runs, Longest: running[name].longest(),
			Started: k.started.Load(), Succeeded: k.succeeded.Load(), Failed: k.failed.Load(), Snoozed: k.snoozed.Load(), Cancelled: k.cancelled.Load(),
			ParkedTotal: k.parked.Load(), GivenUp: k.givenUp.Load(), GivenUpAgain: k.givenUpAgain.Load(),
			ParkRepeating: k.policy.ParkRepeating,
		}
		if k.Limiter != nil && !i.Paused {
			i.Waiting = k.Limiter.Waiting()
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b KindInfo) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}
