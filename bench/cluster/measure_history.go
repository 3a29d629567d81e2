// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

const (
	// historyCase is the name of the case, which is measured only for durable/postgres.
	historyCase = "history"

	keptRuns  = 10_000 // attempts that a kind keeps
	slowKinds = 300    // kinds of the slow load
)

var keeps = []durable.KindOption{durable.WithHistory(keptRuns, time.Hour)}

// measureHistory lets two nodes run the tasks of the sustained case, without a history and with one, and the tasks of the
// seldom case, in turns of many kinds.
func measureHistory(_ peer, _ string, size sizes) (figures, error) {
	all := figures{}
	for _, load := range []struct {
		prefix string
		rate   int
		peers  [2]string
	}{{"", size.rate, [2]string{ours, "keeps"}}, {"slow_", min(seldomRate, size.rate), [2]string{"kinds", "kinds keep"}}} {
		for i, of := range []string{"plain_", "kept_"} {
			f, err := measureKept(load.peers[i], load.rate, size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", load.peers[i], err)
			}
			for figure, v := range f {
				all[load.prefix+of+figure] = v
			}
		}
		for _, of := range []string{"server", "nodes"} {
			all[load.prefix+of+"_ratio"] = all[load.prefix+"kept_"+of+"_us"] / all[load.prefix+"plain_"+of+"_us"]
		}
	}
	return all, nil
}

func measureKept(name string, rate int, size sizes) (figures, error) {
	return withNodes(peers[name], name, 0, func(s *pgtest.Server, c client, nodes *cluster) (figures, error) {
		f, err := load{s, c, nodes, size.patience}.run(0, int(size.sustain.Seconds())*rate, rate)
		if err != nil {
			return nil, err
		}
		f["notes_mb"], err = notesSize(s)
		return f, err
	})
}

// notesSize returns the size of the notes with their index and the vacuumed space, in MB.
func notesSize(s *pgtest.Server) (mb float64, err error) {
	return numberOf(s.URL(), "SELECT (pg_total_relation_size('timewheel.note') / 1e6)::float8")
}
