// SPDX-License-Identifier: MIT

package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errTrouble = errors.New("trouble")

// wait calls SubmitWait on a goroutine, and stores its result in the channel.
func (p *rig) wait(ctx context.Context, job func()) <-chan error {
	result := make(chan error, 1)
	go func() { result <- p.SubmitWait(ctx, job) }()
	synctest.Wait()
	return result
}

// wantResult fails the test unless the call has returned want by now, or has not returned yet if want is errBlocks.
func (p *rig) wantResult(result <-chan error, want error) {
	p.Helper()
	synctest.Wait()
	err := errBlocks
	select {
	case err = <-result:
	default:
	}
	if !errors.Is(err, want) {
		p.Errorf("SubmitWait: %v, want %v", err, want)
	}
}

var errBlocks = errors.New("the call has not returned")

// A burst for which there are workers is accepted even if no job may wait, although the workers have yet to start.
func TestWithMaxWaiting_full_submitRefuses(t *testing.T) {
	for _, most := range []int{0, 1, 100} {
		in(t, 3, func(t *testing.T, p *rig) {
			for range 2 {
				p.block(3 + most)
				if err := p.Submit(func() { t.Error("a refused job runs") }); err != ErrFull {
					t.Errorf("at most %d may wait: %v", most, err)
				}
				p.want(3, most)
				for range 3 + most {
					p.release <- struct{}{}
				}
				p.want(0, 0)
			}
		}, WithMaxWaiting(most))
	}
}

func TestSubmitWait_blocksInOrderUntilThereIsRoom(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		p.wantResult(p.wait(t.Context(), func() { <-p.release }), nil)
		p.number(0, 1)
		var calls []<-chan error
		for i := range 3 {
			calls = append(calls, p.wait(t.Context(), func() { p.ran = append(p.ran, i+1); <-p.release }))
		}
		p.want(1, 1)
		for i := range calls {
			if err := p.Submit(func() {}); err != ErrFull {
				t.Errorf("a job overtakes a call that blocks: %v", err)
			}
			p.release <- struct{}{}
			p.wantRan(i + 2)
			for j, call := range calls {
				if returned := len(call) == 1; returned != (j <= i+1) {
					t.Errorf("%d jobs have ended; call %d has returned: %v", i+2, j, returned)
				}
			}
		}
		for _, call := range calls {
			p.wantResult(call, nil)
		}
		close(p.release)
		p.wantRan(4)
	}, WithMaxWaiting(1))
}

func TestSubmitWait_endsWithItsContextOrThePool(t *testing.T) {
	in(t, 1, func(t *testing.T, p *rig) {
		p.block(1)
		var none context.Context // is never done
		ctx, cancel := context.WithCancelCause(t.Context())
		runs := func() { t.Error("the job runs") }
		blocked, other := p.wait(ctx, runs), p.wait(none, runs)
		p.wantResult(blocked, errBlocks)
		cancel(errTrouble)
		p.wantResult(blocked, errTrouble)
		p.wantResult(p.wait(ctx, runs), errTrouble)
		p.wantResult(other, errBlocks)
		p.want(1, 0)
		done, cancelClose := context.WithCancel(t.Context())
		cancelClose()
		if err := p.Close(done); err == nil {
			t.Error("the pool is closed, and a job is in progress")
		}
		p.wantResult(other, ErrClosed)
		p.wantResult(p.wait(t.Context(), runs), ErrClosed)
		close(p.release)
	}, WithMaxWaiting(0))
	in(t, 1, func(t *testing.T, p *rig) { // the context counts even if there is room
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.wantResult(p.wait(ctx, func() { t.Error("the job runs") }), context.Canceled)
	})
}

func TestResize_whileJobsRun(t *testing.T) {
	in(t, 2, func(t *testing.T, p *rig) {
		resize := func(n int) {
			t.Helper()
			if err := p.Resize(n); err != nil || p.Cap() != n {
				t.Errorf("Resize: %v, Cap: %d", err, p.Cap())
			}
		}
		p.block(20)
		call := p.wait(t.Context(), func() { <-p.release })
		p.want(2, 18)
		resize(10)
		p.wantResult(call, nil)
		p.want(10, 11)
		resize(3) // no job is interrupted
		p.want(10, 11)
		for range 7 {
			p.release <- struct{}{}
		}
		p.want(3, 11)
		p.release <- struct{}{}
		p.want(3, 10)
		resize(1)
		p.release <- struct{}{}
		resize(2) // in between
		p.want(2, 10)
		if err := p.Resize(0); err == nil || err.Error() != "pool: size 0 is not positive" || p.Cap() != 2 {
			t.Errorf("%v, and Cap is %d", err, p.Cap())
		}
		close(p.release)
	}, WithMaxWaiting(18))
}

// After a Resize that makes the pool smaller, running jobs do not count against the limit of waiting ones.
func TestResize_smaller_keepsTheRoomForWaitingJobs(t *testing.T) {
	in(t, 10, func(t *testing.T, p *rig) {
		p.block(10)
		p.want(10, 0)
		if err := p.Resize(1); err != nil {
			t.Error(err)
		}
		p.block(2)
		if err := p.Submit(func() {}); err != ErrFull {
			t.Error(err)
		}
		close(p.release)
	}, WithMaxWaiting(2))
}

// Whatever calls happen at the same time, a job runs once if it was accepted, and never otherwise.
func TestPool_allCallsAtOnce_acceptedJobsRunOnce(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			const most = 3
			pool, err := New(1, WithMaxWaiting(most))
			if err != nil {
				t.Fatal(err)
			}
			p := &rig{T: t, Pool: pool}
			var accepted, ran atomic.Int64
			var callers sync.WaitGroup
			for id := range uint64(8) {
				callers.Go(func() {
					r := rand.New(rand.NewPCG(seed, id))
					for range 50 {
						pause := time.Duration(r.IntN(5))
						job := func() { time.Sleep(pause); ran.Add(1) }
						if n := p.Waiting(); n > most+4 { // those for which a worker is free wait as well
							t.Errorf("%d jobs wait", n)
						}
						switch r.IntN(8) {
						case 0:
							if err := p.Resize(1 + r.IntN(4)); err != nil {
								t.Error(err)
							}
						case 1, 2:
							if p.Submit(job) == nil {
								accepted.Add(1)
							}
						default:
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(10)))
							if p.SubmitWait(ctx, job) == nil {
								accepted.Add(1)
							}
							cancel()
						}
					}
				})
			}
			if seed%2 == 0 {
				callers.Wait()
			} else {
				time.Sleep(100 * time.Nanosecond) // and the pool is closed while they go on
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			callers.Wait()
			if p.want(0, 0); ran.Load() != accepted.Load() || ran.Load() == 0 {
				t.Errorf("seed %d: %d jobs were accepted, and %d ran", seed, accepted.Load(), ran.Load())
			}
			if p.blocked.Len() != 0 {
				t.Errorf("seed %d: %d calls block", seed, p.blocked.Len())
			}
		})
	}
}
