// SPDX-License-Identifier: MIT

package limit

import (
	"testing"
	"time"
)

// When its runs become quick again, a kind counts as quick again, but not at once.
func TestKind_quick(t *testing.T) {
	var k Kind
	if k.IsQuick() {
		t.Error("a kind that has not run is quick")
	}
	k.Took(time.Millisecond)
	if !k.IsQuick() {
		t.Error("a kind that runs a millisecond is not quick")
	}
	k.Took(time.Minute)
	n := 0
	for ; !k.IsQuick(); n++ {
		k.Took(time.Millisecond)
	}
	if n < 50 || n > 500 {
		t.Errorf("after a run of a minute the kind is quick after %d quick ones", n)
	}
}
