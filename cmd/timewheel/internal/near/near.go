// SPDX-License-Identifier: MIT

// Package near finds the name that a misspelled one stands for.
package near

const most = 2 // maximum number of changes

// To returns the name closest to a wrong one, or "" if no name is close.
func To(wrong string, names []string) (best string) {
	is := []rune(wrong)
	fewest := most + 1
	for _, name := range names {
		of := []rune(name)
		if max(len(is)-len(of), len(of)-len(is)) > most { // a caller may send a name of a megabyte
			continue
		}
		if n := distanceOf(is, of); n < fewest && 2*n <= len(is) {
			best, fewest = name, n
		}
	}
	return best
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
