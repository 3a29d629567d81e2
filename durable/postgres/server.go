// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotPrimary is returned for a connection to a server that must not be used. Such a server is in recovery, is on a
// timeline older than one that the engine has already seen, or has the system identifier of another database cluster.
// The engine therefore never writes to an old primary that returns after a standby has been promoted.
var ErrNotPrimary = errors.New("postgres: the server is not the primary")

// identity is SQL for the system identifier and the timeline of a server that is not in recovery. The timeline is a
// number of eight hexadecimal digits that increases with every promotion. Every role may call these functions unless
// the permission was revoked.
const identity = "pg_catalog.concat((SELECT system_identifier FROM pg_catalog.pg_control_system()), ' ', " +
	"pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))"

// A primary identifies the server that an engine uses.
type primary struct {
	mu       sync.Mutex // protects the fields below
	system   string     // the system identifier, or empty if it is unknown
	timeline string     // the latest timeline seen
	replaced func()     // called when a later timeline is seen; nil in Open
	notice   string     // SQL that the engine runs first on a server of a later timeline
	refused  uint64     // number of refused connections to an old primary or another database cluster
	direct   bool       // the engine relies on session state
}

// errPooler is the error for a connection through a pooler if the first connection in Open was direct. Statement names
// and settings would end up in the sessions of other clients.
var errPooler = errors.New("postgres: the connection is by a pooler, and the first one was direct: " +
	"name either poolers or servers in the URL, or add default_query_exec_mode=cache_describe")

// validate returns an error if the engine must not use the connection. Package pgx then tries the next host in the URL.
func (p *primary) validate(ctx context.Context, conn *pgconn.PgConn) error {
	var results []*pgconn.Result
	var err error
	for _, of := range []string{"CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN " + identity + " END", "''"} {
		results, err = conn.Exec(ctx, "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(), "+of).ReadAll()
		if !is(err, "42501") {
			break // code 42501: the role may not read the server's identity
		}
	}
	if err != nil {
		return err
	}
	row := results[0].Rows[0]
	if string(row[0]) == "t" {
		return fmt.Errorf("%w: it is in recovery", ErrNotPrimary)
	}
	if p.isDirect() && isPooled(conn, string(row[1])) {
		return errPooler
	}
	system, timeline, _ := strings.Cut(string(row[2]), " ")
	later, err := p.found(system, timeline)
	if err != nil || !later {
		return err
	}
	// Before any statement of the engine: the promoted server may lack the last commits.
	if _, err = conn.Exec(ctx, p.notice).ReadAll(); err != nil && !is(err, "25006") {
		return err
	}
	p.follow(timeline)
	return nil
}

// isPooled reports whether the connection goes through a pooler. pid is the number of the server process. A pooler
// reports its own process numbers to clients, because the server process behind a client changes.
func isPooled(conn *pgconn.PgConn, pid string) bool {
	return pid != strconv.FormatUint(uint64(conn.PID()), 10)
}

func (p *primary) isDirect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.direct
}

// found compares the identity of a server with the identity seen so far, and reports whether the server was promoted
// since. It returns an error if the engine must not use the server.
func (p *primary) found(system, timeline string) (later bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case system == "":
	case p.system == "":
		p.system, p.timeline = system, timeline
	case system != p.system:
		p.refused++
		return false, fmt.Errorf("%w: its system identifier is %s, and that of the engine's server is %s", ErrNotPrimary,
			system, p.system)
	case timeline < p.timeline:
		p.refused++
		return false, fmt.Errorf("%w: its timeline is %s, and the engine has seen %s", ErrNotPrimary, timeline, p.timeline)
	case timeline > p.timeline && p.replaced == nil: // in Open, which notices the server itself
		p.timeline = timeline
	case timeline > p.timeline:
		return true, nil
	}
	return false, nil
}

// follow makes the engine use only servers of the timeline and of later ones.
func (p *primary) follow(timeline string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if timeline > p.timeline {
		p.timeline = timeline
		p.replaced()
	}
}

// refusals returns the number of refused connections to an old primary or another database cluster.
func (p *primary) refusals() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// known reports whether the server's identity is known.
func (p *primary) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.system != ""
}

// opened sets the SQL to run and the function to call when a later timeline is seen. If direct is true, connections
// through a pooler are refused from then on.
func (p *primary) opened(direct bool, notice string, replaced func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.direct, p.notice, p.replaced = direct, notice, replaced
}
