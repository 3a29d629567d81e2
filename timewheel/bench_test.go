// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// bench runs f with few live tasks and with many: the number of tasks may affect the result only through memory access.
func bench(b *testing.B, f func(b *testing.B, live int)) {
	b.Helper()
	for _, live := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			b.ReportAllocs()
			f(b, live)
		})
	}
}

func benchKeys(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	return keys
}

// benchWheel returns a running wheel with one live task per key, each due after some hours.
func benchWheel(b *testing.B, keys []string) *TimeWheel {
	b.Helper()
	tw := NewTimeWheel(10*time.Millisecond, 4096)
	b.Cleanup(tw.Stop)
	tw.Start()
	for i, key := range keys {
		mustAdd(b, tw, key, time.Hour+time.Duration(i)*time.Millisecond)
	}
	tw.loop.do(func() {})
	return tw
}

func mustAdd(b testing.TB, tw *TimeWheel, key string, d time.Duration) {
	if err := tw.AddTask(&Task{Key: key, Interval: d, Job: ignore}); err != nil {
		b.Fatal(err)
	}
}

// New keys are added, and removed in batches outside the measurement, so that the number of live tasks stays roughly
// constant.
func BenchmarkAdd(b *testing.B) {
	bench(b, func(b *testing.B, live int) {
		tw := benchWheel(b, benchKeys("live-", live))
		fresh := benchKeys("fresh-", live/4)
		n := 0
		for b.Loop() {
			if n == len(fresh) {
				b.StopTimer()
				for _, key := range fresh {
					_ = tw.RemoveTask(key)
				}
				tw.loop.do(func() {})
				n = 0
				b.StartTimer()
			}
			mustAdd(b, tw, fresh[n], 30*time.Minute)
			n++
		}
	})
}

func BenchmarkAddRemove(b *testing.B) {
	bench(b, func(b *testing.B, live int) {
		tw := benchWheel(b, benchKeys("live-", live))
		fresh := benchKeys("fresh-", 1<<16)
		n := 0
		for b.Loop() {
			key := fresh[n%len(fresh)]
			n++
			mustAdd(b, tw, key, 30*time.Minute)
			if err := tw.RemoveTask(key); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReschedule(b *testing.B) {
	for _, c := range []struct {
		name string
		to   func(turn int) time.Duration
	}{
		{"farther", func(turn int) time.Duration { return 100*time.Hour + time.Duration(turn)*time.Second }},
		{"nearer", func(turn int) time.Duration { return 100*time.Hour - time.Duration(turn)*time.Second }},
	} {
		b.Run(c.name, func(b *testing.B) {
			bench(b, func(b *testing.B, live int) {
				keys := benchKeys("live-", live)
				tw := benchWheel(b, keys)
				for _, key := range keys {
					if err := tw.Reschedule(key, c.to(0)); err != nil {
						b.Fatal(err)
					}
				}
				tw.loop.do(func() {})
				n := 0
				for b.Loop() {
					if err := tw.Reschedule(keys[n%live], c.to(1+n/live)); err != nil {
						b.Fatal(err)
					}
					n++
				}
			})
		})
	}
}

// A walk over all tasks, none of which has the prefix.
func BenchmarkAllPrefix(b *testing.B) {
	bench(b, func(b *testing.B, live int) {
		tw := benchWheel(b, benchKeys("live-", live))
		for b.Loop() {
			for key := range tw.AllPrefix("fresh-") {
				b.Fatal(key)
			}
		}
	})
}

// A tick with few due tasks, while many tasks wait in its slot for a later circle and in all other slots.
func BenchmarkLayout_tickWithFewDue(b *testing.B) {
	const slots, due = 1024, 4
	bench(b, func(b *testing.B, waiting int) {
		l := newLayout(Hashed, slots, 0)
		entries := make([]entry, waiting)
		for i := range entries {
			entries[i].at = 1<<40*slots + uint64(i)
			l.place(&entries[i])
		}
		near := make([]entry, due)
		for b.Loop() {
			at := l.now + 1
			for i := range near {
				near[i].at = at
				l.place(&near[i])
			}
			if list, tick, _ := l.advance(at); len(list) != due || tick != at {
				b.Fatal("the due tick does not come next")
			}
		}
	})
}

func BenchmarkLayout_tickWithNothingDue(b *testing.B) {
	bench(b, func(b *testing.B, waiting int) {
		l := newLayout(Hashed, 1024, 0)
		entries := make([]entry, waiting)
		for i := range entries {
			entries[i].at = 1<<62 + uint64(i)
			l.place(&entries[i])
		}
		for b.Loop() {
			if _, _, more := l.advance(l.now + 1); more {
				b.Fatal("something is due")
			}
		}
	})
}

// Five million tasks with a delay of half an hour, added within ten seconds. The benchmark reports the longest visit
// before the first task is due, and the longest visit with due tasks, excluding the dispatcher's work.
func BenchmarkLayout_longestVisit(b *testing.B) {
	for _, kind := range []Layout{Hashed, Hierarchical} {
		b.Run(kind.String(), func(b *testing.B) {
			const tasks, within, far = 5_000_000, 1000, 180_000 // ticks of 10 ms
			entries := make([]entry, tasks)
			for b.Loop() {
				l := newLayout(kind, 1024, 0)
				for i := range entries {
					entries[i] = entry{at: far + uint64(i)*within/tasks}
					l.place(&entries[i])
				}
				runtime.GC()
				longest, out := time.Duration(0), 0
				for l.next() != never {
					start := time.Now()
					due, _, _ := l.advance(l.next())
					longest = max(longest, time.Since(start))
					for _, e := range due {
						e.place = 0
					}
					out += len(due)
				}
				if out != tasks {
					b.Fatalf("%d of %d came out", out, tasks)
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
			}
		})
	}
}

// A tick with n due tasks, until the last job has ended. The jobs do nothing, and the tasks repeat.
func BenchmarkDispatch(b *testing.B) {
	for _, due := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("due=%d", due), func(b *testing.B) {
			b.ReportAllocs()
			const tick = time.Millisecond
			hand := clock.NewFake(0)
			tw := NewTimeWheel(tick, 1024, WithClock(hand))
			b.Cleanup(tw.Stop)
			var left atomic.Int64
			all := make(chan struct{})
			job := func(*Task) {
				if left.Add(-1) == 0 {
					all <- struct{}{}
				}
			}
			for _, key := range benchKeys("", due) {
				if err := tw.AddTask(&Task{Key: key, Interval: tick, Times: Forever, Job: job}); err != nil {
					b.Fatal(err)
				}
			}
			tw.Start()
			for b.Loop() {
				left.Store(int64(due))
				tw.loop.do(func() { hand.Advance(tick) }) // on the loop, which looks at the clock next
				<-all
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*due), "ns/run")
		})
	}
}
