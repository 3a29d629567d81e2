// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// asRole replaces the processes by ones that connect with a role of their own, which has few rights.
func asRole(s *scene) error {
	const grants = `CREATE ROLE $role LOGIN; GRANT ALL ON SCHEMA $role TO $role; GRANT ALL ON ALL TABLES IN SCHEMA $role TO $role;
		GRANT ALL ON ALL SEQUENCES IN SCHEMA $role TO $role`
	if err := s.sql(strings.ReplaceAll(grants, "$role", s.schema)); err != nil { // it has the name of the schema
		return err
	}
	as, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	as.User = url.User(s.schema)
	s.url = as.String()
	return s.replaceAll()
}

// replaceAll stops all processes, and starts others.
func (s *scene) replaceAll() error {
	for _, p := range s.all() {
		if err := s.stop(p); err != nil {
			return err
		}
	}
	return s.start()
}

// crowd leaves the role of the processes two connections, fewer than one of them uses.
func crowd(s *scene) error {
	s.later(func() { _ = s.sql("ALTER ROLE " + s.schema + " CONNECTION LIMIT -1") })
	return errors.Join(s.sql("ALTER ROLE "+s.schema+" CONNECTION LIMIT 2"),
		s.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+s.schema+"'"))
}

// databaseVolume is the size of the file system of a server whose disk is to be full, in megabytes.
const databaseVolume = 200

// onSmallDisk replaces the server by one on a small file system, and the processes by ones that use it.
func onSmallDisk(s *scene) error {
	dir, err := os.MkdirTemp("", "incident") // where the user of the server can reach it
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", databaseVolume))); err != nil {
		return errors.Join(fmt.Errorf("%w: no file system can be mounted: %w", errCannot, err), os.Remove(dir))
	}
	large := s.server
	small, err := pgtest.StartIn(dir, "min_wal_size=32MB", "max_wal_size=32MB")
	s.unmount = func() error {
		if s.server = large; small != nil {
			_ = small.Close()
		}
		return errors.Join(syscall.Unmount(dir, 0), os.Remove(dir))
	}
	if err != nil {
		return err
	}
	s.server = small
	s.tasks = filepath.Join(dir, "tasks") // for fill
	s.proxy.To(small)
	return s.replaceAll()
}

// fillDatabase fills up the disk of the server and writes until the server cannot, at its next segment of the log.
func fillDatabase(s *scene) error {
	if err := fill(s); err != nil {
		return err
	}
	for range 10 {
		if err := s.sql("SELECT pg_logical_emit_message(false, 'incident', repeat('x', 4000000))"); err != nil {
			return nil
		}
	}
	return errors.New("the server writes on a full disk")
}

// emptyDatabase makes room, and starts the server again if it has ended.
func emptyDatabase(s *scene) error {
	if err := os.Remove(filepath.Join(filepath.Dir(s.tasks), "filler")); err != nil {
		return err
	}
	if s.sql("SELECT 1") == nil {
		return nil
	}
	return errors.Join(s.server.Stop(pgtest.Immediate), s.server.Restart())
}

// sql executes statements on the server, as its superuser.
func (s *scene) sql(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.server.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, text)
	return err
}

// connectionsUsedUp is the incident in which the role of the processes has too few connections.
var connectionsUsedUp = incident{
	name:  "the connections are used up",
	on:    []backend{one, two},
	begin: doAll(asRole, beat, crowd),
	after: 2 * time.Second, // until page and node have asked again
	seen: view{
		headline: "away|unread|well|overloaded|backlog|counting",
		may:      append([]string{"TimewheelDurableEngineAway", "TimewheelDurableLeaseLate", "TimewheelDurableEndsRefused"}, busyAlerts...),
		asks:     []question{{args: []string{"stats"}, prints: "too many connections", fails: true}},
	},
	holds: 12 * time.Second,
	never: "failing|parked|unhandled",
	end:   undo,
	stays: "taken",                                 // a node without a connection may lose its lease
	keeps: []string{"TimewheelDurableEndsRefused"}, // its expression covers ten minutes
}

// databaseFull is the incident in which the disk of the database is full.
var databaseFull = incident{
	name:  "the database's disk is full",
	on:    []backend{one, two},
	begin: doAll(onSmallDisk, beat, fillDatabase),
	after: 2 * time.Second, // until page and node have asked again
	seen: view{
		headline: "away", says: "^The engine has not served this node",
		metrics: []string{"min(timewheel_durable_engine_away) == 1"},
		alerts:  []string{"TimewheelDurableEngineAway"}, alarm: 5 * time.Second,
		may:  []string{"TimewheelDurableLeaseLate"},
		asks: []question{{args: []string{"stats"}, prints: "127.0.0.1|recovery", fails: true}},
	},
	holds: 8 * time.Second,
	never: lost + "|failing|parked",
	end:   emptyDatabase,
}
