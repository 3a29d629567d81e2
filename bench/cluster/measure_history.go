// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

const (
	// historyCase is the name of the case, which is measured only for durable/postgres.
	historyCase = "history"

	// keepingName is durable/postgres with a history of the last keptRuns runs.
	keepingName = "durable/postgres with a history"
	keptRuns    = 10_000
)

type keepingPeer struct{ oursPeer }

func (keepingPeer) start(
	ctx context.Context, url, name string, lease time.Duration, run func([]byte),
) (func() error, error) {
	return startOurs(ctx, url, name, lease, run, durable.WithHistory(keptRuns, time.Hour))
}

// measureHistory lets two nodes run the tasks of the sustained case, without a history and with one.
func measureHistory(p peer, name string, size sizes) (figures, error) {
	all := figures{}
	n := int(size.sustain.Seconds()) * size.rate
	for _, of := range []struct {
		prefix, name string
		p            peer
	}{{"plain", name, p}, {"kept", keepingName, keepingPeer{}}} {
		f, err := withNodes(of.p, of.name, 0, func(s *pgtest.Server, c client, nodes *cluster) (figures, error) {
			f, err := load{s, c, nodes, size.patience}.run(0, n, size.rate)
			if err != nil {
				return nil, err
			}
			f["notes_mb"], err = notesSize(s)
			return f, err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.name, err)
		}
		for figure, v := range f {
			all[of.prefix+"_"+figure] = v
		}
	}
	all["server_ratio"] = all["kept_server_us"] / all["plain_server_us"]
	all["nodes_ratio"] = all["kept_nodes_us"] / all["plain_nodes_us"]
	return all, nil
}

// notesSize returns the size of the notes with their index and the vacuumed space, in MB.
func notesSize(s *pgtest.Server) (mb float64, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SELECT pg_total_relation_size('timewheel.note') / 1e6").Scan(&mb)
	return mb, err
}
