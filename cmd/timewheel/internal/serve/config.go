// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A Config is a configuration file. Load reads and checks it. A running service rereads the fields with the tag reload.
type Config struct {
	Listen   string           `json:"listen"`              // host:port, or unix:PATH
	TLS      *TLS             `json:"tls"`                 // of Listen
	Insecure bool             `json:"insecure"`            // Listen may be beyond loopback without TLS
	Tokens   []*Token         `json:"tokens" reload:"yes"` // of callers; if there are none, every caller may do everything
	Kinds    map[string]*Kind `json:"kinds"`
	Admin    *Admin           `json:"admin"`                // none: no metrics, health and page
	Grace    *Duration        `json:"grace"`                // how long SIGTERM lets callers find another process before the drain; 5s
	Drain    Duration         `json:"drain" positive:"yes"` // how long SIGTERM waits for runs in progress; 30s
	Node     string           `json:"node"`                 // name of the node; the host and the process
	Log      string           `json:"log"`                  // text, the default, or json

	dir    string                  // of the file; paths in it are relative to that
	reread func() (*Config, error) // loads the file again
}

// The defaults, and the minimum size of secrets.
const (
	defaultGrace       = 5 * time.Second
	defaultDrain       = 30 * time.Second
	defaultTimeout     = 10 * time.Second
	defaultDedupe      = time.Hour
	defaultConcurrency = 100
	defaultHistory     = 1000
	mostConcurrency    = 100_000
	leastSecret        = 16
)

// Load reads a configuration from a file. The error names every wrong field, and the allowed values.
func Load(path string, getenv func(string) string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Config{dir: filepath.Dir(path), reread: func() (*Config, error) { return Load(path, getenv) }}
	if err := c.parse(text, getenv); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *Config) parse(text []byte, getenv func(string) string) error {
	form := decode(text, c)
	k := &checker{config: c, getenv: getenv, form: form, problems: form}
	if !form.has("") { // there is a configuration
		k.check()
	}
	return k.err()
}

func (k *checker) check() {
	c := k.config
	c.Listen = k.listen("listen", c.Listen, c.TLS, c.Insecure)
	if len(c.Tokens) == 0 && c.Listen != "" && !isLocal(c.Listen) {
		k.wrong("tokens", "none are given; without tokens only loopback and a Unix socket are allowed, and listen is %s",
			c.Listen)
	}
	if c.Grace == nil {
		grace := Duration(defaultGrace)
		c.Grace = &grace
	}
	if *c.Grace < 0 {
		k.wrong("grace", "%v is negative", time.Duration(*c.Grace))
	}
	c.Drain = cmp.Or(c.Drain, Duration(defaultDrain))
	k.oneOf("log", &c.Log, "text", "json")
	if len(c.Node) > durable.MaxNodeName || strings.ContainsRune(c.Node, 0) {
		k.wrong("node", "it must have at most %d bytes, none of them 0", durable.MaxNodeName)
	}
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
	}
	if c.Admin != nil {
		k.admin(c.Admin)
		if sameAddress(c.Listen, c.Admin.Listen) {
			k.wrong("admin.listen", "%s is the address of listen, %s", c.Admin.Listen, c.Listen)
		}
	}
	k.distinct()
}

// CheckPlace checks that the configuration can work with tasks at the place.
func (c *Config) CheckPlace(place Place) error {
	var all []error
	if place.DB != "" && c.Admin != nil && c.Admin.Backup {
		all = append(all, errors.New("admin.backup: a database is copied by its own tools; leave it out"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		if place.Dir != "" && c.Kinds[name].Elsewhere {
			all = append(all, fmt.Errorf("kinds.%s.elsewhere: no other process runs the tasks of an embedded store", name))
		}
	}
	return errors.Join(all...)
}

// workers returns how many runs all kinds together may have in progress. With that many workers, a receiver that hangs
// delays no other kind.
func (c *Config) workers() (n int) {
	for _, of := range c.Kinds {
		n += of.Concurrency
	}
	return max(n, 1)
}
