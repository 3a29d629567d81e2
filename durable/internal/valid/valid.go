// SPDX-License-Identifier: MIT

// Package valid checks the arguments of engine calls.
package valid

import (
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Batches returns an error if a write is invalid, or if the batches may not be committed together.
func Batches(batches []engine.Batch) error {
	type key struct {
		key  string
		note bool
	}
	n := 0
	for _, batch := range batches {
		n += len(batch)
	}
	keys := make(map[key]bool, n)
	for _, batch := range batches {
		for _, w := range batch {
			switch {
			case w.If < engine.IfAbsent || w.If > engine.IfUnstarted:
				return fmt.Errorf("durable: write of key %q has the unknown condition %d", w.Key, w.If)
			case keys[key{w.Key, w.Note}]:
				return fmt.Errorf("durable: commit with two writes of key %q", w.Key)
			case w.Note != batch[0].Note:
				return fmt.Errorf("durable: batch with both tasks and notes, among them %q", w.Key)
			}
			if w.Note {
				if err := note(w); err != nil {
					return err
				}
			}
			keys[key{w.Key, w.Note}] = true
		}
	}
	return nil
}

// note returns an error if the write of a note is invalid.
func note(w engine.Write) error {
	switch {
	case w.Key == "" || len(w.Key) > engine.MaxNoteName:
		return fmt.Errorf("durable: name of a note of %d bytes; 1 to %d are allowed", len(w.Key), engine.MaxNoteName)
	case len(w.Data) > engine.MaxNote:
		return fmt.Errorf("durable: note %q of %d bytes; %d are allowed", w.Key, len(w.Data), engine.MaxNote)
	case w.Due != 0 || w.Kind != "" || w.Group != "" || w.Hold || w.Failing:
		return fmt.Errorf("durable: note %q with fields of a task", w.Key)
	}
	return nil
}

// Report returns an error if a member's report is too long.
func Report(report []byte) error {
	if len(report) > engine.MaxReport {
		return fmt.Errorf("durable: report of %d bytes; %d are allowed", len(report), engine.MaxReport)
	}
	return nil
}
