// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/timewheel"
)

// readersVariable is the environment variable that makes a process open pages of the dashboard, and contains their
// number.
const readersVariable = "TIMEWHEEL_BENCH_READERS"

// manyPages is the larger number of open pages.
const manyPages = 200

// measureDashboard measures the processor time of a process in which tasks wait and nothing is due: with no
// page of the dashboard open, with one, and with manyPages. Another process reads the pages.
func measureDashboard(w workload, open opener) (figures, error) {
	var early counter
	rec := dashboard.NewRecorder()
	keys := makeKeys(w.Live)
	p, err := open(settings{tick: w.Tick, ids: len(keys), fire: early.fire, more: []timewheel.Option{rec.Option()}})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	for id, key := range keys {
		if err := p.add(id, key, w.Due+time.Duration(id)*w.Window/time.Duration(w.Live)); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: dashboard.Handler([]dashboard.Source{dashboard.Wheel("bench", p.(*wheel).tw, rec)})}
	defer srv.Close()
	go func() { _ = srv.Serve(listener) }()

	out := figures{}
	for _, pages := range []int{0, 1, manyPages} {
		closePages := func() error { return nil }
		if pages > 0 {
			if closePages, err = openPages(listener.Addr().String(), pages); err != nil {
				return nil, err
			}
		}
		settle(w)
		cpu := watch(w.Watch)
		out[fmt.Sprintf("pages_%d_percent", pages)] = 100 * float64(cpu) / float64(w.Watch)
		if err := closePages(); err != nil {
			return nil, err
		}
	}
	out["early"] = float64(early.n.Load())
	return out, nil
}

// openPages starts a process that opens the given number of pages, and waits until all are open.
func openPages(address string, pages int) (closePages func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d http://%s/api/events", readersVariable, pages, address))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	closePages = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(err, closePages())
	}
	return closePages, nil
}

// readersMain is the process that openPages starts. It reads the pages until in ends, and then exits with the pages
// open.
func readersMain(text string, in io.Reader, out io.Writer) error {
	var pages int
	var url string
	if _, err := fmt.Sscan(text, &pages, &url); err != nil {
		return fmt.Errorf("%s: %w", readersVariable, err)
	}
	opened := make(chan error)
	for range pages {
		go func() {
			response, err := http.Get(url)
			opened <- err
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
			}
		}()
	}
	for range pages {
		if err := <-opened; err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "open")
	_, err := io.Copy(io.Discard, in)
	return err
}
