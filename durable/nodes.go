// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"runtime/debug"
	"slices"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// infosOf returns what a node knows about the nodes.
func infosOf(nodes []node.Info) []NodeInfo {
	all := make([]NodeInfo, len(nodes))
	for i, n := range nodes {
		r := n.Report
		all[i] = NodeInfo{Name: n.Name, ID: n.ID, Self: n.Self, Lease: n.Lease, Left: n.Left, NodeReport: NodeReport{
			Held: r.Held, Version: r.Version, Kinds: r.Kinds, More: r.More, Waiting: r.Waiting, Running: r.Running, Workers: r.Workers,
			Drained: r.Drained, Leaving: r.Leaving, Away: r.Away, Started: r.Started, OldestWait: r.OldestWait, SinceStart: r.SinceStart, Busiest: KindRuns(r.Busiest),
		}}
		for _, l := range r.Limits {
			all[i].Limits = append(all[i].Limits, KindLimits{l.Kind, Limit(l.Here), Limit(l.Cluster)})
		}
		if r.Drained {
			all[i].Kinds, all[i].Limits = nil, nil
		}
		for _, t := range r.TakenOver {
			all[i].TakenOver = append(all[i].TakenOver, Takeover(t))
		}
	}
	return all
}

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

func (s *Scheduler) kindInfos() (all []KindInfo) {
	paused, running := s.kinds.Pauses(), s.node.Work().Kinds
	for _, name := range s.kinds.Names() {
		k := s.kind(name)
		i := KindInfo{
			Kind: name, Attempts: int(k.Policy.Attempts), Least: k.Policy.Least, Most: k.Policy.Most, Missed: Missed(k.Policy.Missed), Paused: paused.Has(name),
			History: k.keeps, Running: running[name].Runs, Longest: running[name].Longest(),
			Started: k.started.Load(), Succeeded: k.succeeded.Load(), Failed: k.failed.Load(), Snoozed: k.snoozed.Load(), Cancelled: k.cancelled.Load(),
			ParkedTotal: k.parked.Load(), GivenUp: k.givenUp.Load(), GivenUpAgain: k.givenUpAgain.Load(), Interrupted: k.interrupted.Load(),
			ParkRepeating: k.Policy.ParkRepeating,
		}
		if k.Limiter != nil {
			here, cluster := k.Limiter.Bounds()
			i.Limit, i.Cluster, i.Tuned = Limit(here), Limit(cluster), here != k.Here || cluster != k.Cluster
			if i.Full = k.Limiter.IsFull(); !i.Paused {
				i.Waiting = k.Limiter.Waiting()
			}
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b KindInfo) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}
