// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/sirupsen/logrus"
)

// A place is the location of the tasks, as given by the flags.
type place struct {
	db, dir         string
	schema, cluster string
	timeout         time.Duration // 0 means no timeout
	orURL           bool          // a service is a place, too
}

// define defines the flags for a place of any sort.
func (l *place) define(p *program, f *flag.FlagSet) {
	if p.open == nil {
		l.defineStored(p, f)
	}
	l.defineURL(p, f)
}

// defineRunning defines the flags for a place that processes have open.
func (l *place) defineRunning(p *program, f *flag.FlagSet) {
	if p.open == nil {
		l.defineDB(p, f)
	}
	l.defineURL(p, f)
}

// defineURL defines the flags for a service. In a service, which is the place of its commands, it defines flags that are
// refused.
func (l *place) defineURL(p *program, f *flag.FlagSet) {
	if p.open == nil {
		l.orURL = true
		p.remote.define(f, "the `URL` of a running serve, for its operators; the default is $TIMEWHEEL_URL")
		return
	}
	for _, name := range []string{"dir", "db", "schema", "cluster", "timeout", "url", "token-file", "ca-file"} {
		f.Func(name, "not with -url", func(string) error { return errors.New("-url is the place, and no other can be given") })
	}
}

// defineStored defines the flags for a store or a database.
func (l *place) defineStored(p *program, f *flag.FlagSet) {
	l.defineDir(f)
	l.defineDB(p, f)
}

func (l *place) defineDir(f *flag.FlagSet) {
	f.StringVar(&l.dir, "dir", "", "the `DIR` of an embedded store that no process has open")
}

func (l *place) defineDB(p *program, f *flag.FlagSet) {
	l.defineCluster(f)
	l.timeout = cmp.Or(l.timeout, giveUpAfter)
	f.Func("timeout", "give up when the database is silent for a `DURATION`, by default "+
		span(l.timeout)+"; 0: never", func(text string) (err error) {
		if l.timeout, err = time.ParseDuration(text); err == nil && l.timeout < 0 {
			err = errors.New("it is negative")
		}
		return err
	})
}

func (l *place) defineCluster(f *flag.FlagSet) {
	f.Func("db", "the `URL` of a cluster's database; the default is $TIMEWHEEL_DB", func(url string) error {
		l.db = url
		if url == "" {
			return errors.New("it is empty")
		}
		return nil
	})
	f.StringVar(&l.schema, "schema", "timewheel", "the `NAME` of the schema in the database")
	f.StringVar(&l.cluster, "cluster", "", "the `NAME` of the cluster that the schema was made for")
}

// choose completes the place from the environment. Afterwards, the place is a database if dir is empty.
func (l *place) choose(p *program) error {
	if l.db == "" && l.dir == "" {
		l.db = p.getenv("TIMEWHEEL_DB")
	} else if l.db != "" && l.dir != "" {
		return usagef("-db and -dir are two places; give one")
	}
	switch {
	case l.db != "" || l.dir != "":
	case l.orURL:
		return usagef("where are the tasks? Give -db, -dir or -url, or set TIMEWHEEL_DB or TIMEWHEEL_URL")
	default:
		return usagef("where are the tasks? Give -db or -dir, or set TIMEWHEEL_DB")
	}
	return nil
}

// engine opens the engine on the database and calls do with it. It gives up if the database does not answer.
func (l *place) engine(
	ctx context.Context, p *program, do func(ctx context.Context, e *postgres.Engine) error, opts ...postgres.Option,
) error {
	const connections = 4 // the fewest that an engine accepts
	w, err := newWatch(l.db, p.dial)
	if err != nil {
		return err
	}
	opts = append(opts, postgres.WithSchema(l.schema), postgres.WithCluster(l.cluster),
		postgres.WithConnections(connections))
	return w.over(ctx, p, l.timeout, func(ctx context.Context) error {
		e, err := w.open(ctx, opts...)
		if err != nil {
			return err
		}
		defer e.Close()
		return do(ctx, e)
	})
}

// store opens the store in the directory. The store must exist unless mayMake is true.
func (l *place) store(ctx context.Context, mayMake bool) (engine.Owned, error) {
	if !mayMake {
		if _, err := os.Stat(filepath.Join(l.dir, "FORMAT")); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no store in %s", l.dir)
		}
	}
	return pebble.Open(ctx, l.dir)
}

// over opens the engine on the store or on the database, and calls do with it. The context passed to do is cancelled if
// the database does not answer.
func (l *place) over(
	ctx context.Context, p *program, mayMake bool, do func(ctx context.Context, e engine.Engine) error,
) error {
	if err := l.choose(p); err != nil {
		return err
	}
	if l.dir == "" {
		return l.engine(ctx, p, func(ctx context.Context, e *postgres.Engine) error { return do(ctx, e) },
			postgres.WithoutMigration())
	}
	e, err := l.store(ctx, mayMake)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, e), e.Close())
}

// with calls do, passing it a scheduler for the tasks: in a service, its own. Elsewhere the scheduler runs no tasks and is
// not a node of a cluster. The context is the same as for over.
func (l *place) with(
	ctx context.Context, p *program, mayMake bool, do func(ctx context.Context, s scheduler) error,
) error {
	if p.open != nil {
		return do(ctx, p.open)
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard) // the scheduler's methods return the errors
	return l.over(ctx, p, mayMake, func(ctx context.Context, e engine.Engine) error {
		s, err := durable.Connect(ctx, e, durable.WithLogger(quiet))
		if err != nil {
			return err
		}
		err = do(ctx, s)
		if broken := s.Shutdown(context.WithoutCancel(ctx)); err == nil || !errors.Is(err, durable.ErrBroken) {
			err = errors.Join(err, broken)
		}
		return err
	})
}

// records calls do with the records of all tasks in due order, and with the expected number of records, or -1 if it is
// unknown. The context is the same as for over.
func (l *place) records(ctx context.Context, p *program,
	do func(ctx context.Context, all iter.Seq2[engine.Record, error], length int) error,
) error {
	return l.over(ctx, p, false, func(ctx context.Context, e engine.Engine) error {
		length := -1
		if e, ok := e.(engine.Owned); ok {
			length = e.Len()
		}
		return do(ctx, func(yield func(engine.Record, error) bool) {
			for stored, err := range e.Walk(ctx, engine.Range{After: engine.Position{Due: engine.None}, Until: lastDue}) {
				if !yield(stored.Record, err) {
					return
				}
			}
		}, length)
	})
}
