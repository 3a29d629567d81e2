// SPDX-License-Identifier: MIT

package main

import (
	"testing"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

// A change of the code must not leave a mutant without the text that it changes.
func TestMutants_findTheirTexts(t *testing.T) {
	mutants, err := parse(list)
	if err != nil || len(mutants) < 40 {
		t.Fatalf("%d mutants, %v", len(mutants), err)
	}
	root, err := library.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if _, err := m.files(root); err != nil {
			t.Error(err)
		}
	}
}
