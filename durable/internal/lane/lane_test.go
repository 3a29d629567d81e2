// SPDX-License-Identifier: MIT

package lane

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Two groups are in progress at a time, and the other requests form one. A lone request that takes long delays no
// other.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []string
		finish := make(chan struct{})
		started := make(chan string, 10)
		all := func(some []string) (group, left []string) { return some, nil }
		l := New(1, all, func(group []string) {
			started <- fmt.Sprint(group)
			<-finish
		})
		see := func(want ...string) {
			t.Helper()
			synctest.Wait()
			for range len(started) {
				groups = append(groups, <-started)
			}
			if got := fmt.Sprint(groups); got != fmt.Sprint(want) {
				t.Fatalf("the groups are %s, want %v", got, want)
			}
		}
		for _, r := range []string{"a", "b", "c", "d"} {
			l.Post(r)
			synctest.Wait()
		}
		see("[a]", "[b]")
		finish <- struct{}{}
		see("[a]", "[b]", "[c d]")
		l.Post("e")
		see("[a]", "[b]", "[c d]")
		time.Sleep(waiting) // b or a, alone, takes long
		see("[a]", "[b]", "[c d]", "[e]")
		l.Post("f")
		l.Post("g")
		see("[a]", "[b]", "[c d]", "[e]")
		finish <- struct{}{} // one of three: c and d, b or a, or e
		finish <- struct{}{}
		finish <- struct{}{}
		see("[a]", "[b]", "[c d]", "[e]", "[f g]")
		waited := make(chan struct{})
		go func() { l.Wait(); close(waited) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("wait has returned while groups are under way")
		default:
		}
		close(finish)
		<-waited
	})
}

// Slow lone requests do not raise the limit of two groups at a time once they have ended.
func TestLane_afterSlowRequests_hasTwoGroupsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []string
		all := func(some []string) (group, left []string) { return some, nil }
		l := New(1, all, func(group []string) {
			if group[0] == "slow" {
				time.Sleep(2 * waiting)
				return
			}
			groups = append(groups, fmt.Sprint(group))
			time.Sleep(waiting / 2)
		})
		for range 10 {
			l.Post("slow")
			l.Wait()
		}
		for _, r := range []string{"a", "b", "c", "d"} {
			l.Post(r)
			synctest.Wait()
		}
		l.Wait()
		if got := fmt.Sprint(groups); got != "[[a] [b] [c d]]" {
			t.Errorf("the groups are %s", got)
		}
	})
}

// Requests with time to spare wait for others: until an alarm, until there are a few, or until one without time
// arrives. They also wait while a call ends.
func TestLane_gathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gather = 10 * time.Millisecond
		var groups []string
		began := time.Now()
		l := New(4, func(some []string) (group, left []string) { return some, nil }, func(group []string) {
			groups = append(groups, fmt.Sprint(time.Since(began), group))
			time.Sleep(time.Millisecond)
		})
		for _, step := range []struct {
			after        time.Duration
			gather, post string
		}{
			{0, "a", ""},
			{9 * time.Millisecond, "b", ""},
			{gather, "", "c"}, // after the alarm of a
			{500 * time.Microsecond, "d", ""},
			{2 * time.Millisecond, "", "e"}, // c has ended meanwhile
			{5 * time.Millisecond, "fgh", ""},
			{5 * time.Millisecond, "i", ""}, // the alarm of d has been stopped
			{5 * time.Millisecond, "j", ""},
		} {
			time.Sleep(step.after)
			for _, r := range step.gather {
				l.Gather(string(r), gather)
			}
			if step.post != "" {
				l.Post(step.post)
			}
		}
		synctest.Wait()
		l.Wait() // for no request that has time
		want := "[10ms [a b] 19ms [c] 21.5ms [d e] 31.5ms [f g h i] 36.5ms [j]]"
		if got := fmt.Sprint(groups); got != want || time.Since(began) != 37500*time.Microsecond {
			t.Errorf("after %v: the groups are %s, want %s", time.Since(began), got, want)
		}
	})
}
