// SPDX-License-Identifier: MIT

package postgres

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An Option changes what Open, OpenPool, Migrate and Schema do.
type Option func(*config)

type config struct {
	schema      string
	cluster     string
	connections int
	migrate     bool
	now         string // the server's time, as SQL; tests have another
	server      string // identity, or what leaves the noted one as it is if the role may not read it
}

// clock is the server's clock, and not the time at which its transaction began: that may have waited for a
// lock.
const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

// WithSchema names the schema with the tables. It is "timewheel" without this option. An empty name, or one of
// more than 63 bytes, is an error.
func WithSchema(name string) Option { return func(c *config) { c.schema = name } }

// WithCluster names the cluster, in at most 63 bytes. The schema keeps the name that it was made with, and
// every other name is refused, so that two clusters do not share a schema by mistake. The name is empty without
// this option.
func WithCluster(name string) Option { return func(c *config) { c.cluster = name } }

// WithConnections sets how many connections to the server an engine opens at most, at least 4. There are 16
// without this option. A quarter of them, and at least 2, is for claims, starts and leases alone.
func WithConnections(n int) Option { return func(c *config) { c.connections = n } }

// WithoutMigration makes Open and OpenPool leave the schema as it is. They return ErrSchema if it is not there,
// or not of the version that this package needs.
func WithoutMigration() Option { return func(c *config) { c.migrate = false } }

func newConfig(opts []Option) (config, error) {
	c := config{schema: "timewheel", connections: 16, migrate: true, now: clock, server: identity}
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case !isName(c.schema) || c.schema == "":
		return c, fmt.Errorf("postgres: schema name %q is not 1 to 63 bytes of UTF-8", c.schema)
	case !isName(c.cluster):
		return c, fmt.Errorf("postgres: cluster name %q is not 0 to 63 bytes of UTF-8", c.cluster)
	case c.connections < 4:
		return c, fmt.Errorf("postgres: %d connections are less than 4", c.connections)
	}
	return c, nil
}

// isName reports whether PostgreSQL can keep s as a name.
func isName(s string) bool {
	return len(s) <= 63 && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}
