// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/interrupts"
	"github.com/seed581295f1/timewheel/timewheel"
)

func TestMain(m *testing.M) { interrupts.Main(m, main) }

// program returns the example as a process, which is killed if it hangs.
func program(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), interrupts.AsMain+"=1")
	return cmd
}

func TestMain_endsWithItsReport(t *testing.T) {
	out, err := program(t, "-n", "5000").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mustContain(t, string(out), "5,000 orders in", "Everything balances, and nothing was early.", "What to read next:")
	if strings.Contains(string(out), "✗") {
		t.Errorf("a check has failed:\n%s", out)
	}
}

func TestMain_interrupted_endsWithItsReport(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signal can be sent")
	}
	cmd := program(t, "-n", "5000", "-speed", "1") // an hour and a quarter
	var out strings.Builder
	cmd.Stdout = &out
	status, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(status).ReadString('\n'); err != nil { // the first line of the progress
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, status); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("an interrupted sale ended with %v", err)
	}
	mustContain(t, out.String(), "Interrupted. Everything balances up to here.")
}

func TestMain_wrongFlag_hasStatus2(t *testing.T) {
	for _, args := range [][]string{{"-n", "0"}, {"-n", "many"}, {"orders.txt"}} {
		var exit *exec.ExitError
		if out, err := program(t, args...).CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// sale runs a sale in virtual time. The bubble ends only when no goroutine is left.
func sale(t *testing.T, ctx context.Context, c config, terminal bool) (out, status string) {
	t.Helper()
	c, err := c.complete(nil)
	if err != nil {
		t.Fatal(err)
	}
	var report, progress strings.Builder
	if err := run(ctx, c, &report, &progress, terminal); err != nil {
		t.Fatalf("%v\n%s", err, &report)
	}
	return report.String(), progress.String()
}

// In virtual time a run is late by less than a tick, and the sale is never behind.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, status := sale(t, t.Context(), config{orders: 20_000, seed: 7, speed: 225, tick: time.Millisecond}, false)
		mustContain(t, out, "20,000 orders in 20s,", "at most 0s behind the clock", "225 times as fast", "30m0s to pay took 8s",
			"all                20,000  100.00 %", "  still held              0    0.00 %", "+           0  ✓", "≤      1ms",
			"Everything balances, and nothing was early.")
		for _, wrong := range []string{"✗", "≤      2ms", "early         1"} {
			if strings.Contains(out, wrong) {
				t.Errorf("the report contains %q", wrong)
			}
		}
		if n := strings.Count(status, "\n"); n < 3 || strings.Contains(status, "\x1b") {
			t.Errorf("the progress of 20 s, a line every 5 s:\n%s", status)
		}
	})
}

func TestRun_onATerminal_rewritesOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, status := sale(t, t.Context(), config{orders: 100, tick: time.Millisecond}, true)
		if lines := strings.Split(status, "\r\x1b[2K"); len(lines) < 20 || lines[0] != "" || lines[len(lines)-1] != "" ||
			strings.Contains(status, "\n") {
			t.Errorf("the progress of 3 s, ten times a second: %q", status)
		}
	})
}

func TestRun_interrupted_reportsTheOrdersThatStillHoldStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		out, _ := sale(t, ctx, config{orders: 20_000, speed: 225, tick: time.Millisecond}, false)
		mustContain(t, out, " orders in 5s,", "Interrupted. Everything balances up to here.")
		if strings.Contains(out, "still held              0 ") || strings.Contains(out, "✗") {
			t.Errorf("no order is held, or a check has failed:\n%s", out)
		}
	})
}

// Payments and jobs race, in real time. Exactly one of them moves the units of each order.
func TestShop_paymentsJustAsTheWindowsEnd(t *testing.T) {
	const n = 2000
	s := &shop{window: time.Millisecond}
	s.accounts[0] = account{start: n, available: n}
	s.wheel = timewheel.NewTimeWheel(time.Millisecond, slots, timewheel.WithObserver(s.observe))
	s.wheel.Start()
	defer s.wheel.Stop()
	orders := make([]order, n)
	var payments sync.WaitGroup
	for i := range orders {
		o := &orders[i]
		o.id, o.units = thousands(i), 1
		if err := s.place(o); err != nil {
			t.Fatal(err)
		}
		payments.Go(func() {
			time.Sleep(s.window)
			if err := s.pay(o); err != nil {
				t.Error(err)
			}
		})
	}
	payments.Wait()
	if err := s.wheel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, c := s.accounts[0], s.tally
	if c.accepted != n || c.paid+c.givenBack != n || c.paidLate != c.givenBack || a.sold != c.paid || a.available != c.givenBack || a.held != 0 {
		t.Errorf("%+v, %+v", a, c)
	}
}

func TestShop_stoppedWheel_holdsNothing(t *testing.T) {
	s := &shop{window: time.Minute, wheel: timewheel.NewTimeWheel(time.Millisecond, slots)}
	s.accounts[0] = account{start: 1, available: 1}
	s.wheel.Stop()
	if err := s.place(&order{id: "late", units: 1}); !errors.Is(err, timewheel.ErrStopped) || s.accounts[0].held != 0 {
		t.Errorf("%v, %+v", err, s.accounts[0])
	}
}

func TestNewSale_sameSeed_sameSale(t *testing.T) {
	one, stock := newSale(5000, 1)
	again, sameStock := newSale(5000, 1)
	other, _ := newSale(5000, 2)
	if !reflect.DeepEqual(one, again) || stock != sameStock {
		t.Error("the same seed made another sale")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("another seed made the same sale")
	}
	arrived := make(map[*order]bool)
	for i, e := range one {
		if i > 0 && e.at < one[i-1].at || e.payment != arrived[e.order] {
			t.Fatalf("event %d is not in order: %+v", i, e)
		}
		arrived[e.order] = true
	}
	if len(arrived) != 5000 {
		t.Errorf("%d orders arrive", len(arrived))
	}
}

// Each mistake makes the program fail.
func TestReport_mistakes_areErrors(t *testing.T) {
	for name, spoil := range map[string]func(r *report){
		"":                 func(*report) {},
		"a unit is lost":   func(r *report) { r.accounts[1].available-- },
		"an order is held": func(r *report) { r.tally.accepted++; r.stats.Added++; r.stats.Pending++ },
		"a task is lost":   func(r *report) { r.stats.Added++ },
		"a run is lost":    func(r *report) { r.stats.Due++ },
		"a job ran too":    func(r *report) { r.tally.givenBack++; r.tally.paid-- },
		"a run was early":  func(r *report) { r.late[0] = -1 },
		"a run is unknown": func(r *report) { r.late = r.late[1:] },
		"negative in stock": func(r *report) {
			r.accounts[1].available--
			r.accounts[1].sold++
			r.accounts[1].available -= 9
			r.accounts[1].sold += 9
		},
	} {
		r := report{
			config: config{speed: 225, tick: time.Millisecond}, took: time.Second,
			tally: tally{accepted: 3, paid: 1, givenBack: 2}, late: []time.Duration{0, 3 * time.Millisecond},
			stats: timewheel.Stats{Added: 3, Removed: 1, Finished: 2, Due: 2, Started: 2},
		}
		r.accounts[1] = account{start: 6, sold: 3, available: 3}
		spoil(&r)
		var out strings.Builder
		if err := r.write(&out); (err != nil) != (name != "") || strings.Contains(out.String(), "✗") != (name != "") {
			t.Errorf("%q: %v\n%s", name, err, &out)
		}
	}
}

func TestConfig_wrongValues_areErrors(t *testing.T) {
	for want, c := range map[string]config{
		"-n -1 is not positive":                    {orders: -1, tick: time.Millisecond},
		"-speed 0.5 is not at least 1":             {orders: 1, speed: 0.5, tick: time.Millisecond},
		"-speed NaN is not at least 1":             {orders: 1, speed: math.NaN(), tick: time.Millisecond},
		"-tick 1ns is less than 100µs":             {orders: 1, tick: 1},
		"stock for 8s, less than -tick 1m0s":       {orders: 1_000_000, tick: time.Minute},
		"at -speed +Inf an order holds its stock ": {orders: 1, speed: math.Inf(1), tick: time.Millisecond},
	} {
		if _, err := c.complete(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}

func mustContain(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
}
