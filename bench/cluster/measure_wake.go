// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// The cases of this file are about the number of times that nodes ask the server.
const (
	limitedCase = "limited" // measured only for durable/postgres, as are the two after it
	repeatsCase = "repeats"
	tenCase     = "ten-idle"

	clusterLimit = 200 // never reached
	repeating    = 500 // tasks that repeat each second
	restRate     = 5   // tasks added in a second from rest
	addersAtOnce = 8   // callers that add one by one
	batchAtOnce  = 50
	tenNodes     = 10
	settling     = 3 * time.Second // until nodes are at rest
)

// limited are the options of a kind with a limit of all nodes.
var limited = []durable.KindOption{durable.WithClusterConcurrency(clusterLimit)}

func measureLimited(_ peer, _ string, size sizes) (figures, error) {
	return measureLoad(peers[limitedCase], limitedCase, int(size.sustain.Seconds())*seldomRate, seldomRate, size.patience)
}

// measureAtOnce lets a client add tasks that are due at once: in batches, one by one, and one by one from rest.
func measureAtOnce(p peer, name string, size sizes) (figures, error) {
	return withNodes(p, name, 0, func(s *pgtest.Server, c client, nodes *cluster) (figures, error) {
		all, l, next := figures{}, load{s, c, nodes, size.patience}, 0
		for _, phase := range []struct {
			name                string
			rate, batch, adders int
		}{{"batch", seldomRate, batchAtOnce, 1}, {"one", seldomRate, 1, addersAtOnce}, {"rest", restRate, 1, 1}} {
			time.Sleep(settling)
			n := int(size.sustain.Seconds()) * phase.rate
			f, err := l.addAtOnce(next, n, phase.rate, phase.batch, phase.adders)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", phase.name, err)
			}
			next += n
			for figure, v := range f {
				all[phase.name+"_"+figure] = v
			}
		}
		return all, nil
	})
}

// addAtOnce adds n tasks from the first one on, each due when its add is called.
func (l load) addAtOnce(first, n, rate, batch, adders int) (figures, error) {
	nodesBefore, serverBefore, err := l.used()
	if err != nil {
		return nil, err
	}
	tasks := make([]task, n)
	began := time.Now()
	var group sync.WaitGroup
	failures := make([]error, adders)
	for adder := range adders {
		group.Go(func() {
			for i := adder * batch; i < n && failures[adder] == nil; i += adders * batch {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				some := tasks[i:min(i+batch, n)]
				now := time.Now()
				for j := range some {
					some[j] = task{first + i + j, now}
				}
				failures[adder] = l.c.add(context.Background(), some...)
			}
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	a, f, err := l.ended(tasks, time.Now().Add(l.patience), nodesBefore, serverBefore)
	return f, errors.Join(err, a.check())
}

// measureRepeats lets two nodes run tasks that repeat each second.
func measureRepeats(p peer, name string, size sizes) (figures, error) {
	return withNodes(p, name, 0, func(s *pgtest.Server, c client, nodes *cluster) (figures, error) {
		l := load{s, c, nodes, size.patience}
		all := make([]durable.Task, repeating)
		for i := range all {
			t := task{i, time.Now()}
			all[i] = durable.Task{Key: t.key(), Kind: oursKind, Payload: t.payload(), Interval: time.Second, Times: durable.Forever,
				Delay: time.Second + time.Duration(i)*time.Second/repeating}
		}
		if err := c.(*oursClient).node.AddTask(context.Background(), all...); err != nil {
			return nil, err
		}
		time.Sleep(settling)
		runs := func() (float64, error) {
			n, err := nodes.events()
			return float64(n) / 2, err
		}
		return l.asked(func() error { time.Sleep(size.sustain); return nil }, runs)
	})
}

// asked measures what the nodes and the server use while do runs, and divides it by what count counts meanwhile.
func (l load) asked(do func() error, count func() (float64, error)) (figures, error) {
	time.Sleep(statsLate)
	before, err := count()
	if err != nil {
		return nil, err
	}
	commits, err := commitsOf(l.s.URL())
	if err != nil {
		return nil, err
	}
	nodesBefore, serverBefore, err := l.used()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	nodesAfter, serverAfter, err := l.used()
	if err != nil {
		return nil, err
	}
	after, err := count()
	if err != nil {
		return nil, err
	}
	time.Sleep(statsLate) // the counts of transactions are late, and nodes make few more in this time
	commitsAfter, err := commitsOf(l.s.URL())
	n := after - before
	return figures{
		"n": n, "nodes_us": float64((nodesAfter - nodesBefore).Microseconds()) / n,
		"server_us": float64((serverAfter - serverBefore).Microseconds()) / n, "commits": (commitsAfter - commits) / n,
	}, err
}

// measureTen counts the statements of ten nodes and a client for each task, of which the client adds one a second. It leaves out
// the statements of the same nodes without tasks.
func measureTen(p peer, name string, size sizes) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (_ figures, err error) {
		c, err := p.open(context.Background(), s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		nodes, err := startCluster(tenNodes, name, s.URL(), lease, 0)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, nodes.close()) }()
		if err := execute(context.Background(), s.URL(), `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return nil, err
		}
		time.Sleep(settling)
		count := func(do func() error) (float64, error) {
			before, err := statementsOf(s.URL())
			if err != nil {
				return 0, err
			}
			if err := do(); err != nil {
				return 0, err
			}
			after, err := statementsOf(s.URL())
			return after - before, err
		}
		seconds := int(size.sustain.Seconds())
		rest := size.sustain + time.Second
		idle, err := count(func() error { time.Sleep(rest); return nil })
		if err != nil {
			return nil, err
		}
		busy, err := count(func() error {
			began := time.Now()
			for i := range seconds {
				if err := c.add(context.Background(), task{i, time.Now()}); err != nil {
					return err
				}
				time.Sleep(time.Until(began.Add(time.Duration(i+1) * time.Second)))
			}
			time.Sleep(time.Until(began.Add(rest)))
			return nil
		})
		if err != nil {
			return nil, err
		}
		return figures{"idle": idle / rest.Seconds(), "statements": (busy - idle) / float64(seconds)}, nodes.await(seconds, time.Now())
	}, "shared_preload_libraries=pg_stat_statements")
}

// statementsOf returns how many statements the server has run, but for the BEGINs and COMMITs.
func statementsOf(url string) (float64, error) {
	return numberOf(url, `SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements WHERE query NOT IN ('BEGIN', 'COMMIT')`)
}
