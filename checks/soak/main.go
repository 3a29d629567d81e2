// SPDX-License-Identifier: MIT

// Soak drives wheels of both layouts with random verbs, from many goroutines at full speed, with jobs that panic, end
// their goroutine, block and call the wheel. It keeps its own record of every task and every run. At the same time it
// checks short histories of concurrent operations for linearizability.
//
//	go run ./checks/soak -for 10m -seed 1
//
// It ends with a report, and exits with status 1 unless no run was early, lost or doubled, the counters balanced, and
// heap and goroutines are back at their initial sizes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	duration := flag.Duration("for", time.Minute, "how long")
	seed := flag.Uint64("seed", 1, "of what is drawn at random")
	flag.Parse()
	if flag.NArg() > 0 || *duration <= 0 {
		fmt.Fprintln(os.Stderr, "soak: -for must be positive, and there are no other arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := soak(ctx, os.Stdout, os.Stderr, *duration, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// lateness collects how late runs were.
type lateness struct {
	mu   sync.Mutex // protects hist
	hist *hdrhistogram.Histogram
}

func newLateness() *lateness { return &lateness{hist: hdrhistogram.New(1, int64(time.Hour), 2)} }

func (l *lateness) observe(r timewheel.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.hist.RecordValue(max(int64(r.Started.Sub(r.Due)), 1)) // no more than an hour
}

// size is the resources of a process.
type size struct {
	heap       uint64
	goroutines int
}

// measure waits until at most the given number of goroutines is left, for ten seconds, or longer on a machine that
// freezes. Then it reads the size.
func measure(goroutines int) size {
	for look := 0; runtime.NumGoroutine() > goroutines && look < 1000; look++ {
		time.Sleep(10 * time.Millisecond)
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return size{m.HeapAlloc, runtime.NumGoroutine()}
}

// soak drives the wheels for the duration, or until ctx is done, and writes the report. It reports whether there were
// no faults.
func soak(ctx context.Context, out, progress io.Writer, duration time.Duration, seed uint64) (bool, error) {
	before := measure(runtime.NumGoroutine())
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	start := time.Now()
	var a account
	var histories atomic.Int64
	late := newLateness()
	told := make(chan struct{})
	go func() {
		defer close(told)
		tell(ctx, progress, func() string {
			return fmt.Sprintf("%v of %v: %d operations, %d runs, %d histories, %d faults",
				time.Since(start).Round(time.Second), duration,
				a.operations.Load(), a.runs.Load(), histories.Load(), a.wrong())
		})
	}()
	err := driveAll(ctx, &a, late, &histories, seed)
	<-told
	elapsed := time.Since(start)
	after := measure(before.goroutines)

	fmt.Fprintf(out, "soak, seed %d, %v, %d processors, %s\n\n",
		seed, elapsed.Round(time.Second), runtime.GOMAXPROCS(0), runtime.Version())
	line := func(name string, format string, args ...any) {
		fmt.Fprintf(out, "%-22s "+format+"\n", append([]any{name}, args...)...)
	}
	line("operations", "%d", a.operations.Load())
	line("runs", "%d, of which %d panicked or ended their goroutine", a.runs.Load(), a.panics.Load())
	line("histories", "%d, all linearizable unless listed below", histories.Load())
	for _, q := range []float64{50, 99, 99.9, 100} {
		d := time.Duration(late.hist.ValueAtPercentile(q))
		line(fmt.Sprintf("lateness p%v", q), "%v", d.Round(10*time.Microsecond))
	}
	line("early", "%d", a.early.Load())
	line("lost", "%d", a.lost.Load())
	line("doubled", "%d", a.doubled.Load())
	line("other faults", "%d", a.unheard.Load())
	line("heap", "%.1f MB before, %.1f MB after", mb(before.heap), mb(after.heap))
	line("goroutines", "%d before, %d after", before.goroutines, after.goroutines)
	for _, f := range a.faults {
		fmt.Fprintln(out, "  ", f)
	}
	const heapSlack = 8 << 20 // the histogram, memory kept by the runtime, and similar
	ok := a.wrong() == 0 && after.goroutines <= before.goroutines && after.heap <= before.heap+heapSlack
	if ok {
		fmt.Fprintln(out, "\nall as it should be")
	} else {
		fmt.Fprintln(out, "\nNOT as it should be")
	}
	return ok, err
}

// tell writes the line every second, replacing the previous one.
func tell(ctx context.Context, w io.Writer, line func() string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintf(w, "%s   \n", line())
			return
		case <-tick.C:
			fmt.Fprintf(w, "%s   \r", line())
		}
	}
}

// driveAll drives the wheels and checks histories concurrently until ctx is done.
func driveAll(ctx context.Context, a *account, late *lateness, histories *atomic.Int64, seed uint64) error {
	const handsEach, restEvery = 3, 2 * time.Second
	drivers := []*driver{
		{account: a, lateness: late, tick: time.Millisecond, slots: 64, pool: 64},
		{account: a, lateness: late, tick: time.Millisecond, slots: 64, pool: 64, layout: timewheel.Hierarchical},
		{account: a, lateness: late, tick: 50 * time.Microsecond, slots: 7, pool: 2},
		{account: a, lateness: late, tick: 3 * time.Millisecond, slots: 3, pool: 2, layout: timewheel.Hierarchical},
	}
	const checkers = 16 // they sleep most of the time
	errs := make([]error, len(drivers)+checkers)
	var all sync.WaitGroup
	for i, d := range drivers {
		if err := d.open(); err != nil {
			return err
		}
		var hands []*hand
		for j := range handsEach {
			h := d.newHand(fmt.Sprint(i, "-", j), seed, uint64(100*i+j))
			hands = append(hands, h)
			all.Go(func() { h.drive(ctx) })
		}
		all.Go(func() { errs[i] = d.oversee(ctx, hands, restEvery) })
	}
	for i := range checkers {
		all.Go(func() { errs[len(drivers)+i] = check(ctx, a, histories, seed<<40|uint64(i)<<32) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func mb(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

func (a *account) wrong() int64 {
	return a.early.Load() + a.lost.Load() + a.doubled.Load() + a.unheard.Load()
}

// oversee lets the driver rest from time to time, and at the end.
func (d *driver) oversee(ctx context.Context, hands []*hand, every time.Duration) error {
	for how := 0; ; how++ {
		select {
		case <-ctx.Done():
			// The goroutines have ended, or are about to: rest takes the lock that they hold.
			for i := range 3 {
				if err := d.rest(hands, i); err != nil {
					return err
				}
			}
			d.tw.Stop()
			return nil
		case <-time.After(every):
			if err := d.rest(hands, how); err != nil {
				return err
			}
		}
	}
}

// check makes histories, from the given seed on, and checks them until ctx is done.
func check(ctx context.Context, a *account, n *atomic.Int64, seed uint64) error {
	for i := seed; ctx.Err() == nil; i++ {
		h, err := makeHistory(i, timewheel.Layout(i%2))
		if err != nil {
			return err
		}
		if _, err := h.check(time.Minute); err != nil {
			a.fault(&a.unheard, "history %d: %v", i, err)
		}
		n.Add(1)
	}
	return nil
}
