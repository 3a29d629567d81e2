// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// keeper records a run while it is in progress: one line of JSON for its circumstances and one for each sample. A
// report can be made from it later, even if the run was interrupted.
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

// readKept reads the file of a keeper.
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
