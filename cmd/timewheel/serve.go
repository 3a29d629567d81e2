// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/serve"
)

const aboutServe = `
It adds, changes and removes tasks for programs in any language, over HTTP. When a task is due, it
calls the webhook of the task's kind. The tasks are in an embedded store, which is made if there is
none, or in a database, which any number of such processes share. A kind may keep a history of its
attempts, which callers read at /history.

SIGTERM ends it. For the grace time it answers callers as before while /readyz says that it is not
ready, so that a load balancer takes another process. Then it accepts no further request, starts no
further run, and waits for the runs in progress. If some have not ended after the drain time, the
exit code is 1, and they are repeated later. A second SIGTERM, or SIGINT, ends the grace at once.

The configuration is a JSON file. HTTP.md of the command describes it. SIGHUP reads it again, and
applies its tokens, secrets, headers and certificates. The log names the other fields that differ:
they need a restart, which loses nothing. If anything in the file is wrong, nothing changes.

  timewheel serve -config serve.json -dir /var/lib/shop/tasks
  timewheel serve -config serve.json -check

-check checks the configuration, and whether the file descriptors that this process may have open
suffice for it. Without -db it assumes an embedded store.`

func defineServe(p *program, f *flag.FlagSet) action {
	var l place
	l.defineDir(f)
	l.defineCluster(f)
	config := f.String("config", "", "the `FILE` with the configuration")
	check := f.Bool("check", false, "check the configuration, and do nothing else")
	connections := f.Int("connections", 0, "the greatest `NUMBER` of connections to the database; by default 16")
	return noArgs(func(ctx context.Context) error {
		if *config == "" {
			return usagef("which configuration? Give -config")
		}
		if *connections != 0 && *connections < 4 {
			return usagef("-connections %d is less than 4", *connections)
		}
		cfg, err := serve.Load(*config, p.getenv)
		if err != nil {
			return err
		}
		in := serve.Place{Connections: *connections, Commander: p.command}
		if !*check || l.db != "" || l.dir != "" || p.getenv("TIMEWHEEL_DB") != "" { // a check without a place is of the file alone
			if err := l.choose(p); err != nil {
				return err
			}
		}
		in.Dir, in.DB, in.Schema, in.Cluster = l.dir, l.db, l.schema, l.cluster
		if err := cfg.CheckPlace(in); err != nil {
			return err
		}
		if *check {
			if in.DB != "" {
				if _, err := pgx.ParseConfig(in.DB); err != nil {
					return err
				}
			}
			short, err := cfg.CheckDescriptors(in)
			if err != nil {
				return err
			}
			fmt.Fprintln(p.out, "The configuration is valid.")
			if short != "" {
				fmt.Fprintf(p.err, "timewheel: warning: %s.\n", short)
			}
			return nil
		}
		var handler slog.Handler = slog.NewTextHandler(p.err, nil)
		if cfg.Log == "json" {
			handler = slog.NewJSONHandler(p.err, nil)
		}
		reload, stop := make(chan os.Signal, 1), make(chan os.Signal, 2)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(stop)
		srv, err := serve.Open(ctx, cfg, in, slog.New(handler))
		if err != nil {
			return err
		}
		defer raiseHeap(p.getenv)()
		return srv.Run(context.WithoutCancel(ctx), reload, stop) // the signals would end ctx without a grace
	})
}
