// SPDX-License-Identifier: MIT

package orders

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// balanced returns a report without problems.
func balanced() *report {
	return &report{
		name: "a file", speed: 3600, window: 30 * time.Minute, took: 2 * time.Second,
		created: 1900, refused: 100, paid: 1500, givenBack: 400, paidLate: 30,
		rows: []row{
			{"TEA", account{start: 2000, sold: 1200, shelf: 800}},
			{"CUP", account{start: 1000, sold: 300, shelf: 700}},
		},
		spread: spread{
			runs: 400, p50: 900 * time.Microsecond, p99: 4 * time.Millisecond, max: 4100 * time.Microsecond,
			bands: []band{{time.Millisecond, 299}, {2 * time.Millisecond, 0}, {5 * time.Millisecond, 101}},
		},
		feeding: time.Second, lag: 1500 * time.Microsecond,
		found: measures{peak: 1500, busiest: 1850, goroutines: 12, heap: 300 << 10, heapTasks: 1200},
		tick:  time.Millisecond, slots: 8192,
		stats: timewheel.Stats{Added: 1900, Finished: 400, Removed: 1500, Due: 401, Started: 400, Withdrawn: 1},
	}
}

func written(t *testing.T, r *report) string {
	t.Helper()
	var text strings.Builder
	if err := r.write(&text, style{}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestReport_isReadAtAGlance(t *testing.T) {
	const want = `
2,000 orders from a file, each to be paid within 30m, at 3,600 times the speed: 2 s

Orders
  came in           2,000  100.0 %  ██████████████████████████████
    refused           100    5.0 %  █▌                             too little in stock
    created         1,900   95.0 %  ████████████████████████████▌  stock held, one task each
      paid          1,500   75.0 %  ██████████████████████▌        task removed
      given back      400   20.0 %  ██████                         task ran: not paid in time
        paid late      30    1.5 %  ▌                              after the stock was given back

Ledger, in units of stock
       at the start           sold   on the shelf           held
  TEA         2,000 =        1,200 +          800 +            0  ✓
  CUP         1,000 =          300 +          700 +            0  ✓
  all         3,000 =        1,500 +        1,500 +            0  ✓

Lateness
  of 400 runs, from the due time to the start of the job
     ≤ 1 ms  299   74.8 %  ██████████████████████████████
     ≤ 2 ms    0    0.0 %
     ≤ 5 ms  101   25.2 %  ██████████▏
  p50 900 µs   p99 4 ms   max 4.1 ms   none was early

Speed and memory
  tasks a second              950  over the whole run
                            1,900  while orders came in, for 1 s
                            1,850  in the busiest second
  behind the clock         1.5 ms  the longest that an order or a payment waited for the machine
  live tasks                1,500  at the peak
  goroutines                   12  at the peak, those of the Go runtime among them
  heap per live task        256 B  300.0 KiB for 1,200 tasks: the wheel's part, the key,
                                   the job, what the order holds, the payment to come

Wheel, 8,192 slots of 1ms
  tasks  1,900 added = 400 finished + 1,500 removed + 0 pending  ✓
  runs   401 due = 400 started + 0 missed + 0 waiting + 1 withdrawn  ✓
  both   what the wheel counts is what the shop counts  ✓

Everything balances.
`
	if got := written(t, balanced()); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestReport_manySKUs_areOneRowAtTheEnd(t *testing.T) {
	r := balanced()
	r.rows = nil
	for i := range shownSKUs + 1 {
		r.rows = append(r.rows, row{fmt.Sprintf("SKU-%02d", i), account{start: 10, sold: 4, shelf: 6}})
	}
	if text := written(t, r); strings.Contains(text, "others") || !strings.Contains(text, "SKU-10") {
		t.Errorf("a single row is hidden:\n%s", text)
	}
	r.rows = append(r.rows, row{"SKU-11", account{start: 20, sold: 20}})
	text := written(t, r)
	const others = "  2 others            30 =           24 +            6 +            0  ✓"
	if strings.Contains(text, "SKU-10") || !strings.Contains(text, others) {
		t.Errorf("the last two SKUs are not one row:\n%s", text)
	}
}

func TestReport_trouble_isSaid(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(r *report)
	}{
		{"a unit is lost", "✗ the stock of CUP does not balance", func(r *report) { r.rows[1].shelf-- }},
		{"an order is left", "✗ at the end 1 orders hold 0 units", func(r *report) { r.paid-- }},
		{"stock is left", "✗ at the end 0 orders hold 2 units", func(r *report) {
			r.rows[0].held, r.rows[0].shelf = 2, r.rows[0].shelf-2
		}},
		{"a task is lost", "✗ the wheel's tasks do not balance", func(r *report) { r.stats.Added++ }},
		{"a run is lost", "✗ the wheel's runs do not balance", func(r *report) { r.stats.Started-- }},
		{"a job panicked", "✗ the wheel's runs do not balance", func(r *report) { r.stats.Panicked++ }},
		{"an order has no task", "✗ the wheel counts other tasks", func(r *report) { r.created++; r.paid++ }},
		{"a task was early", "✗ 3 runs began before they were due", func(r *report) { r.spread.early = 3 }},
	} {
		r := balanced()
		c.spoil(r)
		text := written(t, r)
		if !strings.Contains(text, c.want) || strings.Contains(text, "Everything balances") {
			t.Errorf("%s: the report does not say %q:\n%s", c.name, c.want, text)
		}
		if got := exitStatus(r, nil); got != exitWrong {
			t.Errorf("%s: the exit status is %d, want %d", c.name, got, exitWrong)
		}
	}
}

func TestReport_interrupted_mayHoldStock(t *testing.T) {
	r := balanced()
	r.interrupted = true
	r.paid -= 10
	r.rows[0].sold, r.rows[0].held = r.rows[0].sold-10, 10
	r.stats.Removed, r.stats.Pending = r.stats.Removed-10, 10
	text := written(t, r)
	for _, want := range []string{
		"    still held       10    0.5 %", "1,490 +        1,500 +           10  ✓",
		"Interrupted.", "Everything balances.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
}

func TestReport_heapOfAFile_saysThatItHasTheIDs(t *testing.T) {
	r := balanced()
	r.keepsIDs = true
	if text := written(t, r); !strings.Contains(text, "the payment to come, and all ids that were read\n") {
		t.Errorf("the report does not say what is in the heap:\n%s", text)
	}
}

func TestReport_ofNothing(t *testing.T) {
	text := written(t, &report{name: "a file", window: time.Minute, tick: time.Millisecond, slots: 1})
	for _, want := range []string{"no task ran", "too few tasks to tell", "Everything balances."} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
}

func TestExitStatus_isTheGravest(t *testing.T) {
	unreadable := fmt.Errorf("%w: on fire", errUnreadable)
	for _, c := range []struct {
		name                    string
		unbalanced, interrupted bool
		malformed               int64
		err                     error
		want                    int
	}{
		{"all is well", false, false, 0, nil, 0},
		{"malformed", false, false, 1, nil, 3},
		{"interrupted", false, true, 0, nil, 0},
		{"malformed, interrupted", false, true, 1, nil, 3},
		{"another error", false, false, 0, errors.New("the wheel refuses"), 1},
		{"unreadable", false, false, 1, unreadable, 2},
		{"unbalanced", true, true, 1, unreadable, 1},
	} {
		r := balanced()
		r.interrupted, r.malformed = c.interrupted, c.malformed
		if c.unbalanced {
			r.stats.Added++
		}
		if got := exitStatus(r, c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
