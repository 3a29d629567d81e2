// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// A crowd of tasks of one kind is due at one instant, while crowdRate tasks of another kind fall due every second: from
// crowdLead before that instant, for the size's duration after it.
const (
	crowdRate  = 1000
	crowdLead  = time.Second
	crowdLimit = 100
	crowdTakes = time.Millisecond // duration of a run of the crowd
	fillRate   = 25_000           // minimal number of tasks added per second
	crowdWait  = 2 * time.Minute  // for others that wait behind the crowd, of which 10,000 a second start
)

func limitedCrowd(size sizes, dir string) (map[string]float64, error) {
	return crowd(size, dir, durable.WithConcurrency(crowdLimit))
}

func unlimitedCrowd(size sizes, dir string) (map[string]float64, error) { return crowd(size, dir) }

// crowd measures how late the other tasks are, and how many tasks of the crowd run per second.
func crowd(size sizes, dir string, limit ...durable.KindOption) (map[string]float64, error) {
	e, err := pebble.Open(ctx, filepath.Join(dir, "tasks"))
	if err != nil {
		return nil, err
	}
	s, err := durable.New(ctx, e)
	if err != nil {
		return nil, err
	}
	others := &counter{late: make([]time.Duration, int((crowdLead+size.duration)*crowdRate/time.Second))}
	many := &counter{}
	if err := s.Handle("others", others.run); err != nil {
		return nil, err
	}
	err = s.Handle("k", func(ctx context.Context, run durable.Run) error {
		time.Sleep(crowdTakes)
		return many.run(ctx, run)
	}, limit...)
	if err != nil {
		return nil, err
	}
	at := time.Now().Add(crowdLead + time.Second + time.Duration(size.live)*time.Second/fillRate)
	if err := fill(s, 0, size.live, func(int) time.Duration { return time.Until(at) }); err != nil {
		return nil, err
	}
	var some []durable.Task
	for i := range others.late {
		due := at.Add(-crowdLead + time.Duration(i)*time.Second/crowdRate)
		some = append(some, durable.Task{Key: fmt.Sprint("other", i), Kind: "others", Payload: payload, At: due})
	}
	for part := range slices.Chunk(some, batch) {
		if err := s.AddTask(ctx, part...); err != nil {
			return nil, err
		}
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	if time.Until(at) < crowdLead {
		return nil, fmt.Errorf("adding was too slow: %v are left", time.Until(at))
	}
	time.Sleep(time.Until(at.Add(size.duration)))
	ran := many.n.Load()
	for left := time.Now().Add(crowdWait); others.n.Load() < int64(len(others.late)); {
		if time.Now().After(left) {
			return nil, fmt.Errorf("%d of the others have not run", int64(len(others.late))-others.n.Load())
		}
		time.Sleep(time.Millisecond)
	}
	gone, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.Shutdown(gone) // it fails because tasks of the crowd are running
	slices.Sort(others.late)
	return map[string]float64{
		"p50_ms": float64(quantile(others.late, 0.5).Microseconds()) / 1000,
		"p99_ms": float64(quantile(others.late, 0.99).Microseconds()) / 1000,
		"max_ms": float64(others.late[len(others.late)-1].Microseconds()) / 1000,
		"ops":    perSecond(int(ran), size.duration),
	}, nil
}
