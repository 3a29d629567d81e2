// SPDX-License-Identifier: MIT

package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	searchTime = 200 * time.Millisecond // after which a search stops
	searchStep = 1 << 10                // tasks between two looks at the clock
	maxFound   = 50                     // tasks that are listed
)

// search finds the tasks whose keys begin with the prefix, and returns the first of them by key. It stops at the given
// time, and says so.
func search(tw *timewheel.TimeWheel, prefix string, until time.Time) foundJSON {
	byKey := func(a, b timewheel.Info) int { return cmp.Compare(a.Key, b.Key) }
	answer := foundJSON{Tasks: []taskJSON{}, Whole: true}
	var found []timewheel.Info
	if info, ok := tw.Get(prefix); ok { // so a whole key is found among any number of tasks
		answer.Matches++
		found = append(found, info)
	}
	for info := range tw.All() {
		if answer.Looked%searchStep == searchStep-1 && time.Now().After(until) {
			answer.Whole = false
			break
		}
		answer.Looked++
		if info.Key == prefix || !strings.HasPrefix(info.Key, prefix) {
			continue
		}
		answer.Matches++
		found = append(found, info)
		if len(found) >= 2*maxFound {
			slices.SortFunc(found, byKey)
			found = found[:maxFound]
		}
	}
	slices.SortFunc(found, byKey)
	for _, info := range found[:min(len(found), maxFound)] {
		answer.Tasks = append(answer.Tasks, newTaskJSON(info))
	}
	return answer
}
