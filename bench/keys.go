// SPDX-License-Identifier: MIT

package main

import "fmt"

const (
	keyPrefix = "order:"
	keyDigits = 8
)

// makeKeys returns n different keys of one length. They share one string, so that they are neither a million objects
// for the garbage collector nor part of the cost of a timer.
func makeKeys(n int) []string {
	const length = len(keyPrefix) + keyDigits
	text := make([]byte, 0, n*length)
	for id := range n {
		text = fmt.Appendf(text, "%s%0*d", keyPrefix, keyDigits, id)
	}
	all := string(text)
	keys := make([]string, n)
	for id := range keys {
		keys[id] = all[id*length : (id+1)*length]
	}
	return keys
}

// idOf returns the index of a key in the list of keys.
func idOf(key string) int {
	id := 0
	for _, digit := range []byte(key[len(key)-keyDigits:]) {
		id = 10*id + int(digit-'0')
	}
	return id
}
