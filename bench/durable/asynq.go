// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// serverLive is the divisor for the live tasks and adds of the servers, so that a round ends.
const serverLive = 10

// connections is the maximal number of connections of a server's clients.
const connections = 64

func withAsynq(dir string, measure func(o asynq.RedisClientOpt, c *asynq.Client) (map[string]float64, error)) (map[string]float64, error) {
	s, err := startRedis(dir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	o := asynq.RedisClientOpt{Network: "unix", Addr: s.socket, PoolSize: connections}
	c := asynq.NewClient(o)
	defer func() { _ = c.Close() }()
	return measure(o, c)
}

func enqueue(c *asynq.Client, i int, d time.Duration, load []byte) error {
	_, err := c.Enqueue(asynq.NewTask("k", load), asynq.TaskID(key(i)), asynq.ProcessIn(d))
	return err
}

func asynqAddMany(size sizes, dir string) (map[string]float64, error) {
	return withAsynq(dir, func(_ asynq.RedisClientOpt, c *asynq.Client) (map[string]float64, error) {
		add := func(i int) error { return enqueue(c, i, far(i), payload) }
		if _, err := together(callers, size.live/serverLive, add); err != nil {
			return nil, err
		}
		ops, err := together(callers, size.adds/serverLive, func(i int) error { return add(size.live + i) })
		return map[string]float64{"ops": ops}, err
	})
}

func asynqRemove(size sizes, dir string) (map[string]float64, error) {
	return withAsynq(dir, func(o asynq.RedisClientOpt, c *asynq.Client) (map[string]float64, error) {
		n := size.live / serverLive
		if _, err := together(callers, n, func(i int) error { return enqueue(c, i, far(i), payload) }); err != nil {
			return nil, err
		}
		in := asynq.NewInspector(o)
		defer func() { _ = in.Close() }()
		ops, err := together(callers, n/2, func(i int) error { return in.DeleteTask("default", key(i*7919%n)) })
		return map[string]float64{"ops": ops}, err
	})
}

func asynqLateness(size sizes, dir string) (map[string]float64, error) {
	return withAsynq(dir, func(o asynq.RedisClientOpt, c *asynq.Client) (map[string]float64, error) {
		late := newLateness(size)
		srv := asynq.NewServer(o, asynq.Config{Concurrency: 256, LogLevel: asynq.FatalLevel})
		err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			return late.ran(t.Payload())
		}))
		if err != nil {
			return nil, err
		}
		defer srv.Shutdown()
		if _, err := together(callers, late.n, func(i int) error {
			return enqueue(c, i, time.Until(late.due(i)), late.payload(i))
		}); err != nil {
			return nil, err
		}
		return late.figures(), nil
	})
}

// lateness measures how late tasks of a server run, at a tenth of our rate.
type lateness struct {
	n    int
	from time.Time
	rate int
	done atomic.Int64
	late []time.Duration
}

func newLateness(size sizes) *lateness {
	l := &lateness{rate: size.rate / serverLive, from: time.Now().Add(8 * time.Second)}
	l.n = int(size.duration.Seconds()) * l.rate
	l.late = make([]time.Duration, l.n)
	return l
}

func (l *lateness) due(i int) time.Time {
	return l.from.Add(time.Duration(i) * time.Second / time.Duration(l.rate))
}

// payload is the due time of task i as text.
func (l *lateness) payload(i int) []byte { return l.due(i).AppendFormat(nil, time.RFC3339Nano) }

func (l *lateness) ran(load []byte) error {
	due, err := time.Parse(time.RFC3339Nano, string(load))
	if err != nil {
		return err
	}
	if i := l.done.Add(1) - 1; int(i) < l.n {
		l.late[i] = time.Since(due)
	}
	return nil
}

// figures waits until all tasks have run, or for a minute.
func (l *lateness) figures() map[string]float64 {
	for end := l.due(l.n).Add(time.Minute); int(l.done.Load()) < l.n && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	all := l.late[:min(int(l.done.Load()), l.n)]
	slices.Sort(all)
	if len(all) == 0 {
		return map[string]float64{}
	}
	return map[string]float64{
		"least_ms": all[0].Seconds() * 1000,
		"p50_ms":   quantile(all, 0.5).Seconds() * 1000,
		"p99_ms":   quantile(all, 0.99).Seconds() * 1000,
		"most_ms":  all[len(all)-1].Seconds() * 1000,
	}
}
