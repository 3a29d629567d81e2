// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// keeper writes a run down as it goes, one line of JSON for its circumstances and one for each sample, so
// that a report can be made of it later, and of a run that was interrupted too.
type keeper struct {
	out *json.Encoder
}

// newKeeper writes the circumstances.
func newKeeper(w io.Writer, c circumstances) (keeper, error) {
	k := keeper{out: json.NewEncoder(w)}
	return k, k.out.Encode(c)
}

// keep writes a sample.
func (k keeper) keep(s sample) error { return k.out.Encode(s) }

// readKept reads what a keeper has written.
func readKept(r io.Reader) (circumstances, results, error) {
	var c circumstances
	var all results
	d := json.NewDecoder(r)
	if err := d.Decode(&c); err != nil {
		return c, all, fmt.Errorf("circumstances: %w", err)
	}
	for {
		var s sample
		err := d.Decode(&s)
		if err == io.EOF {
			return c, all, nil
		}
		if err != nil {
			return c, all, fmt.Errorf("sample %d: %w", len(all.samples)+1, err)
		}
		all.samples = append(all.samples, s)
	}
}
