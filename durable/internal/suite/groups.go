// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// If one group floods a kind with a limit, Groups shows the number of due tasks and the earliest due time of that group
// and of the other groups.
func groupsOfAFlood(t *testing.T, k *kit.Kit) {
	const sec = time.Second
	begun := time.Now()
	var tasks []durable.Task
	put := func(n int, kind, group string, due time.Duration) {
		for range n {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint("k", len(tasks)), Kind: kind, Group: group, At: begun.Add(due)})
		}
	}
	put(980, "mail", "crowd", sec)
	put(10, "mail", "acme", 5*sec)
	put(10, "mail", "", 7*sec)
	put(1, "mail", "runs", 0)
	put(50, "mail", "later", time.Hour)
	put(5000, "other", "crowd", 0)
	k.Handle("mail", func(context.Context, durable.Run) error { time.Sleep(time.Minute); return nil }, durable.WithClusterConcurrency(1))
	k.Handle("other", ok)
	k.Must(k.PauseKind(ctx, "other"))
	const shared = 10 * sec // until one of the nodes has the whole limit
	k.After(shared)
	begun = begun.Add(shared)
	for i := range tasks {
		tasks[i].At = tasks[i].At.Add(shared)
	}
	k.Add(tasks...)
	k.After(30 * sec)
	g, err := k.On().Groups(ctx, durable.Query{Kind: "mail", State: durable.Waiting})
	if err != nil || g.Cut || g.More != 0 || g.Others.Tasks != 0 || g.Looked != 6001 {
		t.Errorf("the groups are %+v, %v", g, err)
	}
	want := []durable.GroupCounts{
		{Kind: "mail", Group: "crowd", Tasks: 980, Due: 980, Oldest: begun.Add(sec)},
		{Kind: "mail", Group: "", Tasks: 10, Due: 10, Oldest: begun.Add(7 * sec)},
		{Kind: "mail", Group: "acme", Tasks: 10, Due: 10, Oldest: begun.Add(5 * sec)},
	}
	same := func(got, want []durable.GroupCounts) bool {
		for i := range got {
			if i >= len(want) || !got[i].Oldest.Equal(want[i].Oldest) {
				return false
			}
			got[i].Oldest = want[i].Oldest
			if got[i] != want[i] {
				return false
			}
		}
		return len(got) == len(want)
	}
	if !same(g.Largest, want) {
		t.Errorf("the groups are %+v, want %+v", g.Largest, want)
	}
	g, err = k.On().Groups(ctx, durable.Query{Kind: "mail"})
	want = []durable.GroupCounts{want[0], {Kind: "mail", Group: "later", Tasks: 50}, want[1], want[2], {Kind: "mail", Group: "runs", Tasks: 1}}
	if err != nil || g.Cut || !same(g.Largest, want) {
		t.Errorf("all groups are %+v, %v, want %+v", g, err, want)
	}
	if n, err := k.On().Bulk(ctx, durable.Query{Kind: "mail", Group: "crowd"}, durable.DoPause); n != 980 || err != nil {
		t.Fatal(n, err)
	}
	g, err = k.On().Groups(ctx, durable.Query{State: durable.Waiting})
	if err != nil || len(g.Largest) != 3 || g.Largest[0].Kind != "other" || g.Largest[1].Group != "" || g.Largest[2].Due != 10 {
		t.Errorf("when the group is paused the groups are %+v, %v", g, err)
	}
}
