// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A node is away while the engine does not do one thing that it needs, although all other calls are answered. It says so
// at any moment, and why, and the log says it once.
func TestAway_whileOneNeedIsNotMet(t *testing.T) {
	for name, c := range map[string]struct {
		method, why string
		hangs       bool
	}{
		"renewals fail":         {"Renew", "renewals of the lease: ", false},
		"renewals hang":         {"Renew", "renewals of the lease: no answer", true},
		"settings fail":         {"Walk Notes", "readings of the settings: ", false},
		"settings hang":         {"Walk Notes", "readings of the settings: no answer", true},
		"claims fail":           {"Claim", "claims: ", false},
		"confirmations fail":    {"Confirm", "confirmations of starts: ", false},
		"confirmations hang":    {"Confirm", "confirmations of starts: no answer", true},
		"commits fail":          {"Commit", "commits: ", false},
		"commits hang":          {"Commit", "commits: no answer", true},
		"nothing but reads do":  {"Get", "", false},
		"everything fails":      {"", "renewals of the lease and readings of the settings", false},
		"everything is too far": {"", "renewals of the lease and readings of the settings", true},
	} {
		t.Run(name, func(t *testing.T) {
			log := testkit.Quiet()
			away, back := 0, 0
			log.AddHook(callingHook(func(e *logrus.Entry) {
				switch {
				case strings.Contains(e.Message, "unavailable"):
					away++
				case strings.Contains(e.Message, "is back"):
					back++
				}
			}))
			kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
				n := k.Nodes[0]
				n.Add(durable.Task{Key: "k", Kind: "note", Interval: time.Second, Times: durable.Forever})
				k.After(10 * time.Second)
				n.Link.SetFaults(func(method string) enginetest.Fault {
					if !strings.HasPrefix(method, c.method) {
						return enginetest.Fault{}
					}
					if c.hangs {
						return enginetest.Fault{Delay: time.Hour, Fail: true}
					}
					return enginetest.Fault{Fail: true}
				})
				k.After(3 * time.Second)
				for i := range 200 {
					s := n.Stats().Node
					if s.Away != (c.why != "") || !strings.HasPrefix(s.AwayWhy, c.why) || s.Away && s.AwayFor < time.Duration(i)*100*time.Millisecond {
						t.Fatalf("after %d tenths of a second: %v for %v: %s", i, s.Away, s.AwayFor, s.AwayWhy)
					}
					soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					_, _ = n.Exist(soon, "other") // which is answered, unless reads fail
					if nodes, err := n.Nodes(soon); c.method != "Renew" && c.method != "" && (err != nil || nodes[0].Away != s.Away) {
						t.Fatalf("the node reports %+v, %v", nodes, err)
					}
					cancel()
					k.After(100 * time.Millisecond)
				}
				n.Link.SetFaults(nil)
				k.After(12 * time.Second) // a commit that hangs is given up after ten
				if nodes, err := n.Nodes(ctx); err != nil || nodes[0].Away {
					t.Fatalf("when it is over the node reports %+v, %v", nodes, err)
				}
				for range 100 {
					if s := n.Stats().Node; s.Away || s.AwayFor != 0 || s.AwayWhy != "" {
						t.Fatalf("when it is over: for %v: %s", s.AwayFor, s.AwayWhy)
					}
					k.After(100 * time.Millisecond)
				}
			}, durable.WithLogger(log))
			if want := min(len(c.why), 1); away != want || back != want {
				t.Errorf("the log says %d times that it is away, and %d times that it is back", away, back)
			}
		})
	}
}
