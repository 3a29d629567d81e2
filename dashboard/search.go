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
	searchTime = 200 * time.Millisecond // maximum duration of a search
	searchStep = 1 << 10                // tasks examined between two checks of the clock
	maxFound   = 50                     // maximum number of listed tasks
)

// search returns the first tasks, by key, whose keys begin with the prefix. It stops at the given time and reports in
// Whole whether it examined every task.
func search(tw *timewheel.TimeWheel, prefix string, until time.Time) foundJSON {
	byKey := func(a, b timewheel.Info) int { return cmp.Compare(a.Key, b.Key) }
	answer := foundJSON{Tasks: []taskJSON{}, Whole: true}
	var found []timewheel.Info
	if info, ok := tw.Get(prefix); ok { // a complete key is found however many tasks there are
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
