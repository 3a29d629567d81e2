// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	aboutDrain = `
A drained node starts no further run, and the other nodes take over its tasks within two seconds.
Runs in progress end as usual. The node stays a member of the cluster: it still adds and changes
tasks, and ` + "`timewheel nodes`" + ` shows it as drained. Once none of its runs is in progress, it can be
stopped without a run being repeated; -wait waits for that. A node that restarts under the name is
still drained.

  timewheel drain -wait web-1`

	aboutUndrain = `
The nodes of the names run tasks again within two seconds.

  timewheel undrain web-1`

	drainEvery = 500 * time.Millisecond // how often drain -wait looks at the nodes
)

func defineDrain(p *program, f *flag.FlagSet) action {
	var at place
	var wait bool
	at.defineDB(p, f)
	f.BoolVar(&wait, "wait", false, "wait until no run is in progress on the nodes")
	return func(ctx context.Context, args []string) error {
		names, err := nodeNames(args)
		if err != nil {
			return err
		}
		return at.with(ctx, p, false, func(ctx context.Context, s *durable.Scheduler) error {
			for _, name := range names {
				if err := s.Drain(ctx, name); err != nil {
					return err
				}
				fmt.Fprintf(p.out, "Node %s is drained.\n", quoteText(name))
			}
			for wait {
				running, gone, err := runningOn(ctx, s, names)
				if err != nil {
					return err
				}
				for _, name := range gone {
					return fmt.Errorf("node %s is gone: its runs may still be in progress", quoteText(name))
				}
				if running == 0 {
					fmt.Fprintln(p.out, "No run is in progress.")
					return nil
				}
				select {
				case <-time.After(drainEvery):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}
}

// runningOn returns the number of runs in progress on nodes with the names, and the names that no node has. A node that
// has not reported its drain yet counts as one run.
func runningOn(ctx context.Context, s *durable.Scheduler, names []string) (n int, gone []string, err error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names {
		there := false
		for _, node := range nodes {
			switch {
			case node.Name != name:
				continue
			case node.Drained:
				n += node.Running
			default:
				n++
			}
			there = true
		}
		if !there {
			gone = append(gone, name)
		}
	}
	return n, gone, nil
}

func defineUndrain(p *program, f *flag.FlagSet) action {
	var at place
	at.defineDB(p, f)
	return func(ctx context.Context, args []string) error {
		names, err := nodeNames(args)
		if err != nil {
			return err
		}
		return at.with(ctx, p, false, func(ctx context.Context, s *durable.Scheduler) error {
			for _, name := range names {
				if err := s.Undrain(ctx, name); err != nil {
					return err
				}
				fmt.Fprintf(p.out, "Node %s is not drained.\n", quoteText(name))
			}
			return nil
		})
	}
}

func nodeNames(args []string) ([]string, error) {
	names, err := keysOf(args)
	if err == nil && len(names) == 0 {
		err = usagef("which nodes? Give their names: `timewheel nodes` lists them")
	}
	return names, err
}
