// SPDX-License-Identifier: MIT

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed581295f1/timewheel/pool"
)

func Example() {
	p, err := pool.New(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	squares := make([]int, 5)
	for i := range squares {
		// does not block, although at most two jobs run at once
		if err := p.Submit(func() { squares[i] = i * i }); err != nil {
			fmt.Println(err)
		}
	}
	if err := p.Close(context.Background()); err != nil { // waits for all of them
		fmt.Println(err)
	}
	fmt.Println(squares)
	fmt.Println(errors.Is(p.Submit(func() {}), pool.ErrClosed))
	// Output:
	// [0 1 4 9 16]
	// true
}

func ExamplePool_Close() {
	p, err := pool.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	began, release := make(chan struct{}), make(chan struct{})
	_ = p.Submit(func() {
		close(began)
		<-release
	})
	_ = p.Submit(func() { fmt.Println("submitted before Close, and so run") })
	<-began

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the deadline has passed
	fmt.Println(p.Close(ctx))

	close(release)
	fmt.Println(p.Close(context.Background()))
	// Output:
	// pool: close: running: 1, waiting: 1: context canceled
	// submitted before Close, and so run
	// <nil>
}

// A web server refuses work while too much of it waits.
func ExampleWithMaxWaiting() {
	p, err := pool.New(1, pool.WithMaxWaiting(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	release := make(chan struct{})
	for i := range 4 {
		if err := p.Submit(func() { <-release }); errors.Is(err, pool.ErrFull) {
			fmt.Println("job", i, "is refused:", err)
		}
	}
	close(release)
	fmt.Println(p.Close(context.Background()))
	fmt.Println(p.Waiting(), "wait,", p.Running(), "run")
	// Output:
	// job 3 is refused: pool: full
	// <nil>
	// 0 wait, 0 run
}

// A program that reads a large file reads no faster than the jobs can follow.
func ExamplePool_SubmitWait() {
	p, err := pool.New(2, pool.WithMaxWaiting(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	var sum atomic.Int64
	for line := range int64(1000) {
		if err := p.SubmitWait(ctx, func() { sum.Add(line) }); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(p.Close(ctx), sum.Load())
	// Output: <nil> 499500
}

func ExamplePool_Resize() {
	p, err := pool.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	began, release := make(chan bool), make(chan bool)
	for range 10 {
		_ = p.Submit(func() {
			began <- true
			<-release
		})
	}
	<-began
	fmt.Println(p.Running(), "of", p.Cap())
	if err := p.Resize(4); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		<-began
	}
	fmt.Println(p.Running(), "of", p.Cap())
	go func() {
		for range began {
		}
	}()
	close(release)
	fmt.Println(p.Close(context.Background()))
	// Output:
	// 1 of 1
	// 4 of 4
	// <nil>
}

func ExampleWithPanicHandler() {
	p, err := pool.New(1, pool.WithPanicHandler(func(value any, _ []byte) {
		fmt.Println("a job panicked:", value)
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	var jobs sync.WaitGroup
	jobs.Add(1)
	_ = p.Submit(func() { panic("no paper") })
	_ = p.Submit(func() {
		defer jobs.Done()
		fmt.Println("the next one runs")
	})
	jobs.Wait()
	// Output:
	// a job panicked: no paper
	// the next one runs
}
