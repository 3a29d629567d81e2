// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
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
	Admin    *Admin           `json:"admin"` // none: no metrics, health and page
	Grace    *Duration        `json:"grace"` // how long SIGTERM lets callers find another process before the drain; 5s
	Drain    Duration         `json:"drain"` // how long SIGTERM waits for runs in progress; 30s
	Node     string           `json:"node"`  // name of the node; the host and the process
	Log      string           `json:"log"`   // text, the default, or json

	dir    string                  // of the file; paths in it are relative to that
	reread func() (*Config, error) // loads the file again
}

// A Kind is a kind of tasks, with the webhook that is called when one is due.
type Kind struct {
	URL                string            `json:"url"`
	Secrets            []Secret          `json:"secrets" reload:"yes"` // each signs every request
	Networks           []Network         `json:"networks"`             // allowed though private, and without TLS
	Headers            map[string]Secret `json:"headers" reload:"yes"` // added to each request
	CAFile             string            `json:"ca_file" reload:"yes"` // certificates, in PEM, in place of the system's
	ClientCertificate  *TLS              `json:"client_certificate" reload:"yes"`
	ContentType        string            `json:"content_type"` // of the payload; application/json
	Timeout            Duration          `json:"timeout"`      // of an attempt; 10s
	Concurrency        int               `json:"concurrency"`  // 100
	Rate               *Rate             `json:"rate"`
	ClusterConcurrency int               `json:"cluster_concurrency"`
	ClusterRate        *Rate             `json:"cluster_rate"`
	Retry              *Retry            `json:"retry"`
	ParkRepeating      bool              `json:"park_repeating"` // as durable.WithParkRepeating
	Missed             string            `json:"missed"`         // once (the default), skip or all
	History            *History          `json:"history"`        // none: attempts are not kept
	Elsewhere          bool              `json:"elsewhere"`      // other nodes run the tasks

	target  *url.URL
	headers http.Header
	roots   *x509.CertPool // of CAFile; nil without one
}

// A Rate holds the arguments of durable.WithRate.
type Rate struct {
	Runs  int      `json:"runs"`
	Per   Duration `json:"per"`   // 1s
	Burst int      `json:"burst"` // Runs
}

// Retry holds the arguments of durable.WithRetry.
type Retry struct {
	Attempts int      `json:"attempts"`
	Least    Duration `json:"least"`
	Most     Duration `json:"most"`
}

// History holds the arguments of durable.WithHistory.
type History struct {
	Attempts int      `json:"attempts"` // 1000
	Age      Duration `json:"age"`      // 24h
}

// The defaults, and the minimum size of secrets.
const (
	defaultGrace       = 5 * time.Second
	defaultDrain       = 30 * time.Second
	defaultTimeout     = 10 * time.Second
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
	k := &checker{config: c, getenv: getenv}
	for _, wrong := range decode(text, c) {
		k.problems = append(k.problems, errors.New(wrong.String()))
	}
	if k.problems == nil {
		k.check()
	}
	return errors.Join(k.problems...)
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
	k.positive("grace", c.Grace, 0)
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
	}
	if c.Admin != nil {
		k.admin(c.Admin)
		if sameAddress(c.Listen, c.Admin.Listen) {
			k.wrong("admin.listen", "%s is the address of listen, %s", c.Admin.Listen, c.Listen)
		}
	}
	k.distinct()
}

func (k *checker) kind(field, name string, of *Kind) {
	switch {
	case of == nil:
		k.wrong(field, "null is no kind")
		return
	case name == "" || name == "*" || len(name) > durable.MaxKind || strings.ContainsRune(name, 0x1f):
		k.wrong("kinds", "name %q must have 1 to %d bytes, none of them 0x1f, and not be *", name, durable.MaxKind)
	}
	if of.Elsewhere {
		if !reflect.DeepEqual(of, &Kind{Elsewhere: true}) {
			k.wrong(field+".elsewhere", "a kind that runs elsewhere has no other fields")
		}
		return
	}
	k.webhook(field, of)
	k.positive(field+".timeout", &of.Timeout, defaultTimeout)
	k.oneOf(field+".missed", &of.Missed, "once", "skip", "all")
	if of.Concurrency == 0 {
		of.Concurrency = defaultConcurrency
	}
	if of.Concurrency < 1 || of.Concurrency > mostConcurrency {
		k.wrong(field+".concurrency", "%d is not between 1 and %d", of.Concurrency, mostConcurrency)
	}
	if of.ClusterConcurrency < 0 {
		k.wrong(field+".cluster_concurrency", "%d is negative", of.ClusterConcurrency)
	}
	k.rate(field+".rate", of.Rate)
	k.rate(field+".cluster_rate", of.ClusterRate)
	if h := of.History; h != nil {
		if h.Attempts == 0 {
			h.Attempts = defaultHistory
		}
		if h.Attempts < 1 || h.Attempts > durable.MaxHistory {
			k.wrong(field+".history.attempts", "%d is not between 1 and %d", h.Attempts, durable.MaxHistory)
		}
		k.positive(field+".history.age", &h.Age, 24*time.Hour)
	}
	if r := of.Retry; r != nil {
		if r.Attempts == 0 {
			r.Attempts = 10
		}
		k.positive(field+".retry.least", &r.Least, time.Second)
		k.positive(field+".retry.most", &r.Most, max(10*time.Minute, time.Duration(r.Least)))
		if r.Attempts < 0 || r.Most < r.Least {
			k.wrong(field+".retry", "%d attempts with waits from %v to %v: attempts must be positive, and the waits "+
				"must not decrease", r.Attempts, time.Duration(r.Least), time.Duration(r.Most))
		}
	}
}

// webhook checks the target of the kind.
func (k *checker) webhook(field string, of *Kind) {
	target, err := url.Parse(of.URL)
	switch {
	case of.URL == "":
		k.wrong(field+".url", `it is missing; a kind that other nodes run has "elsewhere": true`)
	case err != nil || target.Hostname() == "" || target.Scheme != "https" && target.Scheme != "http":
		k.wrong(field+".url", "%q is not an http or https URL with a host", of.URL)
	case target.User != nil || target.Fragment != "":
		k.wrong(field+".url", "a user and a fragment are not allowed; headers may have an Authorization")
	case target.Scheme == "http" && len(of.Networks) == 0:
		k.wrong(field+".url", "http needs networks, the only addresses that are called without TLS")
	}
	of.target = target
	k.receiverTLS(field, of)
	if len(of.Secrets) == 0 {
		k.wrong(field+".secrets", "none are given; each request is signed")
	}
	for i := range of.Secrets {
		k.secret(fmt.Sprintf("%s.secrets[%d]", field, i), &of.Secrets[i])
	}
	for i, n := range of.Networks {
		if !n.IsValid() {
			k.wrong(fmt.Sprintf("%s.networks[%d]", field, i), "it is not a network such as 10.1.0.0/16")
		} else if of.Networks[i].Prefix = n.Masked(); of.Networks[i] != n {
			k.wrong(fmt.Sprintf("%s.networks[%d]", field, i), "%s has bits after its length; do you mean %s?", n, n.Masked())
		}
	}
	k.reachable(field+".url", of)
	of.headers = make(http.Header)
	for _, name := range slices.Sorted(maps.Keys(of.Headers)) {
		value := of.Headers[name]
		k.resolve(field+".headers."+name, &value)
		switch canonical := http.CanonicalHeaderKey(name); {
		case !isToken(name), strings.HasPrefix(canonical, "Timewheel-"), slices.Contains(ownHeaders, canonical):
			k.wrong(field+".headers."+name, "a header of this name cannot be set")
		case strings.ContainsFunc(string(value), func(r rune) bool { return r < ' ' || r > '~' }):
			k.wrong(field+".headers."+name, "the value is not printable ASCII")
		default:
			of.headers.Set(name, string(value))
		}
	}
	if of.ContentType == "" {
		of.ContentType = "application/json"
	}
	if strings.ContainsFunc(of.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) {
		k.wrong(field+".content_type", "%q is not printable ASCII", of.ContentType)
	}
}

// ownHeaders are the headers that the configuration cannot set: the client sets them, or repeats requests that have one.
var ownHeaders = []string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Trailer", "Upgrade",
	"Te", "Keep-Alive", "Traceparent", "Tracestate", "User-Agent", "Idempotency-Key", "X-Idempotency-Key"}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// options returns the options of the kind.
func (of *Kind) options() []durable.KindOption {
	opts := []durable.KindOption{
		durable.WithTimeout(time.Duration(of.Timeout)), durable.WithConcurrency(of.Concurrency),
		durable.WithMissed(map[string]durable.Missed{
			"skip": durable.MissedSkip, "all": durable.MissedAll,
		}[of.Missed]),
	}
	if r := of.Rate; r != nil {
		opts = append(opts, durable.WithRate(r.Runs, time.Duration(r.Per), r.Burst))
	}
	if of.ClusterConcurrency > 0 {
		opts = append(opts, durable.WithClusterConcurrency(of.ClusterConcurrency))
	}
	if r := of.ClusterRate; r != nil {
		opts = append(opts, durable.WithClusterRate(r.Runs, time.Duration(r.Per), r.Burst))
	}
	if r := of.Retry; r != nil {
		opts = append(opts, durable.WithRetry(r.Attempts, time.Duration(r.Least), time.Duration(r.Most)))
	}
	if of.ParkRepeating {
		opts = append(opts, durable.WithParkRepeating())
	}
	if h := of.History; h != nil {
		opts = append(opts, durable.WithHistory(h.Attempts, time.Duration(h.Age)))
	}
	return opts
}

// workers returns how many runs all kinds together may have in progress. With that many workers, a receiver that hangs
// delays no other kind.
func (c *Config) workers() (n int) {
	for _, of := range c.Kinds {
		n += of.Concurrency
	}
	return max(n, 1)
}
