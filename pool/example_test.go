// SPDX-License-Identifier: MIT

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// The queue is unbounded. A program can refuse work while too many jobs wait.
func ExamplePool_Waiting() {
	p, err := pool.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	began, release := make(chan bool), make(chan bool)
	_ = p.Submit(func() {
		began <- true
		<-release
	})
	<-began
	for i := range 5 {
		if p.Waiting() >= 3*p.Cap() {
			fmt.Println("job", i, "is refused:", p.Running(), "is running,", p.Waiting(), "wait")
			continue
		}
		_ = p.Submit(func() {})
	}
	close(release)
	fmt.Println(p.Close(context.Background()))
	// Output:
	// job 3 is refused: 1 is running, 3 wait
	// job 4 is refused: 1 is running, 3 wait
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
