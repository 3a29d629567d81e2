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
	now         string // the server's time, as SQL; tests replace it
	server      string // identity, or SQL that keeps the noted one if the role may not read it
}

// clock is the server's clock. The time of the transaction's beginning would be too early after a wait for a lock.
const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

// WithSchema sets the schema of the tables, of 1 to 63 bytes. The default is "timewheel".
func WithSchema(name string) Option { return func(c *config) { c.schema = name } }

// WithCluster sets the name of the cluster, of at most 63 bytes. The schema keeps the name it was made with, and Open
// refuses any other, so that two clusters do not share a schema by mistake. The default is empty.
func WithCluster(name string) Option { return func(c *config) { c.cluster = name } }

// WithConnections sets how many connections an engine opens at most. n must be at least 4. The default is 16. A quarter
// of them, and at least 2, are reserved for claims, starts and leases.
func WithConnections(n int) Option { return func(c *config) { c.connections = n } }

// WithoutMigration keeps Open and OpenPool from changing the schema. They return ErrSchema if it does not exist or has
// an older version.
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
