// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The groups of a kind share its runs on all nodes evenly, however many tasks one group has due before the others.
func TestLimit_groupsOfACluster_takeTurns(t *testing.T) {
	testkit.NotForRaces(t)
	const crowd, few, took = 5000, 20, 100 * time.Millisecond
	for _, nodes := range []int{1, 3} {
		for name, limit := range map[string]durable.KindOption{
			"concurrency": durable.WithClusterConcurrency(6), "rate": durable.WithClusterRate(60, sec, 6),
		} {
			t.Run(fmt.Sprint(nodes, " ", name), func(t *testing.T) {
				kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) {
					k.Handle("k", sleeper(took), limit)
					var tasks []durable.Task
					for i := range crowd {
						tasks = append(tasks, durable.Task{Key: fmt.Sprint("crowd/", i), Kind: "k", Group: "crowd", Delay: sec})
					}
					groups := []string{"a", "b", ""}
					for _, group := range groups {
						for i := range few {
							tasks = append(tasks, durable.Task{
								Key: fmt.Sprint(group, "/", i), Kind: "k", Group: group, Delay: 20 * sec,
							})
						}
					}
					k.Nodes[0].Add(tasks...)
					k.After(20 * sec)
					k.Runs()
					k.After(2 * few / 6 * 4 * took * 2)
					ran := make(map[string]int)
					for _, call := range k.Runs() {
						group, _, _ := strings.Cut(call.Key, "/")
						ran[group]++
					}
					for _, group := range groups {
						if ran[group] < few || ran["crowd"] < few {
							t.Fatalf("%v", ran)
						}
					}
					_, err := k.Nodes[0].RemovePrefix(ctx, "crowd/")
					k.Must(err)
				})
			})
		}
	}
}
