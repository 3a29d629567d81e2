// SPDX-License-Identifier: MIT

package dashboard

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSearch_findsWhatBeginsWithThePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, _ := newWheel(t, 60)
		h := handlerOf(tw, nil)
		for i := range 1000 {
			add(t, tw, fmt.Sprintf("order-%03d", i), time.Hour)
		}
		add(t, tw, "order", time.Hour)
		add(t, tw, "other\xff", time.Hour)
		for _, c := range []struct {
			prefix  string
			matches int
			first   []string
		}{
			{"order-12", 10, []string{"order-120", "order-121"}},
			{"order", 1001, []string{"order", "order-000", "order-001"}},
			{"order-999", 1, []string{"order-999"}},
			{"", 1002, []string{"order", "order-000"}},
			{"rder", 0, nil},
			{"other", 1, []string{"other\uFFFD"}},
			{"other%FF", 1, []string{"other\uFFFD"}},
		} {
			got := answer[foundJSON](t, ask(h, "GET", "/api/search?prefix="+c.prefix, nil), 200)
			var keys []string
			for _, task := range got.Tasks {
				keys = append(keys, task.Key)
			}
			if got.Matches != c.matches || len(keys) != min(c.matches, maxFound) || !slices.Equal(keys[:len(c.first)], c.first) ||
				!slices.IsSorted(keys) || got.Looked != 1002 || !got.Whole {
				t.Errorf("%q finds %d of %d, whole %v: %q", c.prefix, got.Matches, got.Looked, got.Whole, keys)
			}
		}
	})
}

// A search that takes too long reports that it was stopped, but has still found the exact key.
func TestSearch_thatTakesTooLong_saysSo(t *testing.T) {
	tw, _ := newWheel(t, 60)
	for i := range 10 * searchStep {
		add(t, tw, fmt.Sprint(i), time.Hour)
	}
	got := search(tw, "7", time.Now())
	if got.Whole || got.Looked != searchStep-1 || len(got.Tasks) == 0 || got.Tasks[0].Key != "7" {
		t.Errorf("a search without time found %d of %d, whole %v", got.Matches, got.Looked, got.Whole)
	}
	if got := search(tw, "7", time.Now().Add(time.Hour)); !got.Whole || got.Looked != 10*searchStep || got.Matches != 1+10+100+1000 {
		t.Errorf("a search with time found %d of %d, whole %v", got.Matches, got.Looked, got.Whole)
	}
}
