// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// diesHalfway kills processes during Schedule, after each number of commits. The last commit fails, or only its answer
// is lost. The next call leaves no mixture of two versions, whichever version it declares, and reports its own changes.
func diesHalfway(t *testing.T, k *kit.Kit, e engine.Engine, opts ...durable.Option) {
	stays := k.Use(start(t, e, 1, opts...)[0], nil)
	stays.Handle("k", ok)
	set := func(prefix string, version int64) (durable.TaskSet, []string) {
		const tasks = 300 // more than one commit changes
		s := durable.TaskSet{Prefix: prefix, Version: version}
		var keys []string
		for i := range tasks {
			keys = append(keys, fmt.Sprintf("%s%d-%03d", prefix, version, i))
			s.Tasks = append(s.Tasks, durable.Task{Key: keys[i], Kind: "k", Interval: time.Hour})
		}
		return s, keys
	}
	// dies declares a version in a process that dies at the commit with that number, and reports whether it has died.
	dies := func(prefix string, version int64, at int, fault enginetest.Fault) bool {
		link := enginetest.NewLink(e)
		n := k.Use(start(t, link, 1, opts...)[0], nil)
		defer n.Kill()
		n.Handle("k", ok)
		commits, dead := 0, false
		link.SetFaults(func(method string) enginetest.Fault {
			if dead {
				return enginetest.Fault{Fail: true}
			}
			if method == "Commit" || method == "Commit Notes" {
				if commits++; commits == at {
					dead = true
					return fault
				}
			}
			return enginetest.Fault{}
		})
		s, _ := set(prefix, version)
		_, err := n.Schedule(ctx, s)
		if err != nil && !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("Schedule in a process that dies: %v", err)
		}
		return err != nil
	}
	// declare declares a version, and checks that the tasks belong to the version that Schedule reports.
	declare := func(prefix string, version int64, newer int64) {
		t.Helper()
		s, _ := set(prefix, version)
		r, err := stays.Schedule(ctx, s)
		k.Must(err)
		if r.Newer != 0 && r.Newer != newer {
			t.Errorf("%s: Schedule of version %d returns %+v", prefix, version, r)
		}
		_, want := set(prefix, max(version, r.Newer))
		var got []string
		for i, err := range stays.AllPrefix(ctx, prefix, "") {
			k.Must(err)
			got = append(got, i.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: Schedule of version %d returns %+v, and there are %d tasks that are not that version's", prefix, version, r, len(got))
		}
	}
	for how, fault := range map[string]enginetest.Fault{"failed": {Fail: true}, "lost": {Lose: true}} {
		for then, after := range map[string]func(prefix string, at int){
			"the old version":  func(prefix string, _ int) { declare(prefix, 1, 2) },
			"the same version": func(prefix string, _ int) { declare(prefix, 2, 0); declare(prefix, 1, 2) },
			"a newer version":  func(prefix string, _ int) { declare(prefix, 3, 0); declare(prefix, 2, 3) },
			"another that dies": func(prefix string, at int) {
				dies(prefix, 3, at, fault)
				declare(prefix, 1, 3)
				declare(prefix, 3, 0)
			},
		} {
			for at := 1; ; at++ {
				prefix := fmt.Sprintf("%s at %d, then %s/", how, at, then)
				declare(prefix, 1, 0)
				died := dies(prefix, 2, at, fault)
				if !died {
					old, _ := set(prefix, 1)
					if r, err := stays.Schedule(ctx, old); r != (durable.SetResult{Newer: 2}) || err != nil {
						t.Errorf("%s: after Schedule of version 2 has returned nil, that of version 1 returns %+v, %v", prefix, r, err)
					}
				}
				after(prefix, at)
				if !died {
					if at < 5 {
						t.Errorf("%s: Schedule makes %d commits", prefix, at-1)
					}
					break
				}
			}
		}
	}

}
