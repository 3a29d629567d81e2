// SPDX-License-Identifier: MIT

// Heartbeat is a TCP server that drops idle connections. Each connection has one task in the wheel, which closes the
// connection, and each read postpones the task. The program runs its own clients: one disconnects, one sends nothing
// after its name, and one sends beats for a while. An interrupt (Ctrl-C) disconnects all of them.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	idle = 400 * time.Millisecond // how long a connection may be idle
	beat = 100 * time.Millisecond // interval between two beats of a client
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) }
	if err := run(ctx, os.Stdout, listener, dial); err != nil {
		log.Fatal(err)
	}
}

// run serves the clients until the last one has disconnected. The clients disconnect when ctx is done.
func run(ctx context.Context, w io.Writer, listener net.Listener, dial func() (net.Conn, error)) error {
	tw, err := timewheel.New(10*time.Millisecond, 512)
	if err != nil {
		return err
	}
	tw.Start()
	defer tw.Stop()

	s := &server{wheel: tw, out: log.New(w, "", 0)}
	served := make(chan error, 1)
	go func() { served <- s.serve(listener) }()

	var clients sync.WaitGroup
	errs := make([]error, 3)
	clients.Go(func() { errs[0] = client(ctx, dial, "polite", 2, true) })
	clients.Go(func() { errs[1] = client(ctx, dial, "silent", 1, false) })
	clients.Go(func() { errs[2] = client(ctx, dial, "lively", 9, false) })
	clients.Wait()
	return errors.Join(append(errs, listener.Close(), <-served)...)
}

// A server drops idle connections.
type server struct {
	wheel *timewheel.TimeWheel
	out   *log.Logger
}

// serve accepts connections until the listener is closed, and returns when all connections have ended.
func (s *server) serve(listener net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	for n := 1; ; n++ {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		key := fmt.Sprintf("connection %d", n)
		open.Go(func() { s.talk(key, conn) })
	}
}

// talk reads from one connection until it is closed.
func (s *server) talk(key string, conn net.Conn) {
	defer conn.Close()
	drop := func(*timewheel.Task) { _ = conn.Close() }
	if err := s.wheel.AddTask(&timewheel.Task{Key: key, Interval: idle, Job: drop}); err != nil {
		s.out.Print(err)
		return
	}
	beats, name := 0, "a client without a name"
	for lines := bufio.NewScanner(conn); lines.Scan(); beats++ {
		name = lines.Text()
		if err := s.wheel.Reschedule(key, idle); err != nil {
			break // the beat came too late: the task is already running
		}
	}
	// Either the client disconnected or the deadline passed first. RemoveTask decides which, because it fails once the
	// task has run.
	if err := s.wheel.RemoveTask(key); err == nil {
		s.out.Printf("%s left; beats heard: %d", name, beats)
		return
	}
	s.out.Printf("%s was idle for too long; beats heard: %d", name, beats)
}

// client sends its name the given number of times, and then disconnects or waits to be dropped. It disconnects when ctx
// is done. A write fails if the connection was already closed.
func client(ctx context.Context, dial func() (net.Conn, error), name string, beats int, leaves bool) error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for range beats {
		if _, err := fmt.Fprintln(conn, name); err != nil {
			return nil
		}
		time.Sleep(beat)
	}
	if leaves {
		return nil
	}
	_, _ = io.Copy(io.Discard, conn) // returns when the server drops the connection
	return nil
}
