// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Network is a range of addresses, such as 10.1.0.0/16.
type Network struct{ netip.Prefix }

// UnmarshalText reads a network. The error is a hint if the text is an address.
func (n *Network) UnmarshalText(text []byte) (err error) {
	if n.Prefix, err = netip.ParsePrefix(string(text)); err == nil {
		return nil
	}
	ip, failed := netip.ParseAddr(string(text))
	if failed != nil || ip.Zone() != "" {
		return err
	}
	means := netip.PrefixFrom(ip, ip.BitLen()).String()
	if bits := 8 * len(bytes.TrimRight(ip.AsSlice(), "\x00")); bits > 0 && bits < ip.BitLen() {
		means += " or " + netip.PrefixFrom(ip, bits).String()
	}
	return hint(fmt.Sprintf("; do you mean %s?", means))
}

// reserved are networks that webhooks do not reach, unless a kind names them: loopback, link-local and private addresses,
// and others that are not on the Internet or contain another address.
var reserved = func() (all []Network) {
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/3",                             // multicast and reserved
		"::/3",                                    // loopback, mapped and translated IPv4
		"2001::/23", "2001:db8::/32", "2002::/16", // Teredo, examples, 6to4
		"3fff::/20", "4000::/2", "8000::/1", // private, link-local and multicast among them
	} {
		all = append(all, Network{netip.MustParsePrefix(s)})
	}
	return all
}()

var errAddress = errors.New("address is not allowed")

// A guard decides which addresses the webhook of a kind may reach.
type guard struct {
	networks []Network // always allowed
	only     bool      // and no others, because there is no TLS
}

func (g guard) allows(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	holds := func(n Network) bool { return n.Contains(ip) }
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

// reachable checks that the guard of the kind does not refuse every address of its receiver. It knows only an
// address in the URL itself.
func (k *checker) reachable(field, networks string, of *Kind) {
	if of.target == nil {
		return
	}
	if port := of.target.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			k.wrong(field, "port %s is not between 1 and 65535", port)
		}
	}
	host := strings.TrimSuffix(strings.ToLower(of.target.Hostname()), ".")
	all := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	if host != "localhost" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			if last := host[strings.LastIndexByte(host, '.')+1:]; host != "" && strings.Trim(last, "0123456789") == "" {
				k.wrong(field, "%s is neither a name nor an IP address", host)
			}
			return
		}
		all = []netip.Addr{ip.Unmap()}
	}
	if k.knows(networks) && !slices.ContainsFunc(all, guard{of.Networks, of.target.Scheme == "http"}.allows) {
		k.wrong(field, "%s can be called only if networks contain it, such as %q", host, netip.PrefixFrom(all[0], all[0].BitLen()))
	}
}
