// SPDX-License-Identifier: MIT

// Cache is an HTTP server that caches a slow computation: /primes/N returns the number of primes below N. The program
// also runs its own clients. Ten of them request the same number at the same time. Then one client requests it while
// the answer is fresh, and once more after the answer has expired. An interrupt (Ctrl-C) stops the clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

const (
	fresh  = 2 * time.Second // how long an answer is valid
	most   = 2_000_000       // the largest number that the server accepts
	crowd  = 10              // number of clients that ask at the same time
	number = 1_000_000
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, os.Stdout, listener); err != nil {
		log.Fatal(err)
	}
}

// run serves its own clients until they have finished, and then stops the server. The clients stop when ctx is done.
func run(ctx context.Context, w io.Writer, listener net.Listener) error {
	tw, err := timewheel.New(10*time.Millisecond, 512)
	if err != nil {
		return err
	}
	tw.Start()
	defer tw.Stop()

	out := log.New(w, "", 0)
	expired := make(chan struct{}, 1)
	answers, err := ttlcache.New(tw, ttlcache.Config[int, int]{
		TTL:        fresh,
		MaxEntries: 1000,
		OnEvict: func(n, _ int, reason ttlcache.Reason) {
			out.Printf("the answer for %d is gone: %v", n, reason)
			expired <- struct{}{}
		},
	})
	if err != nil {
		return err
	}
	defer answers.Close()

	mux := http.NewServeMux()
	mux.Handle("GET /primes/{n}", &server{answers: answers, out: out})
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()

	url := fmt.Sprintf("http://%s/primes/%d", listener.Addr(), number)
	errs := make([]error, crowd+2)
	silent := log.New(io.Discard, "", 0)
	var requests atomic.Int64
	ask := func(out *log.Logger) error {
		requests.Add(1)
		err := ask(ctx, url, out)
		if ctx.Err() != nil {
			return nil // the client was interrupted
		}
		return err
	}
	out.Printf("%d clients ask at the same time", crowd)
	var clients sync.WaitGroup
	for i := range crowd {
		clients.Go(func() { errs[i] = ask(silent) })
	}
	clients.Wait()
	if ctx.Err() == nil {
		out.Print("another asks")
		errs[crowd] = ask(out)
	}
	if err := errors.Join(errs...); err == nil {
		select {
		case <-expired:
			out.Print("and another")
			errs[crowd+1] = ask(out)
		case <-ctx.Done():
			out.Print("interrupted")
		}
	}

	s := answers.Stats()
	out.Printf("%d requests, %d computations", requests.Load(), s.Loads)
	return errors.Join(append(errs, web.Close(), closed(<-served))...)
}

// A server answers requests from the cache.
type server struct {
	answers *ttlcache.Cache[int, int]
	out     *log.Logger
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 0 || n > most {
		http.Error(w, fmt.Sprintf("%q is not a number from 0 to %d", r.PathValue("n"), most), http.StatusBadRequest)
		return
	}
	// The computation is cancelled when no request is waiting for it.
	count, err := s.answers.GetOrLoad(r.Context(), n, s.compute)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "there are %d primes below %d\n", count, n)
}

// compute counts the primes below n, slowly.
func (s *server) compute(ctx context.Context, n int) (int, error) {
	s.out.Printf("computing the primes below %d", n)
	count := 0
	for i := 2; i < n; i++ {
		if i%1000 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if prime(i) {
			count++
		}
	}
	return count, nil
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// ask requests the page and prints it.
func ask(ctx context.Context, url string, out *log.Logger) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	page, err := io.ReadAll(resp.Body)
	out.Printf("%s", page)
	return err
}

// closed returns the error from a server, or nil if the server was closed on purpose.
func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
