// SPDX-License-Identifier: MIT

package serve

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// The address is checked after the name is resolved.
func TestWebhook_toANameOfAPrivateAddress_isRefused(t *testing.T) {
	at := receiver(t, fail(t))
	_, port, err := net.SplitHostPort(at)
	check(t, err)
	for _, kind := range []struct{ url, network string }{
		{"https://localhost:$P/", ""}, {"https://127.0.0.1:$P/", ""}, {"https://[::ffff:127.0.0.1]:$P/", ""},
		{"http://localhost:$P/", "10.0.0.0/8"}, {"https://localhost:$P/", "127.0.0.2/32"},
	} {
		cfg := config(t, "", `{"listen": "127.0.0.1:0", "kinds": {"k": {`+https+`, "retry": {"attempts": 1}}}}`)
		of := cfg.Kinds["k"] // changed here, because a configuration with such a URL is refused
		of.URL = strings.ReplaceAll(kind.url, "$P", port)
		of.target, err = url.Parse(of.URL)
		check(t, err)
		if kind.network != "" {
			of.Networks = []Network{{netip.MustParsePrefix(kind.network)}}
		}
		r := start(t, cfg)
		r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
		until(t, "the task is parked", func() bool { info, _ := r.info("a"); return info.State == durable.Parked })
		if info, _ := r.info("a"); !strings.Contains(info.Failure, errAddress.Error()) {
			t.Errorf("%s: the failure is %q", kind, info.Failure)
		}
	}
}

func TestGuard_allowsPublicAddresses_andItsNetworks(t *testing.T) {
	for _, address := range []string{
		"0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "100::1",
		"2001::1", "2001:db8::1", "2002:a00:1::", "3fff::1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	} {
		if (guard{}).allows(netip.MustParseAddr(address)) {
			t.Errorf("%s is allowed", address)
		}
	}
	for _, address := range []string{"1.1.1.1", "172.15.0.1", "172.32.0.1", "8.8.8.8", "2606:4700::1111", "2a00::1", "::ffff:8.8.8.8"} {
		ip := netip.MustParseAddr(address)
		if !(guard{}).allows(ip) {
			t.Errorf("%s is refused", address)
		}
		if (guard{only: true}).allows(ip) {
			t.Errorf("%s is allowed without TLS", address)
		}
	}
	of := guard{networks: []Network{{netip.MustParsePrefix("10.1.0.0/16")}, {netip.MustParsePrefix("fd00::/8")}}, only: true}
	for address, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "fd00::1": true, "fe80::1": false} {
		equal(t, address, of.allows(netip.MustParseAddr(address)), want)
	}
	if (guard{}).allows(netip.Addr{}) {
		t.Error("no address is allowed")
	}
}
