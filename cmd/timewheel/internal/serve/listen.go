// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// listen checks an address, and returns it, or "" if it is wrong.
func (k *checker) listen(field, address string, t *TLS, insecure bool) string {
	sibling := func(name string) string { return strings.TrimSuffix(field, "listen") + name }
	if path, is := strings.CutPrefix(address, "unix:"); is {
		if path == "" {
			k.wrong(field, "the path of the Unix socket is empty")
			return ""
		}
		path = k.path(path)
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			k.wrong(field, "%s is no folder for the Unix socket", filepath.Dir(path))
		}
		if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > most {
			k.wrong(field, "the path of the Unix socket, %s, has %d bytes; this system allows %d", path, len(path), most)
		}
		address = "unix:" + path
	} else if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		k.wrong(field, "%q is neither host:port nor unix:PATH", address)
		return ""
	} else if _, err := net.LookupPort("tcp", port); err != nil {
		k.wrong(field, "port %q is neither a number up to 65535 nor the name of a service", port)
		return ""
	} else if t == nil && !insecure && !isLocal(address) && k.knows(sibling("tls"), sibling("insecure")) {
		k.wrong(field, "%s is beyond loopback and needs tls, or \"insecure\": true", address)
	}
	if t != nil {
		k.certificate(sibling("tls"), t)
	}
	return address
}

// sameAddress reports whether only one of two listeners can have the addresses.
func sameAddress(a, b string) bool {
	if strings.HasPrefix(a, "unix:") || strings.HasPrefix(b, "unix:") {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	parts := func(address string) (ip netip.Addr, port int) {
		host, service, err := net.SplitHostPort(address)
		if err != nil {
			return ip, 0
		}
		port, _ = net.LookupPort("tcp", service)
		switch host {
		case "":
			return netip.IPv6Unspecified(), port
		case "localhost":
			return netip.AddrFrom4([4]byte{127, 0, 0, 1}), port
		}
		ip, _ = netip.ParseAddr(host) // that of a name is not known
		return ip.Unmap(), port
	}
	covers := func(x, y netip.Addr) bool {
		return x == netip.IPv6Unspecified() || x == netip.IPv4Unspecified() && y.Is4() || x.IsValid() && x == y
	}
	ip, port := parts(a)
	other, otherPort := parts(b)
	return port != 0 && port == otherPort && (covers(ip, other) || covers(other, ip) || a == b)
}

// isLocal reports whether only this machine can reach the address.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return IsLoopback(host)
}

// IsLoopback reports whether a host is localhost, or an IP address of this machine alone.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// listen opens an address of the configuration for a server. At most that number of its connections are open at once.
func (srv *Server) listen(address string, with *TLS, most int, s *http.Server) (net.Listener, *gate, error) {
	var l net.Listener
	var err error
	if path, is := strings.CutPrefix(address, "unix:"); is {
		l, err = listenUnix(path)
	} else {
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, nil, err
	}
	g := &gate{Listener: l, most: most, server: s, refusing: srv.refusing}
	if with == nil {
		return g, g, nil
	}
	g.tls = with.forConnections()
	return tls.NewListener(g, g.tls), g, nil
}

// listenUnix listens on a socket that the owner and the group of its file may use. It replaces the socket of a killed
// process.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		conn, dialErr := net.Dial("unix", path)
		if dialErr == nil {
			_ = conn.Close()
			return nil, err
		}
		if info, statErr := os.Lstat(path); statErr != nil || info.Mode().Type() != fs.ModeSocket ||
			!errors.Is(dialErr, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
