// SPDX-License-Identifier: MIT

package postgres

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An Option configures Open, OpenPool, Migrate and Schema.
type Option func(*config)

type config struct {
	schema      string
	cluster     string
	connections int
	migrate     bool
	signalling  bool
	now         string // SQL for the server's time; tests replace it
	server      string // identity, or SQL that keeps the recorded identity if the role may not read it
}

// nowSQL is SQL for the server's current time. The start time of the transaction would be too early after a wait for a
// lock.
const nowSQL = "((extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint OPERATOR(pg_catalog.*) 1000)"

// WithSchema sets the name of the schema that contains the tables. The name must be 1 to 63 bytes long. The default is
// "timewheel".
func WithSchema(name string) Option { return func(c *config) { c.schema = name } }

// WithCluster sets the name of the cluster, which may be at most 63 bytes long. The schema records the name with which
// it was created, and Open refuses any other name, so that two clusters do not share a schema by mistake. The default
// is the empty string.
func WithCluster(name string) Option { return func(c *config) { c.cluster = name } }

// WithConnections sets the maximum number of connections that an engine opens. n must be at least 4. The default is 16.
// A quarter of the connections, but at least 2, are reserved for claims, starts and leases.
func WithConnections(n int) Option { return func(c *config) { c.connections = n } }

// WithoutMigration prevents Open and OpenPool from changing the schema. They return ErrSchema if the schema does not
// exist or has an older version.
func WithoutMigration() Option { return func(c *config) { c.migrate = false } }

// WithoutSignals keeps the engine from using LISTEN and NOTIFY. Its nodes then look for tasks ten times a second and not
// once, and tasks that are added or moved with this engine wake no node. Use it if the commits of your transactions with
// AddTaskTx and RescheduleTx must not wait for each other: they notify if the task is due within two seconds, and
// PostgreSQL commits notifying transactions one after another. PREPARE TRANSACTION refuses a notifying transaction.
func WithoutSignals() Option { return func(c *config) { c.signalling = false } }

func newConfig(opts []Option) (config, error) {
	c := config{schema: "timewheel", connections: 16, migrate: true, signalling: true, now: nowSQL, server: identity}
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

// isName reports whether PostgreSQL can store s as a name.
func isName(s string) bool {
	return len(s) <= 63 && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}
