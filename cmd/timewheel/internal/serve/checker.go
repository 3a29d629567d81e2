// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A checker validates a configuration, fills in the defaults, and collects the problems.
type checker struct {
	config   *Config
	getenv   func(string) string
	problems []error
}

func (k *checker) wrong(field, format string, args ...any) {
	k.problems = append(k.problems, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
}

func (k *checker) rate(field string, r *Rate) {
	if r == nil {
		return
	}
	k.positive(field+".per", &r.Per, time.Second)
	if r.Burst == 0 {
		r.Burst = r.Runs
	}
	if r.Runs <= 0 || r.Burst < 0 {
		k.wrong(field, "%d runs with bursts of %d: both must be positive", r.Runs, r.Burst)
	}
}

func (k *checker) admin(a *Admin) {
	a.Listen = k.listen("admin.listen", a.Listen, a.TLS, a.Insecure)
	if a.Listen == "" || isLocal(a.Listen) {
		return
	}
	if !a.Insecure {
		k.wrong("admin.insecure", "anyone who reaches %s sees keys and errors; allow it with true", a.Listen)
	}
	for _, one := range []struct {
		name string
		set  bool
	}{{"control", a.Control}, {"backup", a.Backup}} {
		if one.set {
			k.wrong("admin."+one.name, "it is allowed only on loopback and on a Unix socket, and listen is %s", a.Listen)
		}
	}
}

// listen checks an address, and returns it, or "" if it is wrong.
func (k *checker) listen(field, address string, t *TLS, insecure bool) string {
	if path, is := strings.CutPrefix(address, "unix:"); is {
		if path == "" {
			k.wrong(field, "the path of the Unix socket is empty")
			return ""
		}
		if !filepath.IsAbs(path) {
			address = "unix:" + filepath.Join(k.config.dir, path)
		}
	} else if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		k.wrong(field, "%q is neither host:port nor unix:PATH", address)
		return ""
	} else if t == nil && !insecure && !isLocal(address) {
		k.wrong(field, "%s is beyond loopback and needs tls, or \"insecure\": true", address)
	}
	if t != nil {
		t.Certificate, t.Key = k.path(t.Certificate), k.path(t.Key)
		if err := t.read(); err != nil {
			k.wrong(strings.TrimSuffix(field, "listen")+"tls", "%v", err)
		}
	}
	return address
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
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (k *checker) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(k.config.dir, name)
}

// secret reads a secret, and checks its size.
func (k *checker) secret(field string, s *Secret) {
	if k.resolve(field, s) && len(*s) < leastSecret {
		k.wrong(field, "it has %d bytes; at least %d are needed", len(*s), leastSecret)
	}
}

// resolve reads a secret from the environment or from a file, and reports whether it succeeded.
func (k *checker) resolve(field string, s *Secret) bool {
	if name, is := strings.CutPrefix(string(*s), "env:"); is {
		if *s = Secret(k.getenv(name)); *s == "" {
			k.wrong(field, "the environment variable %s is empty", name)
			return false
		}
	} else if path, is := strings.CutPrefix(string(*s), "file:"); is {
		text, err := os.ReadFile(k.path(path))
		if err != nil {
			k.wrong(field, "%v", err)
			return false
		}
		*s = Secret(strings.TrimRight(string(text), "\r\n"))
	}
	return true
}

func (k *checker) positive(field string, d *Duration, byDefault time.Duration) {
	if *d == 0 {
		*d = Duration(byDefault)
	}
	if *d < 0 {
		k.wrong(field, "%v is negative", time.Duration(*d))
	}
}

func (k *checker) oneOf(field string, value *string, allowed ...string) {
	if *value == "" {
		*value = allowed[0]
	}
	if !slices.Contains(allowed, *value) {
		k.wrong(field, "%q must be one of %s", *value, strings.Join(allowed, ", "))
	}
}
