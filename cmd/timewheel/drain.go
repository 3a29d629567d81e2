// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"time"
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
	var wait bool
	f.BoolVar(&wait, "wait", false, "wait until no run is in progress on the nodes")
	return defineNodeVerb(p, f, scheduler.Drain, "drained",
		func(ctx context.Context, s scheduler, names []string) error {
			if !wait {
				return nil
			}
			return p.waitForRuns(ctx, s, names)
		})
}

func defineUndrain(p *program, f *flag.FlagSet) action {
	return defineNodeVerb(p, f, scheduler.Undrain, "not drained",
		func(context.Context, scheduler, []string) error { return nil })
}

// defineNodeVerb defines a command that calls do for each node in its arguments, and then calls after once with all of
// them. It prints the state of each node.
func defineNodeVerb(p *program, f *flag.FlagSet, do func(scheduler, context.Context, string) error, state string,
	after func(ctx context.Context, s scheduler, names []string) error,
) action {
	var at place
	at.defineRunning(p, f)
	return func(ctx context.Context, args []string) error {
		names, err := keysOf(args)
		switch {
		case err != nil:
			return err
		case len(names) == 0:
			return usagef("which nodes? Give their names: `timewheel nodes` lists them")
		}
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error {
			for _, name := range names {
				if err := do(s, ctx, name); err != nil {
					return err
				}
				fmt.Fprintf(p.out, "Node %s is %s.\n", quoteText(name), state)
			}
			return after(ctx, s, names)
		})
	}
}

// waitForRuns waits until no run is in progress on the drained nodes with the given names.
func (p *program) waitForRuns(ctx context.Context, s scheduler, names []string) error {
	for {
		running, err := runningOn(ctx, s, names)
		if err != nil {
			return err
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
}

// runningOn returns the number of runs in progress on nodes with the names. A node that has not reported its drain yet
// counts as one run. If no node has one of the names, it returns an error.
func runningOn(ctx context.Context, s scheduler, names []string) (n int, err error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		there := false
		for _, node := range nodes {
			if node.Name != name {
				continue
			}
			there = true
			switch {
			case node.Left < 0:
				return 0, fmt.Errorf("node %s does not renew its lease: its runs may still be in progress", quoteText(name))
			case node.Drained:
				n += max(node.Running, node.Held) // it holds a task until the end of its run is stored
			default:
				n++
			}
		}
		if !there {
			return 0, fmt.Errorf("node %s is gone: its runs may still be in progress", quoteText(name))
		}
	}
	return n, nil
}
