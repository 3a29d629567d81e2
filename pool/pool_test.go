// SPDX-License-Identifier: MIT

package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/crew"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A rig is a pool in a synctest bubble, where the test can wait until all is quiet.
type rig struct {
	*testing.T
	*Pool
	release chan struct{} // releases the blocked jobs
	ran     []int         // numbers of the jobs, in start order; written by jobs that run one at a time
}

// in runs f in a bubble with a pool of the given size. At the end the pool must finish its jobs and leave no goroutine
// behind.
func in(t *testing.T, size int, f func(t *testing.T, p *rig), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool, err := New(size, opts...)
		if err != nil {
			t.Fatal(err)
		}
		p := &rig{T: t, Pool: pool, release: make(chan struct{})}
		f(t, p)
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		p.want(0, 0)
		if n := antsGoroutines(); n != 0 {
			t.Errorf("after Close %d goroutines are left", n)
		}
	})
}

// want waits until all is quiet, and fails the test unless the given numbers of jobs are running and waiting.
func (p *rig) want(running, waiting int) {
	p.Helper()
	synctest.Wait()
	if r, w := p.Running(), p.Waiting(); r != running || w != waiting {
		p.Errorf("%d jobs run and %d wait, want %d and %d", r, w, running, waiting)
	}
	if p.crew.Starting() != 0 {
		p.Errorf("all is quiet and %d workers are about to start", p.crew.Starting())
	}
}

func (p *rig) submit(job func()) {
	p.Helper()
	if err := p.Submit(job); err != nil {
		p.Fatal(err)
	}
}

// block submits n jobs that run until they are released.
func (p *rig) block(n int) {
	p.Helper()
	for range n {
		p.submit(func() { <-p.release })
	}
}

// number submits the jobs with the given range of numbers, excluding the last, to a pool that runs one job at a time.
func (p *rig) number(from, to int) {
	p.Helper()
	for i := from; i < to; i++ {
		p.submit(func() { p.ran = append(p.ran, i) })
	}
}

// wantRan waits until all is quiet, and fails the test unless the first n jobs ran in order, once each.
func (p *rig) wantRan(n int) {
	p.Helper()
	synctest.Wait()
	want := make([]int, n)
	for i := range want {
		want[i] = i
	}
	if !slices.Equal(p.ran, want) {
		p.Errorf("ran %d jobs, %v first, want %d in order", len(p.ran), p.ran[:min(len(p.ran), 20)], n)
	}
}

// antsGoroutines returns the number of goroutines in the bubble that ants started. It counts no others, because ants'
// default pool also has goroutines, and goroutines of an earlier test may not have ended yet.
func antsGoroutines() (n int) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		inBubble := strings.Contains(stack, "synctest bubble")
		if inBubble && strings.Contains(stack, "created by github.com/panjf2000/ants") {
			n++
		}
	}
	return n
}

// logged returns the output of f to the standard logger.
func logged(f func()) string {
	var buf bytes.Buffer
	old := log.Writer()
	log.SetOutput(&buf)
	defer log.SetOutput(old)
	f()
	return buf.String()
}

func TestNew_wrongArgument_isNamed(t *testing.T) {
	for _, c := range []struct {
		size int
		opts []Option
		want string
	}{
		{0, nil, "pool: size 0 is not positive"},
		{-1, nil, "pool: size -1 is not positive"},
		{math.MinInt32, nil, "pool: size -2147483648 is not positive"},
		{1, []Option{WithMaxWaiting(-1)}, "pool: maximum number of waiting jobs -1 is negative"},
	} {
		if p, err := New(c.size, c.opts...); p != nil || err == nil || err.Error() != c.want {
			t.Errorf("size %d: %v and %q, want %q", c.size, p, err, c.want)
		}
	}
}

// A programming error causes a panic.
func TestNil_whereAFunctionBelongs_panics(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		for want, f := range map[string]func(){
			"pool: nil job for Submit":     func() { _ = p.Submit(nil) },
			"pool: nil job for SubmitWait": func() { _ = p.SubmitWait(t.Context(), nil) },
			"pool: nil panic handler":      func() { WithPanicHandler(nil) },
			"pool: option 2 is nil":        func() { _, _ = New(1, WithPanicHandler(func(any, []byte) {}), nil) },
		} {
			func() {
				defer func() {
					if value := recover(); value != want {
						t.Errorf("it panics with %v, want %s", value, want)
					}
				}()
				f()
			}()
		}
		p.want(0, 0)
	})
}

func TestSubmit_noWorkerFree_neverBlocks(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		p.block(1)
		p.number(0, 10_000) // would be a deadlock
		p.want(1, 10_000)
		p.wantRan(0)
		close(p.release)
		p.wantRan(10_000)
		p.want(0, 0)
	})
}

func TestPool_jobsThatBlock_growsToItsCapAndNotBeyond(t *testing.T) {
	for _, size := range []int{1, 2, crew.Starters - 1, crew.Starters, crew.Starters + 1, 50} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			in(t, size, func(t *testing.T, p *rig) {
				if p.Cap() != size {
					t.Errorf("Cap is %d", p.Cap())
				}
				for n := 1; n <= 2*size; n++ {
					p.block(1)
					p.want(min(n, size), max(n-size, 0))
				}
				p.block(size) // all at once
				p.want(size, 2*size)
				for range 2 * size {
					p.release <- struct{}{}
				}
				p.want(size, 0)
				close(p.release)
				p.want(0, 0)
				p.block(3 * size)
				p.want(0, 0)
			})
		})
	}
}

func TestPool_jobsAtOneGo_growsToItsCap(t *testing.T) {
	in(t, 50, func(t *testing.T, p *rig) {
		p.block(200)
		p.want(50, 150)
		close(p.release)
	})
}

func TestPool_manySubmitters_runEachJobOnceAndKeepTheBound(t *testing.T) {
	const size, submitters, each = 3, 4, 2000
	in(t, size, func(t *testing.T, p *rig) {
		var running atomic.Int64
		ran := make([]atomic.Int64, submitters*each)
		for s := range submitters {
			go func() {
				for i := range each {
					p.submit(func() {
						if n, r := running.Add(1), p.Running(); n > size || r > size {
							t.Errorf("%d jobs run at once, and Running is %d, want %d at most", n, r, size)
						}
						ran[s*each+i].Add(1)
						runtime.Gosched()
						running.Add(-1)
					})
				}
			}()
		}
		p.want(0, 0)
		for i := range ran {
			if n := ran[i].Load(); n != 1 {
				t.Fatalf("job %d ran %d times", i, n)
			}
		}
	})
}

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	buf := make([]byte, 64)
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	return name
}

func TestPool_worker_takesTheNextJobItself(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		p.block(1)
		workers := make(map[string]int)
		for range 1000 {
			p.submit(func() { workers[goroutine()]++ })
		}
		close(p.release)
		p.want(0, 0)
		if len(workers) != 1 {
			t.Errorf("1000 jobs in a row were run by %d goroutines", len(workers))
		}
	})
}

func TestPool_shortJobs_needFewGoroutines(t *testing.T) {
	const jobs = 20_000
	in(t, jobs, func(t *testing.T, p *rig) {
		names := make([]string, jobs) // without a lock: a job that waits for one is not short
		for i := range jobs {
			p.submit(func() { names[i] = goroutine() })
		}
		p.want(0, 0)
		workers := make(map[string]bool)
		for _, name := range names {
			workers[name] = true
		}
		if n := len(workers); n > jobs/10 {
			t.Errorf("%d short jobs were run by %d goroutines", jobs, n)
		}
	})
}

func TestPool_workersAboutToStart_areAHandful(t *testing.T) {
	in(t, 100, func(t *testing.T, p *rig) {
		for range 200 {
			p.block(1)
			p.mu.Lock()
			if p.crew.Starting() > crew.Starters {
				t.Errorf("%d workers are about to start", p.crew.Starting())
			}
			p.mu.Unlock()
		}
		close(p.release)
	})
}

func TestPool_jobThatSubmits_isServed(t *testing.T) {
	in(t, 2, func(t *testing.T, p *rig) {
		var ran atomic.Int64
		var job func(depth int)
		job = func(depth int) {
			ran.Add(1)
			for range 2 {
				if depth > 0 {
					p.submit(func() { job(depth - 1) })
				}
			}
		}
		p.submit(func() { job(9) })
		p.want(0, 0)
		if n := ran.Load(); n != 1<<10-1 {
			t.Errorf("%d jobs ran, want %d", n, 1<<10-1)
		}
	})
}

func TestPool_jobPanics_isReportedAndHarmsNothing(t *testing.T) {
	type report struct {
		value any
		stack string
	}
	var reports []report
	handler := WithPanicHandler(func(value any, stack []byte) {
		reports = append(reports, report{value, string(stack)})
	})
	in(t, 1, func(t *testing.T, p *rig) {
		out := logged(func() {
			for i := range 10 {
				p.submit(func() { panicWith(i) })
				p.number(i, i+1)
			}
			p.wantRan(10)
		})
		if out != "" {
			t.Errorf("it was logged: %s", out)
		}
		p.want(0, 0)
		for i, r := range reports {
			if r.value != i || !strings.Contains(r.stack, "panicWith") {
				t.Errorf("panic %d was reported as %v, %s", i, r.value, r.stack)
			}
		}
		if len(reports) != 10 {
			t.Errorf("%d of 10 panics were reported", len(reports))
		}
	}, handler)
}

func panicWith(value any) { panic(value) }

func TestPool_jobPanics_withoutHandler_isLogged(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		out := logged(func() {
			p.submit(func() { panicWith("no paper") })
			p.number(0, 1)
			p.wantRan(1)
		})
		if !strings.Contains(out, "pool: job panicked: no paper\n") || !strings.Contains(out, "panicWith") {
			t.Errorf("it was logged: %s", out)
		}
	})
}

func TestPool_jobEndsItsGoroutine_itsPlaceIsFilled(t *testing.T) {
	handler := func(any, []byte) { t.Error("it was reported as a panic") }
	for name, opts := range map[string][]Option{
		"no handler": nil,
		"a handler":  {WithPanicHandler(handler)},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 1, func(t *testing.T, p *rig) {
				for i := range 10 {
					p.submit(runtime.Goexit)
					p.number(i, i+1)
				}
				p.wantRan(10)
				p.want(0, 0)
				p.submit(runtime.Goexit) // with no job after it
				p.want(0, 0)
			}, opts...)
		})
	}
}

func TestPool_handlerMisbehaves_harmsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(any, []byte)
		log     string
	}{
		"panics":             {func(any, []byte) { panicWith("no ink") }, "pool: job panicked: no ink\n"},
		"ends its goroutine": {func(any, []byte) { runtime.Goexit() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 1, func(t *testing.T, p *rig) {
				out := logged(func() {
					for i := range 5 {
						p.submit(func() { panicWith("no paper") })
						p.number(i, i+1)
					}
					p.wantRan(5)
				})
				if !strings.Contains(out, c.log) || c.log == "" && out != "" {
					t.Errorf("it was logged: %s", out)
				}
				p.want(0, 0)
			}, WithPanicHandler(c.handler))
		})
	}
}

func TestClose_refusesJobsAndWaitsForThoseThatAreThere(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		p.block(1)
		p.number(0, 100)
		closed := make(chan error, 2)
		for range cap(closed) {
			go func() { closed <- p.Close(context.Background()) }()
		}
		p.want(1, 100)
		if err := p.Submit(func() { t.Error("a job was run that came after Close") }); err != ErrClosed {
			t.Errorf("after Close Submit returns %v", err)
		}
		if len(closed) != 0 {
			t.Error("Close did not wait")
		}
		close(p.release)
		p.wantRan(100)
		for range cap(closed) {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestClose_contextDone_saysWhatIsLeft(t *testing.T) {
	in(t, 2, func(t *testing.T, p *rig) {
		p.block(5)
		p.want(2, 3)
		hurry := errors.New("no time")
		canceled, cancel := context.WithCancelCause(context.Background())
		cancel(hurry)
		timeout, cancelTimeout := context.WithTimeout(context.Background(), time.Minute)
		defer cancelTimeout()
		for _, c := range []struct {
			ctx   context.Context
			cause error
			took  time.Duration
		}{
			{canceled, hurry, 0},
			{timeout, context.DeadlineExceeded, time.Minute},
		} {
			start := time.Now()
			err := p.Close(c.ctx)
			want := "pool: close: running: 2, waiting: 3: " + c.cause.Error()
			if !errors.Is(err, c.cause) || err.Error() != want {
				t.Errorf("Close says %q, want %q", err, want)
			}
			if took := time.Since(start); took != c.took {
				t.Errorf("Close waited for %v, want %v", took, c.took)
			}
		}
		close(p.release)
		p.want(0, 0)
		if err := p.Close(canceled); err != nil {
			t.Errorf("all has ended, and Close says %v", err)
		}
	})
}

func TestClose_poolThatHadNothingToDo_returnsAtOnce(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		for range 3 {
			if err := p.Close(canceled); err != nil {
				t.Error(err)
			}
		}
		if err := p.Submit(func() {}); err != ErrClosed {
			t.Errorf("after Close Submit returns %v", err)
		}
	})
}

func TestClose_byAJob_waitsForItselfUntilItsContextIsDone(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		var err, refused error
		p.submit(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err = p.Close(ctx)
			refused = p.Submit(func() {})
		})
		time.Sleep(time.Minute)
		p.want(0, 0)
		if !errors.Is(err, context.DeadlineExceeded) || refused != ErrClosed {
			t.Errorf("Close by a job says %v, and Submit then %v", err, refused)
		}
	})
}

func TestClose_whileJobsEndInAnyWay_isDone(t *testing.T) {
	ends := map[string]func(){
		"by returning": func() {},
		"by panicking": func() { panic("no paper") },
		"by Goexit":    runtime.Goexit,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			in(t, 2, func(t *testing.T, p *rig) {
				for range 5 {
					p.submit(func() {
						<-p.release
						end()
					})
				}
				canceled, cancel := context.WithCancel(context.Background())
				cancel()
				if err := p.Close(canceled); err == nil {
					t.Error("Close did not wait")
				}
				close(p.release)
				p.want(0, 0) // and the Close at the end must return
			}, WithPanicHandler(func(any, []byte) {}))
		})
	}
}

func TestPool_atRest_holdsNoGoroutineAfterASecond(t *testing.T) {
	in(t, 4, func(t *testing.T, p *rig) {
		for round := range 3 { // an idle pool must accept more jobs
			p.block(4)
			p.want(4, 0)
			for range 4 {
				p.release <- struct{}{}
			}
			p.want(0, 0)
			time.Sleep(time.Second / 2)
			p.submit(func() {}) // another job postpones the end of the goroutines
			testkit.Settle(time.Second - 1)
			if n := antsGoroutines(); n == 0 {
				t.Errorf("round %d: the goroutines are gone before their time", round)
			}
			testkit.Settle(time.Nanosecond)
			if n := antsGoroutines(); n != 0 {
				t.Errorf("round %d: at rest %d goroutines are left", round, n)
			}
		}
	})
}

func TestPool_longJob_keepsTheGoroutines(t *testing.T) {
	in(t, 2, func(t *testing.T, p *rig) {
		p.submit(func() {})
		p.want(0, 0)
		p.block(1)
		time.Sleep(time.Minute)
		p.want(1, 0)
		close(p.release)
	})
}

// Every job that Submit accepted has run when Close returns, and none runs later.
func TestSubmit_whileThePoolIsClosed_isRefusedOrDone(t *testing.T) {
	for range 300 {
		p, err := New(1)
		if err != nil {
			t.Fatal(err)
		}
		var closed atomic.Bool
		var accepted, ran atomic.Int64
		var submitters sync.WaitGroup
		for range 2 {
			submitters.Go(func() {
				for p.Submit(func() {
					if closed.Load() {
						t.Error("a job runs after Close has returned")
					}
					ran.Add(1)
				}) == nil {
					accepted.Add(1)
				}
			})
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		closed.Store(true)
		if submitters.Wait(); ran.Load() != accepted.Load() {
			t.Fatalf("%d jobs were accepted, and %d ran", accepted.Load(), ran.Load())
		}
	}
}
