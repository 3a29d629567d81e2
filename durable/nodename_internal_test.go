// SPDX-License-Identifier: MIT

package durable

import (
	"strings"
	"testing"
)

// A host may have a name that no node may have.
func TestDefaultName_isAllowed(t *testing.T) {
	for host, want := range map[string]string{
		"web": "web-17", "": "-17", "w\xff\x00eb": "web-17", strings.Repeat("ü", 500): strings.Repeat("ü", 98) + "-17",
	} {
		name := defaultName(host, 17)
		if name != want {
			t.Errorf("the node on %.10q is called %q", host, name)
		}
		if err := WithNodeName(name)(new(config)); err != nil {
			t.Error(err)
		}
	}
}
