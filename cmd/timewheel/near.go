// SPDX-License-Identifier: MIT

package main

import "fmt"

// didYouMean returns a question about the name nearest to a wrong one, or "" if none is near. It is appended to an
// error.
func didYouMean(wrong string, names []string) string {
	const most = 2 // changes
	best, fewest := "", most+1
	for _, name := range names {
		if n := distanceOf([]rune(wrong), []rune(name)); n < fewest && 2*n <= len([]rune(wrong)) {
			best, fewest = name, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", quoteText(best))
}

// distanceOf returns how many characters must be inserted, deleted or replaced to turn a into b.
func distanceOf(a, b []rune) int {
	row := make([]int, len(b)+1) // distances of the characters of a so far to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i, r := range a {
		before := row[0]
		row[0] = i + 1
		for j, s := range b {
			replace := before
			if r != s {
				replace++
			}
			before = row[j+1]
			row[j+1] = min(replace, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
