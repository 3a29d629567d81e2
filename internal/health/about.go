// SPDX-License-Identifier: MIT

package health

import "strings"

// About returns the kind of task that a finding about the reading names, or "" if the finding names no kind or several.
// A page offers actions for that kind.
func About(f Finding, now SchedulerReading) string {
	var kinds []string
	ends := ": " // the text that follows the name
	switch f.Kind {
	case Parked:
		for _, k := range now.Kinds {
			if k.Parked > 0 && k.Parked == now.Parked {
				return k.Kind
			}
		}
		return ""
	case Failing:
		for _, k := range now.Kinds {
			kinds = append(kinds, k.Kind)
		}
	case Unhandled:
		ends = " has no handler "
		kinds = kindsOf(now.Orphans)
	case Limited:
		for _, l := range now.Limited {
			kinds = append(kinds, l.Kind)
		}
	case Paused:
		ends = " is paused"
		kinds = kindsOf(now.Paused)
	}
	about := ""
	for _, kind := range kinds {
		if len(kind) > len(about) && strings.HasPrefix(f.Text, "Kind "+kind+ends) {
			about = kind
		}
	}
	return about
}

func kindsOf(all []DueReading) (kinds []string) {
	for _, d := range all {
		kinds = append(kinds, d.Kind)
	}
	return kinds
}
