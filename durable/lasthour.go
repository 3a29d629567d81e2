// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/series"
	"github.com/seed581295f1/timewheel/internal/recent"
)

// A NodeHour is the last hour of one process that has called Start. A process that restarts under the same name is
// another one, so its node may occur several times.
type NodeHour struct {
	Node    string     // as in [WithNodeName]
	Started time.Time  // when Start was called
	Ended   time.Time  // when its last run had ended after a call to Shutdown; zero if it is running, or has crashed
	Kinds   []KindHour // the busiest kinds first
}

// A KindHour is the last hour of a kind in one process. The Kind is empty for all kinds that are not among the sixteen
// busiest of the process.
type KindHour struct {
	Kind    string
	Minutes []KindMinute // oldest first; a minute without runs and overdue tasks is left out
}

// A KindMinute holds what a process did in one minute for a kind.
type KindMinute struct {
	At        time.Time // the beginning of the minute, by the engine's clock
	Succeeded uint64    // attempts that have succeeded
	Failed    uint64    // attempts that have failed, including cancelled ones

	// Overdue is the number of overdue tasks at the end of the minute, on all nodes together. It is an estimate, and
	// negative if it is not known. See [Scheduler.LastHour].
	Overdue int
}

// LastHour returns what the processes have done in the last hour, including processes that have ended since, by node name and
// start. All times are by the engine's clock. LastHour works on any scheduler, including that of [Connect].
//
// A process that has called Start stores its numbers in the engine once a minute, within ten seconds of the end of the
// minute, if it had runs or overdue tasks. Shutdown stores the rest, and the end, unless the process has run nothing within its
// first minute. So a crash loses up to 70 seconds of these numbers, and no task. A write that fails is repeated a minute later, and is not logged. The
// numbers of a process take some 20 KiB at most. Another process, or the next one, deletes them within an hour or so after
// they are an hour old.
//
// Overdue tasks are counted by [Scheduler.CatchUp]. The number is known if it was called in this process in the last two
// minutes, as package dashboard and package metrics do.
//
// A copy made by [Scheduler.Backup] contains the numbers, but [Scheduler.Restore] does not bring them back.
func (s *Scheduler) LastHour(ctx context.Context) ([]NodeHour, error) {
	if !s.reads.Enter() {
		return nil, failed(ErrStopped, "LastHour", "")
	}
	defer s.reads.Leave()
	hours, err := series.Read(ctx, s.node.Notebook(), s.node.Now())
	if err != nil {
		return nil, failed(err, "LastHour", "")
	}
	all := make([]NodeHour, len(hours))
	for i, h := range hours {
		all[i] = NodeHour{Node: h.Node, Started: time.Unix(0, h.Started)}
		if h.Ended != 0 {
			all[i].Ended = time.Unix(0, h.Ended)
		}
		for _, k := range h.Kinds {
			of := KindHour{Kind: k.Name}
			for _, m := range k.Minutes {
				of.Minutes = append(of.Minutes, KindMinute{time.Unix(m.At*60, 0), m.Succeeded, m.Failed, m.Overdue})
			}
			all[i].Kinds = append(all[i].Kinds, of)
		}
	}
	return all, nil
}

// countedFor is how long a count of overdue tasks is known to LastHour.
const countedFor = 2 * time.Minute

// hourNumbers returns the numbers of each kind that LastHour is about. It asks the engine for nothing.
func (s *Scheduler) hourNumbers() map[string]series.Numbers {
	all := make(map[string]series.Numbers)
	overdue := -1
	var left CatchUp
	if last := s.behind.count.Last(s.node.Era()); !last.Old && recent.Since(last.At) <= countedFor {
		overdue = 0
		left, _ = s.left(last.Value)
	}
	for _, name := range s.kinds.Names() {
		k := s.kind(name)
		all[name] = series.Numbers{Succeeded: k.succeeded.Load(), Failed: k.failed.Load(), Overdue: overdue}
	}
	for _, k := range left.Kinds {
		of := all[k.Kind]
		of.Overdue = k.Left
		all[k.Kind] = of
	}
	return all
}
