// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

const barWidth = 40

const next = `
What to read next:
  durable/pebble      the same verbs for tasks in a directory, which survive the process
  durable/postgres    and for tasks in PostgreSQL, which many processes share
  make demo-shop      a shop on PostgreSQL whose processes are killed: its stock balances, too
  docs/guarantees.md  what the wheel promises, each promise with its test
`

// A report holds the results of a sale.
type report struct {
	config
	took, behind time.Duration
	interrupted  bool

	accounts [len(products)]account
	tally    tally
	late     []time.Duration
	stats    timewheel.Stats

	text  strings.Builder
	wrong bool // something does not balance, or a run was early
}

// write writes the report to w. It returns an error if something does not balance, or if a run was early.
func (r *report) write(w io.Writer) error {
	t := r.tally
	r.line("%s orders in %v, %s a second, at most %v behind the clock.", thousands(t.accepted+t.refused),
		r.took.Round(100*time.Millisecond), thousands(int(float64(t.accepted+t.refused)/r.took.Seconds())), rounded(r.behind))
	r.line("The shop's time passed %.4g times as fast as real time: %v to pay took %v.", r.speed, window, rounded(r.real(window)))
	r.writeOrders()
	r.writeStock()
	r.writeWheel()
	r.writeLateness()
	switch {
	case r.wrong:
		r.line("\nSomething is wrong: see ✗ above.")
	case r.interrupted:
		r.line("\nInterrupted. Everything balances up to here.")
	default:
		r.line("\nEverything balances, and nothing was early.")
	}
	r.text.WriteString(next)
	if _, err := io.WriteString(w, r.text.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if r.wrong {
		return errors.New("the accounts do not balance, or a run was early")
	}
	return nil
}

func (r *report) writeOrders() {
	t := r.tally
	all := t.accepted + t.refused
	row := func(name string, n int, note string) {
		r.line("  %-14s %10s  %6.2f %%  %s", name, thousands(n), 100*float64(n)/float64(max(all, 1)), note)
	}
	r.line("\nOrders")
	row("refused", t.refused, "too little stock: no task")
	row("paid", t.paid, "RemoveTask returned nil: sold")
	row("given back", t.givenBack, "the task ran")
	row("  paid late", t.paidLate, "of these: RemoveTask returned ErrTaskKeyNotFound")
	row("still held", t.held(), "the task is pending")
	row("all", all, "")
}

func (r *report) writeStock() {
	r.line("\nStock, in units")
	r.line("  %-8s %11s   %11s   %11s   %11s", "", "at start", "sold", "available", "still held")
	row := func(name string, a account) {
		ok := a.start == a.sold+a.available+a.held && min(a.sold, a.available, a.held) >= 0
		r.line("  %-8s %11s = %11s + %11s + %11s  %s", name,
			thousands(a.start), thousands(a.sold), thousands(a.available), thousands(a.held), r.mark(ok))
	}
	var all account
	for i, a := range r.accounts {
		row(products[i], a)
		all = account{all.start + a.start, all.sold + a.sold, all.available + a.available, all.held + a.held}
	}
	row("all", all)
	if !r.interrupted {
		r.line("  No order holds stock at the end.  %s", r.mark(all.held == 0 && r.tally.held() == 0))
	}
}

// writeWheel writes the wheel's own counters, which must agree with the shop.
func (r *report) writeWheel() {
	s, t := r.stats, r.tally
	r.line("\nWheel, %s slots of %v", thousands(slots), r.tick)
	r.line("  tasks: %s added = %s finished + %s removed + %s pending  %s",
		thousands(s.Added), thousands(s.Finished), thousands(s.Removed), thousands(s.Pending),
		r.mark(s.Added == s.Finished+s.Removed+uint64(s.Pending)))
	r.line("  runs:  %s due = %s started + %s missed + %s waiting + %s withdrawn  %s",
		thousands(s.Due), thousands(s.Started), thousands(s.Missed), thousands(s.Waiting), thousands(s.Withdrawn),
		r.mark(s.Due == s.Started+s.Missed+uint64(s.Waiting)+s.Withdrawn))
	agree := s.Added == uint64(t.accepted) && s.Removed == uint64(t.paid) && s.Finished == uint64(t.givenBack) &&
		s.Pending == t.held() && s.Started == uint64(len(r.late))
	r.line("  Added are the accepted orders, removed the paid, finished those given back.  %s", r.mark(agree))
}

// writeLateness writes how late the runs were, as quantiles and as a picture.
func (r *report) writeLateness() {
	r.line("\nLateness of %s runs, from the due time to the start of the job", thousands(len(r.late)))
	if len(r.late) == 0 {
		return
	}
	slices.Sort(r.late)
	early, _ := slices.BinarySearch(r.late, 0)
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"most", 1}} {
		at := int(math.Ceil(q.share*float64(len(r.late)))) - 1
		r.line("  %-5s %9v", q.name, rounded(r.late[at]))
	}
	r.line("  early %9s  %s", thousands(early), r.mark(early == 0))

	// Each bar counts the runs up to its bound. Each bound is twice the one before it, and the tick is one of them.
	var bars []int
	for bound, rest := r.tick/8, r.late; len(rest) > 0; bound *= 2 {
		n, _ := slices.BinarySearch(rest, bound+1)
		bars, rest = append(bars, n), rest[n:]
	}
	r.line("")
	highest := slices.Max(bars)
	for i, n := range bars {
		bar := strings.Repeat("█", n*barWidth/highest)
		if bar == "" && n > 0 {
			bar = "▏"
		}
		r.line("  ≤ %8v %9s  %s", r.tick/8<<i, thousands(n), bar)
	}
}

// line writes a line without spaces at its end.
func (r *report) line(format string, args ...any) {
	r.text.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

// mark returns the mark of a check, and remembers if it has failed.
func (r *report) mark(ok bool) string {
	if ok {
		return "✓"
	}
	r.wrong = true
	return "✗"
}

// rounded rounds a duration for people.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}

// thousands formats a count with a comma before every third digit from the right.
func thousands[N int | uint64](n N) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
