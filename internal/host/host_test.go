// SPDX-License-Identifier: MIT

package host_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/internal/host"
)

func TestIsAllowed(t *testing.T) {
	names := []string{"Timewheel.example.com"}
	for hostport, want := range map[string]bool{
		"": true, "localhost": true, "LocalHost:80": true, "a.localhost:80": true, "localhost.": true,
		"127.0.0.1": true, "10.0.0.1:80": true, "[::1]": true, "[::1]:80": true,
		"timewheel.example.com": true, "TIMEWHEEL.example.com:80": true, "timewheel.example.com.": true,
		"evil.example": false, "evil.example:80": false, "a.timewheel.example.com": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false, "notlocalhost": false, "*": false,
	} {
		if got := host.IsAllowed(hostport, names); got != want {
			t.Errorf("%q is allowed: %v, want %v", hostport, got, want)
		}
	}
	if !host.IsAllowed("evil.example:80", []string{"*"}) {
		t.Error("* does not allow every host")
	}
}
