// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// lease is the lease of the nodes: the default of durable.New.
const lease = 5 * time.Second

// withNodes measures on a new server with two nodes that are ready.
func withNodes(
	p peer, name string, work time.Duration,
	measure func(s *pgtest.Server, c client, nodes *cluster) (figures, error),
) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (f figures, err error) {
		c, err := p.open(context.Background(), s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		nodes, err := startCluster(2, name, s.URL(), lease, work)
		if err != nil {
			return nil, err
		}
		defer func() {
			if e := nodes.close(); err == nil {
				err = e
			}
		}()
		return measure(s, c, nodes)
	})
}

// ahead returns how long before the first due time n tasks are added.
func ahead(n int) time.Duration { return 4*time.Second + time.Duration(n)*time.Second/3000 }

// spread returns tasks that are due at a rate from a time on; a rate of 0 is one instant.
func spread(n, rate int, from time.Time) []task { return spreadFrom(0, n, rate, from) }

// spreadFrom is spread with tasks from a number on.
func spreadFrom(first, n, rate int, from time.Time) []task {
	return tasksFrom(first, n, func(id int) time.Time {
		if rate == 0 {
			return from
		}
		return from.Add(time.Duration(id-first) * time.Second / time.Duration(rate))
	})
}

// put adds the tasks, and returns an error if that took until shortly before the first due time.
func put(s *pgtest.Server, c client, tasks []task) error {
	first := tasks[0].id
	err := fill(c, first, len(tasks), func(id int) time.Time { return tasks[id-first].due })
	if err = errors.Join(err, analyze(s)); err != nil {
		return err
	}
	if left := time.Until(tasks[0].due); left < 2*time.Second {
		return fmt.Errorf("%d tasks were added %v before the first was due", len(tasks), left)
	}
	return nil
}

const seldomRate = 500 // tasks due per second

func measureSustained(p peer, name string, size sizes) (figures, error) {
	return measureLoad(p, name, int(size.sustain.Seconds())*size.rate, size.rate, size.patience)
}

func measureSeldom(p peer, name string, size sizes) (figures, error) {
	return measureLoad(p, name, int(size.sustain.Seconds())*seldomRate, seldomRate, size.patience)
}

func measureBurst(p peer, name string, size sizes) (figures, error) {
	return measureLoad(p, name, size.burst, 0, size.patience)
}

// measureLoad lets two nodes run n tasks that are due at a rate.
func measureLoad(p peer, name string, n, rate int, patience time.Duration) (figures, error) {
	return withNodes(p, name, 0, func(s *pgtest.Server, c client, nodes *cluster) (figures, error) {
		return load{s, c, nodes, patience}.run(0, n, rate)
	})
}

// A load is the load of the nodes.
type load struct {
	s        *pgtest.Server
	c        client
	nodes    *cluster
	patience time.Duration
}

// run lets the nodes run n tasks that are due at a rate. Tasks before the first have run.
func (l load) run(first, n, rate int) (figures, error) {
	tasks := spreadFrom(first, n, rate, time.Now().Add(ahead(n)))
	if err := put(l.s, l.c, tasks); err != nil {
		return nil, err
	}
	time.Sleep(time.Until(tasks[0].due) - 1500*time.Millisecond) // claims ahead of the due time count
	if err := profileFrom(l.s); err != nil {
		return nil, err
	}
	nodesBefore, serverBefore, err := l.used()
	if err != nil {
		return nil, err
	}
	a, f, err := l.ended(tasks, tasks[n-1].due.Add(l.patience), nodesBefore, serverBefore)
	if err != nil {
		return nil, err
	}
	f["took_ms"] = ms(a.last.Sub(tasks[0].due))
	live, err := l.c.live(context.Background())
	f["left"] = float64(live)
	return f, errors.Join(err, a.check())
}

// ended waits until the runs of the tasks have ended, or for the given time. It returns their account, and the figures of that with
// the CPU time used since before.
func (l load) ended(tasks []task, until time.Time, nodesBefore, serverBefore time.Duration) (a account, f figures, err error) {
	n := len(tasks)
	if err := l.nodes.await(tasks[0].id+n, until); err != nil {
		return a, nil, err
	}
	time.Sleep(500 * time.Millisecond) // for acknowledgements and unexpected runs
	nodesAfter, serverAfter, err := l.used()
	if err != nil {
		return a, nil, err
	}
	events, err := readLedgers(l.nodes.ledgers())
	if err != nil {
		return a, nil, err
	}
	a = settle(tasks, events)
	f = a.figures()
	f["nodes_us"] = float64((nodesAfter - nodesBefore).Microseconds()) / float64(n)
	f["server_us"] = float64((serverAfter - serverBefore).Microseconds()) / float64(n)
	return a, f, nil
}

// used returns the CPU time that the nodes and the server have used.
func (l load) used() (nodes, server time.Duration, err error) {
	pid, err := l.s.PID()
	if err != nil {
		return 0, 0, err
	}
	if nodes, err = l.nodes.cpu(); err == nil {
		server, err = cpuOfServer(pid)
	}
	return nodes, server, err
}

const heldRate = 500 // tasks due per second, for five seconds

// measureHeld lets two nodes run few tasks, and again after they have run many while a transaction is open.
func measureHeld(p peer, name string, size sizes) (figures, error) {
	return withNodes(p, name, 0, func(s *pgtest.Server, c client, nodes *cluster) (_ figures, err error) {
		all, l := figures{}, load{s, c, nodes, size.patience}
		next := 0
		phase := func(name string, n, rate int) error {
			f, err := l.run(next, n, rate)
			next += n
			for figure, v := range f {
				all[name+"_"+figure] = v
			}
			return err
		}
		if err := phase("fresh", 5*heldRate, heldRate); err != nil {
			return nil, err
		}
		release, err := holdOpen(context.Background(), s.URL())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, release()) }()
		if err := phase("churn", size.held, 0); err != nil {
			return nil, err
		}
		return all, phase("dead", 5*heldRate, heldRate)
	})
}

const (
	takeOverRate = 500                    // tasks due per second
	takeOverWork = 20 * time.Millisecond  // duration of a handler, so that some are running when the node ends
	takeOverRun  = 3 * time.Second        // running time before the node ends
	takeOverWait = lease + 10*time.Second // due times of tasks after its end
)

// measureTakeOver stops one of two nodes, and kills one of two others.
func measureTakeOver(p peer, name string, size sizes) (figures, error) {
	all := figures{}
	for _, how := range []struct {
		name string
		end  func(*node) error
	}{{"stop", (*node).stop}, {"kill", (*node).kill}} {
		f, err := measureEnd(p, name, size, how.end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", how.name, err)
		}
		for figure, v := range f {
			all[how.name+"_"+figure] = v
		}
	}
	return all, nil
}

func measureEnd(p peer, name string, size sizes, end func(*node) error) (figures, error) {
	return withNodes(p, name, takeOverWork, func(s *pgtest.Server, c client, nodes *cluster) (figures, error) {
		n := takeOverRate * int((takeOverRun+takeOverWait)/time.Second)
		tasks := spread(n, takeOverRate, time.Now().Add(ahead(n)))
		if err := put(s, c, tasks); err != nil {
			return nil, err
		}
		victim := nodes.nodes[0]
		if p, ok := p.(interface {
			leader(ctx context.Context, url string) (string, error)
		}); ok {
			leader, err := p.leader(context.Background(), s.URL())
			if err != nil {
				return nil, err
			}
			for _, n := range nodes.nodes {
				if n.Name == leader {
					victim = n
				}
			}
		}
		time.Sleep(time.Until(tasks[0].due.Add(takeOverRun)))
		ended := time.Now()
		if err := end(victim); err != nil {
			return nil, err
		}
		if err := nodes.await(n, tasks[n-1].due.Add(size.patience)); err != nil {
			return nil, err
		}
		time.Sleep(500 * time.Millisecond)
		events, err := readLedgers(nodes.ledgers())
		if err != nil {
			return nil, err
		}
		a := settle(tasks, events)
		f := a.figures()
		f["wait_ms"] = ms(longestWait(tasks, events, ended.Add(-time.Second), ended))
		return f, a.check()
	})
}
