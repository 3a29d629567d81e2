// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/postgres"
)

const aboutBackup = `
FILE becomes a tar of a directory, which is a store as it was at one instant. It must not be there.
"-" is the standard output. To use the copy, unpack it into an empty directory:

  mkdir tasks && tar -xf tasks.tar -C tasks && timewheel stats -dir tasks

A store that a process has open is copied by that process, if it serves backup.Handler of package
durable/backup. -url is the address of that. Without a path, it is the operators' address of serve,
whose token needs the right backup. A user and a password in it are sent along. -header, or
the environment variable TIMEWHEEL_HEADER, adds a header of the request.

  timewheel backup -url https://shop.example/debug/timewheel/backup tasks.tar
  timewheel backup -url http://127.0.0.1:8471 -token-file night.token tasks.tar

Without a process, -dir is the store. A cluster's database has pg_dump, and timewheel export.`

func defineBackup(p *program, f *flag.FlagSet) action {
	var at place
	header := p.getenv("TIMEWHEEL_HEADER")
	at.defineDir(f)
	p.remote.define(f, "the `URL` of the backup that a process serves; the default is $TIMEWHEEL_URL")
	f.Func("header", "a `HEADER` of the request; the default is $TIMEWHEEL_HEADER", func(text string) error {
		header = text
		return nil
	})
	return func(ctx context.Context, args []string) error {
		away, err := p.remote.choose(p, f)
		switch {
		case err != nil:
			return err
		case len(args) == 0:
			return usagef("where to? Give a FILE, or - for the standard output")
		case at.dir == "" && !away:
			return usagef("which store? Give -dir, or -url if a process has it open")
		case args[0] == "-" && p.shows:
			return usagef("a backup is not text for a terminal; redirect the standard output")
		}
		name, err := oneFile(args)
		if err != nil {
			return err
		}
		so := p.progress("Copied", "megabyte")
		from := func(to io.Writer) error { return p.fetch(ctx, counted{to, new(int), so}, header) }
		if at.dir != "" {
			store, err := at.store(ctx, false)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }() // nothing was written to the store
			from = func(to io.Writer) error { return store.Backup(ctx, counted{to, new(int), so}) }
		}
		return p.create(name, from)
	}
}

// A counted is a writer that counts the bytes written to it.
type counted struct {
	io.Writer
	bytes *int
	so    func(megabytes int)
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	*c.bytes += n
	c.so(*c.bytes / 1e6)
	return n, err
}

// fetch downloads the backup that a process serves, and copies it to a writer.
func (p *program) fetch(ctx context.Context, to io.Writer, header string) error {
	with := make(http.Header)
	if header != "" {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return usagef("a header is a name, a colon and a value")
		}
		with.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	response, err := p.remote.post(ctx, p, "/backup", nil, with)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	kind := response.Header.Get("Content-Type")
	if response.StatusCode != http.StatusOK || kind != "application/x-tar" {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("the server has no backup for us: %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	_, err = io.Copy(to, response.Body)
	return err
}

const aboutMigrate = `
Programs do so as well when they open the engine, unless it has the option WithoutMigration. A
migration only adds, so that programs of the previous version can continue. With -print it writes
the SQL, and needs no database.`

func defineMigrate(p *program, f *flag.FlagSet) action {
	var at place
	var show bool
	at.timeout = time.Hour // the server is silent while it builds an index over many tasks
	at.defineDB(p, f)
	f.BoolVar(&show, "print", false, "write the SQL, and do nothing")
	return noArgs(func(ctx context.Context) error {
		if show {
			text, err := postgres.Schema(postgres.WithSchema(at.schema), postgres.WithCluster(at.cluster))
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(p.out, text)
			return err
		}
		if err := at.choose(p); err != nil {
			return err
		}
		err := at.engine(ctx, p, func(context.Context, *postgres.Engine) error { return nil })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "The schema %s is up to date.\n", quoteText(at.schema))
		return err
	})
}
