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
const identity = "((SELECT system_identifier FROM pg_control_system()) || ' ' || " +
	"substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))"

// A primary identifies the server that an engine uses.
type primary struct {
	mu       sync.Mutex // protects the fields below
	system   string     // the system identifier, or empty if it is unknown
	timeline string     // the latest timeline seen
	replaced func()     // called when a later timeline is seen
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
	for _, of := range []string{"CASE WHEN NOT pg_is_in_recovery() THEN " + identity + " END", "''"} {
		results, err = conn.Exec(ctx, "SELECT pg_is_in_recovery(), pg_backend_pid(), "+of).ReadAll()
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
	return p.found(system, timeline)
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

// found compares the identity of a server with the identity seen so far. It returns an error if the engine must not use
// the server.
func (p *primary) found(system, timeline string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case system == "":
	case p.system == "":
		p.system, p.timeline = system, timeline
	case system != p.system:
		p.refused++
		return fmt.Errorf("%w: its system identifier is %s, and that of the engine's server is %s", ErrNotPrimary,
			system, p.system)
	case timeline < p.timeline:
		p.refused++
		return fmt.Errorf("%w: its timeline is %s, and the engine has seen %s", ErrNotPrimary, timeline, p.timeline)
	case timeline > p.timeline:
		p.timeline = timeline
		if p.replaced != nil {
			p.replaced()
		}
	}
	return nil
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

// opened sets the function that is called when a later timeline is seen. If direct is true, connections through a
// pooler are refused from then on.
func (p *primary) opened(direct bool, replaced func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.direct, p.replaced = direct, replaced
}
