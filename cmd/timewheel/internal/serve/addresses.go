// SPDX-License-Identifier: MIT

package serve

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// reserved are networks that webhooks do not reach, unless a kind names them: loopback, link-local and private addresses,
// and others that are not on the Internet or contain another address.
var reserved = func() (all []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/3",                             // multicast and reserved
		"::/3",                                    // loopback, mapped and translated IPv4
		"2001::/23", "2001:db8::/32", "2002::/16", // Teredo, examples, 6to4
		"3fff::/20", "4000::/2", "8000::/1", // private, link-local and multicast among them
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}()

var errAddress = errors.New("address is not allowed")

// A guard decides which addresses the webhook of a kind may reach.
type guard struct {
	networks []netip.Prefix // always allowed
	only     bool           // and no others, because there is no TLS
}

func (g guard) allows(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	holds := func(p netip.Prefix) bool { return p.Contains(ip) }
	return slices.ContainsFunc(g.networks, holds) || !g.only && ip.IsValid() && !slices.ContainsFunc(reserved, holds)
}

// control refuses connections to other addresses. It is called with the resolved address of each connection.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !g.allows(to.Addr()) {
		return fmt.Errorf("%w: %s is not in the networks of the kind", errAddress, to.Addr())
	}
	return nil
}
