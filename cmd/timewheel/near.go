// SPDX-License-Identifier: MIT

package main

import (
	"fmt"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/near"
)

// didYouMean returns a suggestion to append to an error: the name closest to a wrong one. It returns "" if no name is
// close.
func didYouMean(wrong string, names []string) string {
	best := near.To(wrong, names)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", quoteText(best))
}
