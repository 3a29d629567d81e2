// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const aboutSchedules = `
A program declares the tasks of a schedule under a prefix with a version (Scheduler.Schedule). If a
version was begun and is not applied in full, the tasks are a mixture until Schedule is called
again. The tasks of a schedule: timewheel ls -prefix PREFIX.`

func defineSchedules(p *program, f *flag.FlagSet) action {
	return defineLook(p, f, (*place).define, "write JSON lines",
		func(ctx context.Context, s scheduler, asJSON bool) error {
			sets, err := s.Sets(ctx)
			if err != nil {
				return err
			}
			return p.writeSchedules(sets, asJSON)
		})
}

type scheduleJSON struct {
	Prefix     text      `json:"prefix"`
	Version    int64     `json:"version"`
	Unfinished *int64    `json:"unfinished,omitempty"`
	At         time.Time `json:"at,omitzero"`
	By         string    `json:"by,omitempty"`
}

func (p *program) writeSchedules(sets []durable.SetInfo, asJSON bool) error {
	if asJSON {
		for _, set := range sets {
			j := scheduleJSON{Prefix: text(set.Prefix), Version: set.Version, At: set.At.UTC(), By: set.By}
			if set.Unfinished >= 0 {
				j.Unfinished = &set.Unfinished
			}
			if err := writeJSON(p.out, j); err != nil {
				return err
			}
		}
		return nil
	}
	if len(sets) == 0 {
		fmt.Fprintln(p.err, "No schedule is declared.")
		return nil
	}
	t := table{columns: []column{{title: "PREFIX", least: 8}, {title: "VERSION", right: true}, {title: "DECLARED"}, {title: "BY", least: 8}}}
	for _, set := range sets {
		version := fmt.Sprint(set.Version)
		if set.Version < 0 {
			version = "none"
		}
		if set.Unfinished >= 0 {
			version += fmt.Sprintf(", %d not in full", set.Unfinished)
		}
		by := ""
		if set.By != "" {
			by = quoteText(set.By)
		}
		t.add(quoteText(set.Prefix), version, p.when(set.At), by)
	}
	t.write(p.out, p.width)
	return nil
}
