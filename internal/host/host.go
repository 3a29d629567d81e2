// SPDX-License-Identifier: MIT

// Package host recognizes requests in which a web site has pointed its own name at this machine.
package host

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// IsAllowed reports whether the Host of a request is an IP address, localhost or one of the names, which have no port.
// The name "*" allows every Host. An empty Host is allowed, because it cannot come from a browser: every browser sends a
// Host.
func IsAllowed(hostport string, names []string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	is := func(name string) bool { return name == "*" || strings.EqualFold(name, host) }
	if host == "" || is("localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") || slices.ContainsFunc(names, is) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}
