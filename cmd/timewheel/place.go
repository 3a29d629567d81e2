// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/sirupsen/logrus"
)

// A place is where the tasks are, as flags say it.
type place struct {
	db, dir         string
	schema, cluster string
}

func (l *place) define(p *program, f *flag.FlagSet) {
	l.defineDir(f)
	l.defineDB(p, f)
}

func (l *place) defineDir(f *flag.FlagSet) {
	f.StringVar(&l.dir, "dir", "", "the `DIR` of an embedded store that no process has open")
}

func (l *place) defineDB(p *program, f *flag.FlagSet) {
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

// choose completes the place from the environment. It is in a database if dir is empty.
func (l *place) choose(p *program) error {
	if l.db == "" && l.dir == "" {
		l.db = p.getenv("TIMEWHEEL_DB")
	} else if l.db != "" && l.dir != "" {
		return usagef("-db and -dir are two places; give one")
	}
	if l.db == "" && l.dir == "" {
		return usagef("where are the tasks? Give -db or -dir, or set TIMEWHEEL_DB")
	}
	return nil
}

// engine opens the engine on the database.
func (l *place) engine(ctx context.Context, opts ...postgres.Option) (*postgres.Engine, error) {
	const connections = 4 // the least that an engine takes
	return postgres.Open(ctx, l.db, append(opts, postgres.WithSchema(l.schema), postgres.WithCluster(l.cluster),
		postgres.WithConnections(connections))...)
}

// store opens the store in the directory, which must be there unless it may be made.
func (l *place) store(mayMake bool) (*pebble.Store, error) {
	if !mayMake {
		if _, err := os.Stat(filepath.Join(l.dir, "FORMAT")); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no store in %s", l.dir)
		}
	}
	return pebble.Open(l.dir)
}

// with calls do with a scheduler on the tasks, which runs nothing and is no node of a cluster.
func (l *place) with(ctx context.Context, p *program, mayMake bool, do func(s *durable.Scheduler) error) error {
	if err := l.choose(p); err != nil {
		return err
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard) // the verbs return what it has to say
	opts := []durable.Option{durable.WithLogger(quiet), durable.WithoutFingerprints()}
	var s *durable.Scheduler
	if l.dir != "" {
		store, err := l.store(mayMake)
		if err != nil {
			return err
		}
		if s, err = durable.New(store, opts...); err != nil {
			return errors.Join(err, store.Close())
		}
	} else {
		e, err := l.engine(ctx, postgres.WithoutMigration())
		if err != nil {
			return err
		}
		defer e.Close()
		if s, err = durable.Connect(ctx, e, opts...); err != nil {
			return err
		}
	}
	err := do(s)
	if broken := s.Shutdown(context.WithoutCancel(ctx)); err == nil || !errors.Is(err, durable.ErrBroken) {
		err = errors.Join(err, broken)
	}
	return err
}

// records calls do with all tasks as they are kept, in due order, and with how many there should be, or -1.
func (l *place) records(
	ctx context.Context, p *program, do func(all iter.Seq2[durable.Record, error], length int) error,
) error {
	if err := l.choose(p); err != nil {
		return err
	}
	from, until := durable.Position{Due: durable.None}, lastDue
	if l.dir != "" {
		store, err := l.store(false)
		if err != nil {
			return err
		}
		return errors.Join(do(store.Due(from, until), store.Len()), store.Close())
	}
	e, err := l.engine(ctx, postgres.WithoutMigration())
	if err != nil {
		return err
	}
	defer e.Close()
	return do(func(yield func(durable.Record, error) bool) {
		for stored, err := range e.Due(ctx, from, until) {
			if !yield(stored.Record, err) {
				return
			}
		}
	}, -1)
}
