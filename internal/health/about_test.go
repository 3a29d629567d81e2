// SPDX-License-Identifier: MIT

package health

import (
	"testing"
	"time"
)

// Each finding that names one kind is about that kind; all other findings are about no kind.
func TestAbout_isTheKindThatTheFindingNames(t *testing.T) {
	failed := func(kind string, n uint64) KindReading { return KindReading{Kind: kind, Failed: n, Failure: "refused"} }
	before := SchedulerReading{Time: noon.Add(-time.Second)}
	for name, c := range map[string]struct {
		now  SchedulerReading
		want map[Kind]string
	}{
		"parked, of one kind": {SchedulerReading{Parked: 40, Kinds: []KindReading{{Kind: "mail", Parked: 40}, {Kind: "sms"}}},
			map[Kind]string{Parked: "mail"}},
		"parked, of two kinds": {SchedulerReading{Parked: 41, Kinds: []KindReading{{Kind: "mail", Parked: 40}, {Kind: "sms", Parked: 1}}},
			map[Kind]string{Parked: ""}},
		"failing":    {SchedulerReading{Kinds: []KindReading{failed("mail", 9), failed("mail: 9", 0)}}, map[Kind]string{Failing: "mail"}},
		"unhandled":  {SchedulerReading{Orphans: []DueReading{{Kind: "a"}, {Kind: "a b", Due: 1}}}, map[Kind]string{Unhandled: "a b"}},
		"paused":     {SchedulerReading{Paused: []DueReading{{Kind: "mail", Due: 1}}}, map[Kind]string{Paused: "mail"}},
		"all paused": {SchedulerReading{Paused: []DueReading{{}}}, map[Kind]string{Paused: ""}},
		"overloaded": {SchedulerReading{Waiting: 1, OldestWait: time.Minute}, map[Kind]string{Overloaded: ""}},
	} {
		c.now.Time = noon
		past := []SchedulerReading{before}
		said := append(JudgeScheduler(c.now, past), NotesOfScheduler(c.now, past)...)
		if len(said) != len(c.want) {
			t.Errorf("%s: it says %+v", name, said)
		}
		for _, f := range said {
			if got := About(f, c.now); got != c.want[f.Kind] {
				t.Errorf("%s: %q is about %q", name, f.Text, got)
			}
		}
	}
}
