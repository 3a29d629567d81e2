// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// addGroup adds n tasks of the kind "k", due one microsecond apart. Their keys begin with the group and a colon.
func addGroup(k *kit.Kit, group string, n int, delay time.Duration) {
	k.T.Helper()
	tasks := make([]durable.Task, n)
	for i := range tasks {
		tasks[i] = durable.Task{
			Key: fmt.Sprintf("%s:%d", group, i), Kind: "k", Group: group,
			Delay: delay + time.Duration(i)*time.Microsecond,
		}
	}
	k.Add(tasks...)
}

func notInShortMode(t *testing.T) {
	t.Helper()
	testkit.NotForRaces(t)
	if testing.Short() {
		t.Skip("not in short mode")
	}
}

// groupOf returns the group of a call for a task of addGroup.
func groupOf(c kit.Call) string { return c.Key[:strings.IndexByte(c.Key, ':')] }

// A group delays the others by one run each, however many of its tasks are due before them, and however they come into
// memory.
func TestLimit_ofAGroupWithMany_delaysNoOther(t *testing.T) {
	testkit.NotForRaces(t)
	const many, groups, few = 5 * gateMost, 5, 10
	for _, name := range []string{"many", ""} {
		if testing.Short() && name == "" {
			continue
		}
		work := func(k *kit.Kit) { k.Handle("k", sleeper(sec/10), durable.WithConcurrency(1)) }
		add := func(k *kit.Kit) {
			addGroup(k, name, many, sec)
			for i := range groups {
				addGroup(k, fmt.Sprint("few", i), few, 3*sec)
			}
		}
		ran := func(t *testing.T, k *kit.Kit) {
			t.Helper()
			k.After(sec * few * (groups + 2) / 10)
			count := make(map[string]int)
			for _, c := range k.Runs() {
				count[groupOf(c)]++
			}
			for i := range groups {
				if n := count[fmt.Sprint("few", i)]; n != few {
					t.Errorf("%d of group %d ran: %v", n, i, count)
				}
			}
			if count[name] < few {
				t.Errorf("%v", count)
			}
		}
		t.Run("due now/"+name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				work(k)
				add(k)
				k.After(3*sec - tick)
				k.Runs()
				ran(t, k)
			})
		})
		t.Run("overdue/"+name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", sleeper(0))
				add(k)
				k.Crash()
				k.After(hour)
				work(k)
				k.Start()
				ran(t, k)
			})
		})
		t.Run("handled late/"+name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", sleeper(0))
				add(k)
				k.Crash()
				k.Start()
				k.After(hour)
				work(k)
				ran(t, k)
			})
		})
		t.Run("caught up slowly/"+name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", sleeper(0))
				add(k)
				k.Crash()
				k.After(hour)
				k.Handle("k", sleeper(tick), durable.WithConcurrency(1))
				k.Start()
				ran(t, k)
			}, durable.WithCatchUp(11))
		})
	}
}

// The tasks of a group run in due order, including tasks added while others of the group are left to the store. The
// same holds for more groups than there is room for, with one task each.
func TestLimit_ofAGroup_isInDueOrder(t *testing.T) {
	testkit.NotForRaces(t)
	const many = 2 * gateMost
	for name, group := range map[string]func(i int) int{
		"two groups":  func(i int) int { return i % 2 },
		"many groups": func(i int) int { return i },
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", sleeper(tick), durable.WithConcurrency(1))
				add := func(i int, delay time.Duration) {
					g := fmt.Sprint(group(i % many))
					k.Add(durable.Task{Key: fmt.Sprint(g, ":", i), Kind: "k", Group: g, Delay: delay})
				}
				for i := range many {
					add(i, sec+time.Duration(i))
				}
				k.After(sec + 2*tick) // tasks due at one tick are queued in any order
				first := k.Runs()
				k.After(many / 8 * tick)
				for i := range many {
					add(many+i, 1) // as many as run, so that the group always has tasks in memory
					k.After(tick)
				}
				k.After(hour)
				last, calls := make(map[string]time.Time), k.Runs()
				for _, c := range calls {
					if g := groupOf(c); c.Due.Before(last[g]) {
						t.Fatalf("%s, due at %v, has run after one of %v", c.Key, c.Due, last[g])
					} else {
						last[g] = c.Due
					}
				}
				if ran := len(first) + len(calls); ran != 2*many {
					t.Errorf("%d have run", ran)
				}
			})
		})
	}
}

// If few tasks are held because of large payloads, the others are left to the store, and none is lost.
func TestLimit_ofLargePayloads(t *testing.T) {
	const tasks = 400
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		draw := rand.New(rand.NewPCG(3, 4))
		k.Handle("k", sleeper(tick), durable.WithConcurrency(2))
		for i := range tasks {
			g := fmt.Sprint(draw.IntN(3))
			size := 1 << draw.IntN(20)
			k.Add(durable.Task{
				Key: fmt.Sprint(g, ":", i), Kind: "k", Group: g, Payload: make([]byte, size),
				Delay: sec + time.Duration(draw.Int64N(int64(sec))),
			})
		}
		if calls := k.RunsAfter(hour); len(calls) != tasks || k.Len() != 0 {
			t.Errorf("%d have run, %d are left", len(calls), k.Len())
		}
	})
}

// Two groups with more tasks than are held take turns until one of them has none left.
func TestLimit_ofTwoGroupsWithMany_isEven(t *testing.T) {
	const many, most = 5 * gateMost, 5 * gateMost / 50
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(tick), durable.WithConcurrency(20))
		addGroup(k, "b", many, 3*sec) // after all of the other
		addGroup(k, "a", many, 2*sec)
		k.After(3*sec + 2*tick)
		k.Runs()
		k.After(hour)
		count, left := make(map[string]int), k.Len()
		for _, c := range k.Runs() {
			count[groupOf(c)]++
			if d := count["a"] - count["b"]; (d < -most || d > most) && count["a"] < many-2*gateMost {
				t.Fatalf("%v", count)
			}
		}
		if left != 0 {
			t.Errorf("%d are left", left)
		}
	})
}

// All groups run in bounded memory, even if there are more than there is room for.
func TestLimit_ofManyGroups(t *testing.T) {
	testkit.NotForRaces(t)
	const groups, each = 3 * gateMost, 2
	for _, name := range []string{"one after the other", "interleaved"} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", sleeper(tick), durable.WithConcurrency(20))
				for i := range groups {
					delay := sec + time.Duration(i)*time.Millisecond
					for j := range each {
						if name == "interleaved" {
							delay = sec + time.Duration(j)*sec
						}
						key, group := fmt.Sprint(j, ":", i), fmt.Sprint(i)
						k.Add(durable.Task{Key: key, Kind: "k", Group: group, Delay: delay})
					}
				}
				addGroup(k, "many", gateMost, sec)
				for range 100 {
					k.After(sec / 5)
					if held, _ := durable.InMemory(k.Scheduler, "k"); held > gateMost {
						t.Fatalf("%d are held", held)
					}
				}
				held, _ := durable.InMemory(k.Scheduler, "k")
				if calls := k.Runs(); len(calls) != each*groups+gateMost || k.Len() != 0 || held != 0 {
					t.Errorf("%d have run, %d are left, %d held", len(calls), k.Len(), held)
				}
			})
		})
	}
}

// While a group has more due tasks than are held, later tasks of other groups take no room from it.
func TestLimit_ofWhatIsDueLater(t *testing.T) {
	notInShortMode(t)
	const many, others, took = 5 * gateMost, 3 * gateMost, 10 * time.Millisecond
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(took), durable.WithConcurrency(10))
		for i := range others {
			k.Add(durable.Task{Key: fmt.Sprint("other:", i), Kind: "k", Group: fmt.Sprint(i), Delay: 40 * sec})
		}
		addGroup(k, "many", many, 10*sec)
		if calls := k.RunsAfter(10*sec + many/10*(took+took/10)); len(calls) != many {
			t.Errorf("%d of %d have run", len(calls), many)
		}
		k.After(20*sec + others/10*took)
		late := lateness(k, k.Runs(), "k")
		if len(late) != others || late[len(late)-1] > others/10*(took+took/10)+2*tick {
			t.Errorf("%d ran, up to %v late", len(late), late)
		}
	})
}

// A group whose tasks fall due while another has more due tasks than are held takes its turns from then on.
func TestLimit_ofWhatIsDueLater_takesTurns(t *testing.T) {
	notInShortMode(t)
	const many, others = 5 * gateMost, 2 * gateMost
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(sec/10), durable.WithConcurrency(10))
		addGroup(k, "many", many, sec)
		k.After(3 * sec)
		for i := range others {
			k.Add(durable.Task{Key: fmt.Sprint("other:", i), Kind: "k", Group: fmt.Sprint(i), Delay: 17 * sec})
		}
		k.After(17*sec + 2*tick)
		k.Runs()
		k.After(5 * sec)
		count := make(map[string]int)
		for _, c := range k.Runs() {
			count[groupOf(c)]++
		}
		if count["other"] < 460 || count["many"] > 40 { // some of the many are in memory when the others fall due
			t.Errorf("%v", count)
		}
	})
}

// Tasks left to the store are read in time and when there is room, although no run ends and nothing else happens.
func TestLimit_ofWhatIsLeft_whileNothingEnds(t *testing.T) {
	const many = gateMost / 2
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(hour), durable.WithConcurrency(2*many))
		for i := range 2*many - 1 {
			k.Add(durable.Task{Key: fmt.Sprint("other:", i), Kind: "k", Group: fmt.Sprint(i), Delay: 50 * sec})
		}
		addGroup(k, "many", many, 10*sec)
		k.Add(durable.Task{Key: "many:last", Kind: "k", Group: "many", Delay: 25 * sec})
		if calls := k.RunsAfter(10*sec + 2*tick); len(calls) != many {
			t.Errorf("%d of %d have run", len(calls), many)
		}
		k.After(15 * sec)
		ranAt(k, "many:last", 25*sec)
	}, durable.WithPoolSize(2*many))
}

// A task is not late because its kind's limiter holds as many tasks as it may, and they are due later.
func TestLimit_ofWhatIsDueEarlier(t *testing.T) {
	const later = 200
	kinds := []string{"one", "quick", "rate"}
	test := func(t *testing.T, k *kit.Kit, most time.Duration) {
		for _, n := range k.Nodes {
			n.Handle("one", sleeper(51*time.Millisecond), durable.WithConcurrency(1))
			n.Handle("quick", sleeper(0), durable.WithConcurrency(1))
			n.Handle("rate", sleeper(0), durable.WithRate(50, sec, 1))
		}
		for i := range 9 {
			k.Add(durable.Task{Key: fmt.Sprint("first", i), Kind: "quick"}) // so that the runs are known to be quick
		}
		if n := len(k.RunsAfter(sec)); n != 9 {
			t.Fatalf("%d runs", n)
		}
		for _, kind := range kinds {
			k.Add(durable.Task{Key: "moved:" + kind, Kind: kind, Delay: hour})
			tasks := make([]durable.Task, later)
			for i := range tasks {
				tasks[i] = durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: 1800 * time.Millisecond}
			}
			k.Add(tasks...)
		}
		k.After(sec/2 + 15*time.Millisecond) // the limiters are full, and the next claim is 85 ms away
		last := k.Nodes[len(k.Nodes)-1]
		for _, kind := range kinds {
			k.Must(last.SetTask(ctx, durable.Task{Key: "soon:" + kind, Kind: kind, Delay: 30 * time.Millisecond}),
				last.SetTask(ctx, durable.Task{Key: "single:" + kind, Kind: kind, Delay: 300 * time.Millisecond}),
				last.Reschedule(ctx, "moved:"+kind, 200*time.Millisecond))
			k.Add(durable.Task{Key: "batch1:" + kind, Kind: kind, Delay: 400 * time.Millisecond},
				durable.Task{Key: "batch2:" + kind, Kind: kind, Delay: 450 * time.Millisecond})
		}
		k.After(150 * time.Millisecond)
		for _, n := range k.Nodes {
			if held, _ := durable.InMemory(n.Scheduler, "one"); held > 1 {
				t.Errorf("%d are held, for one run at once", held)
			}
		}
		calls := k.RunsAfter(sec - 150*time.Millisecond)
		for _, c := range calls {
			if c.Late > most {
				t.Errorf("%s was %v late", c.Key, c.Late)
			}
		}
		if len(calls) != 5*len(kinds) {
			t.Errorf("%d runs in time", len(calls))
		}
		if calls := k.RunsAfter(20 * sec); len(calls) != len(kinds)*later {
			t.Errorf("%d of %d have run", len(calls), len(kinds)*later)
		}
	}
	t.Run("own", func(t *testing.T) { kit.OnOwn(t, func(t *testing.T, k *kit.Kit) { test(t, k, 2*tick) }) })
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint("nodes ", nodes), func(t *testing.T) {
			kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) { test(t, k, 2*tick) })
		})
	}
}
