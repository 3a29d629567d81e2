// SPDX-License-Identifier: MIT

// Package valid checks what an engine is given to keep.
package valid

import (
	"errors"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Batches returns an error if two writes have the same key, or one has no condition.
func Batches(batches []engine.Batch) error {
	keys := make(map[string]bool)
	for _, batch := range batches {
		for _, w := range batch {
			switch {
			case w.If < engine.IfAbsent || w.If > engine.IfUnstarted:
				return fmt.Errorf("durable: write of key %q has the unknown condition %d", w.Key, w.If)
			case keys[w.Key]:
				return fmt.Errorf("durable: commit with two writes of key %q", w.Key)
			}
			keys[w.Key] = true
		}
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

// Question returns an error if a question is empty or too long.
func Question(question []byte) error {
	if len(question) == 0 {
		return errors.New("durable: question is empty")
	}
	return Answer(question)
}

// Answer returns an error if an answer is too long.
func Answer(answer []byte) error {
	if len(answer) > engine.MaxQuestion {
		return fmt.Errorf("durable: question or answer of %d bytes; %d are allowed", len(answer), engine.MaxQuestion)
	}
	return nil
}

// Settings returns an error if settings are empty or too long.
func Settings(settings []byte) error {
	if len(settings) == 0 || len(settings) > engine.MaxSettings {
		return fmt.Errorf("durable: settings of %d bytes; 1 to %d are allowed", len(settings), engine.MaxSettings)
	}
	return nil
}
