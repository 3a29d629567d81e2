// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Config is a configuration file. Load reads and checks it.
type Config struct {
	Listen   string           `json:"listen"`   // host:port, or unix:PATH
	TLS      *TLS             `json:"tls"`      // of Listen
	Insecure bool             `json:"insecure"` // Listen may be beyond loopback without TLS
	Tokens   []*Token         `json:"tokens"`   // of callers; if there are none, every caller may do everything
	Kinds    map[string]*Kind `json:"kinds"`
	Admin    *Admin           `json:"admin"` // none: no metrics, health and page
	Drain    Duration         `json:"drain"` // how long SIGTERM waits for runs in progress; 30s
	Node     string           `json:"node"`  // name of the node; the host and the process
	Log      string           `json:"log"`   // text, the default, or json

	dir string // of the file; paths in it are relative to that
}

// TLS names the files of a certificate and its key, in PEM.
type TLS struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`

	pair atomic.Pointer[tls.Certificate] // as last read
}

// read reads the files. If it returns an error, the certificate stays the same.
func (t *TLS) read() error {
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err == nil {
		t.pair.Store(&pair)
	}
	return err
}

// forConnections returns a configuration that uses the certificate as last read.
func (t *TLS) forConnections() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.pair.Load(), nil },
		MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
}

// A Token identifies a caller, and names its rights.
type Token struct {
	Name     string   `json:"name"`
	Token    Secret   `json:"token"`
	Prefixes []string `json:"prefixes"` // of the keys; "" is all
	Kinds    []string `json:"kinds"`    // "*" is all
	Rights   []string `json:"rights"`   // read, write
}

// Admin configures the address for operators.
type Admin struct {
	Listen   string   `json:"listen"`
	TLS      *TLS     `json:"tls"`
	Insecure bool     `json:"insecure"` // Listen may be beyond loopback: anyone who reaches it sees keys and errors
	Hosts    []string `json:"hosts"`    // names under which the page may be reached
	Control  bool     `json:"control"`  // the page may change tasks
	Backup   bool     `json:"backup"`   // /backup copies the store, with all payloads
}

// A Secret is text that is not printed. In a file it may be "env:NAME" or "file:PATH" instead.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// A Duration is a duration in JSON: text such as "1h30m", or a number of seconds.
type Duration time.Duration

// UnmarshalJSON reads text or a number.
func (d *Duration) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	} else if text == "null" {
		return nil
	} else if n, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, "eE") &&
		math.Abs(n)*float64(time.Second) < math.MaxInt64 { // Python and JavaScript write small numbers in this way
		*d = Duration(math.Round(n * float64(time.Second)))
		return nil
	} else if !strings.ContainsAny(text, "eE{[tf") {
		text += "s"
	}
	is, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration %s is neither text such as \"1h30m\" nor a number of seconds", b)
	}
	*d = Duration(is)
	return nil
}

// The defaults, and the minimum size of secrets.
const (
	defaultDrain       = 30 * time.Second
	defaultTimeout     = 10 * time.Second
	defaultConcurrency = 100
	defaultHistory     = 1000
	mostConcurrency    = 100_000
	leastSecret        = 16
)

// The rights of a token.
const (
	mayRead  = "read"
	mayWrite = "write"
)

// Load reads a configuration from a file. The error names every wrong field, and the allowed values.
func Load(path string, getenv func(string) string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Config{dir: filepath.Dir(path)}
	if err := c.parse(text, getenv); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *Config) parse(text []byte, getenv func(string) string) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(c)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is text after the configuration")
		}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n")), err)
	}
	if err != nil {
		if wrong := misfits("", text, reflect.TypeFor[Config]()); len(wrong) > 0 {
			return errors.Join(wrong...)
		}
		return err
	}
	k := &checker{config: c, getenv: getenv}
	k.check()
	return errors.Join(k.problems...)
}

// A checker validates a configuration, fills in the defaults, and collects the problems.
type checker struct {
	config   *Config
	getenv   func(string) string
	problems []error
}

func (k *checker) wrong(field, format string, args ...any) {
	k.problems = append(k.problems, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
}

func (k *checker) check() {
	c := k.config
	c.Listen = k.listen("listen", c.Listen, c.TLS, c.Insecure)
	if len(c.Tokens) == 0 && c.Listen != "" && !isLocal(c.Listen) {
		k.wrong("tokens", "none are given; without tokens only loopback and a Unix socket are allowed, and listen is %s",
			c.Listen)
	}
	k.positive("drain", &c.Drain, defaultDrain)
	k.oneOf("log", &c.Log, "text", "json")
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		k.kind("kinds."+name, name, c.Kinds[name])
	}
	if len(c.Kinds) == 0 {
		k.wrong("kinds", "none are given; name at least one")
	}
	names := make(map[string]bool)
	for i, t := range c.Tokens {
		field := fmt.Sprintf("tokens[%d]", i)
		k.token(field, t, names)
		same := func(other *Token) bool { return t != nil && other != nil && other.Token == t.Token }
		if j := slices.IndexFunc(c.Tokens[:i], same); j >= 0 {
			k.wrong(field+".token", "it is that of tokens[%d]", j)
		}
	}
	if c.Admin != nil {
		k.admin(c.Admin)
	}
}

func (k *checker) token(field string, t *Token, names map[string]bool) {
	if t == nil {
		k.wrong(field, "null is no token")
		return
	}
	switch {
	case t.Name == "":
		k.wrong(field+".name", "it is empty")
	case names[t.Name]:
		k.wrong(field+".name", "%q is used twice", t.Name)
	}
	names[t.Name] = true
	k.secret(field+".token", &t.Token)
	if len(t.Prefixes) == 0 {
		k.wrong(field+".prefixes", `none are given; [""] allows all keys`)
	}
	if len(t.Kinds) == 0 {
		k.wrong(field+".kinds", `none are given; ["*"] allows all kinds`)
	}
	for _, name := range t.Kinds {
		if _, is := k.config.Kinds[name]; !is && name != "*" {
			k.wrong(field+".kinds", "%q is none of the kinds", name)
		}
	}
	if len(t.Rights) == 0 {
		k.wrong(field+".rights", "none are given; read and write are allowed")
	}
	for _, right := range t.Rights {
		if right != mayRead && right != mayWrite {
			k.wrong(field+".rights", "%q must be read or write", right)
		}
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

// workers returns how many runs all kinds together may have in progress. With that many workers, a receiver that hangs
// delays no other kind.
func (c *Config) workers() (n int) {
	for _, of := range c.Kinds {
		n += of.Concurrency
	}
	return max(n, 1)
}
