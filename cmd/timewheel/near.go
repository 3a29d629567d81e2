// SPDX-License-Identifier: MIT

package main

import "fmt"

// didYouMean returns a suggestion to append to an error: the name closest to a wrong one. It returns "" if no name is
// close.
func didYouMean(wrong string, names []string) string {
	const most = 2 // maximum number of changes
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

// distanceOf returns the number of characters to insert, delete or replace to turn a into b.
func distanceOf(a, b []rune) int {
	row := make([]int, len(b)+1) // distance from the characters of a read so far to each prefix of b
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
