// SPDX-License-Identifier: MIT

package orders

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// Most of these tests run the whole program in virtual time.

const sample = "../../orders/testdata/orders.jsonl"

// An outcome is the result of a run of the program.
type outcome struct {
	status         int
	stdout, stderr string
	took           time.Duration
}

// program runs the program.
func program(ctx context.Context, stdin io.Reader, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	began := time.Now()
	open := Open(nil)
	if slices.Contains(args, "-durable") {
		open = openTasks
	}
	status := run(ctx, open, args, stdin, &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String(), time.Since(began)}
}

// want fails the test unless the program ended with the status and a report in which everything balances.
func (o outcome) want(t *testing.T, status int) {
	t.Helper()
	if o.status != status || !strings.Contains(o.stdout, "Everything balances.") {
		t.Fatalf("exit status %d, want %d\n%s%s", o.status, status, o.stdout, o.stderr)
	}
}

// count returns the number in the report for the given name.
func (o outcome) count(t *testing.T, name string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ +` + name + ` +([0-9,]+) `).FindStringSubmatch(o.stdout)
	if found == nil {
		t.Fatalf("the report has no %q:\n%s", name, o.stdout)
	}
	n, err := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// counts returns all counts of orders in the report.
func (o outcome) counts(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%d created, %d refused, %d paid, %d given back, %d paid late", o.count(t, "created"),
		o.count(t, "refused"), o.count(t, "paid"), o.count(t, "given back"), o.count(t, "paid late"))
}

func TestRun_sample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := program(t.Context(), nil, "-in", sample)
		o.want(t, exitFine)
		if got, want := o.counts(t), "38 created, 2 refused, 27 paid, 11 given back, 2 paid late"; got != want {
			t.Errorf("got %s, want %s\n%s", got, want, o.stdout)
		}
		const all = "  all                      100 =           53 +           47 +            0  ✓"
		if !strings.Contains(o.stdout, all) {
			t.Errorf("the ledger is another:\n%s", o.stdout)
		}
		if o.stderr != "" {
			t.Errorf("standard error: %s", o.stderr)
		}
	})
}

func TestRun_generated_paysWhoPaidInTime(t *testing.T) {
	const n = 2000
	synctest.Test(t, func(t *testing.T) {
		o := program(t.Context(), nil, "-generate", strconv.Itoa(n), "-seed", "5", "-stock", "100000")
		o.want(t, exitFine)
		var inTime, atLeast, late int
		for _, o := range sale(t, n, 5) {
			// The wheel may take two ticks more than the window, which are 3 s of the orders' time.
			switch delay := o.paidAt.Sub(o.at); {
			case !o.paid:
			case delay < 30*time.Minute:
				inTime++
				atLeast++
			case delay < 30*time.Minute+3*time.Second:
				inTime++
			default:
				late++
			}
		}
		created, paid, paidLate := o.count(t, "created"), o.count(t, "paid"), o.count(t, "paid late")
		if created != n || paid < atLeast || paid > inTime || paid+paidLate != inTime+late {
			t.Errorf("of %d orders %d to %d are paid in time and %d late, but got\n%s",
				n, atLeast, inTime, late, o.stdout)
		}
		if back := o.count(t, "given back"); back != n-paid {
			t.Errorf("%d orders were given back, and %d of %d were paid", back, paid, n)
		}
	})
}

func TestRun_generated_takesTheSameTurnTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		args := []string{"-generate", "2000", "-seed", "9"}
		a, b := program(t.Context(), nil, args...), program(t.Context(), nil, args...)
		a.want(t, exitFine)
		if a.counts(t) != b.counts(t) {
			t.Errorf("got %s, and then %s", a.counts(t), b.counts(t))
		}
		if a.count(t, "refused") == 0 {
			t.Error("no order was refused: the stock is no limit")
		}
	})
}

func TestRun_littleStock_isNotOversold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := program(t.Context(), nil, "-generate", "2000", "-stock", "3")
		o.want(t, exitFine)
		if o.count(t, "refused") < 1500 {
			t.Errorf("of 96 units too many were sold:\n%s", o.stdout)
		}
		o = program(t.Context(), nil, "-generate", "100", "-stock", "0")
		o.want(t, exitFine)
		if o.count(t, "refused") != 100 {
			t.Errorf("of no units some were sold:\n%s", o.stdout)
		}
	})
}

func TestRun_unpaidOrders_areAllGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unpaid := regexp.MustCompile(`,"paid_at":"[^"]*"`).ReplaceAllString(readFile(t, sample), "")
		o := program(t.Context(), strings.NewReader(unpaid), "-in", "-", "-stock", "100")
		o.want(t, exitFine)
		if got, want := o.counts(t), "40 created, 0 refused, 0 paid, 40 given back, 0 paid late"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestRun_malformedLines_areToldAndPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(readFile(t, sample)), "\n")
		var text, want strings.Builder
		for i, line := range lines {
			fmt.Fprintln(&text, line)
			if i < 12 {
				fmt.Fprintln(&text, badLines[i].line)
				fmt.Fprintf(&want, "standard input:%d: ", 2*i+2)
			}
		}
		o := program(t.Context(), strings.NewReader(text.String()), "-in", "-")
		o.want(t, exitMalformed)
		if got, want := o.counts(t), "38 created, 2 refused, 27 paid, 11 given back, 2 paid late"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		told := strings.Join(regexp.MustCompile(`standard input:\d+: `).FindAllString(o.stderr, -1), "")
		if told != want.String() || o.count(t, "malformed lines") != 12 {
			t.Errorf("the lines told are %s\nwant %s\n%s", told, want.String(), o.stderr)
		}
	})
}

func TestRun_manyMalformedLines_areCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := program(t.Context(), strings.NewReader(strings.Repeat("x\n", 1234)), "-in", "-")
		o.want(t, exitMalformed)
		told := strings.Count(o.stderr, "not JSON")
		if told != complaints || !strings.Contains(o.stderr, "orders: 1,214 more malformed lines\n") {
			t.Errorf("%d lines were told:\n%s", told, o.stderr)
		}
	})
}

func TestRun_interrupted_reportsWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := program(ctx, nil, "-generate", "2000")
		o.want(t, exitFine)
		created, paid, back := o.count(t, "created"), o.count(t, "paid"), o.count(t, "given back")
		if held := o.count(t, "still held"); held == 0 || created != paid+back+held || created == 2000 {
			t.Errorf("%d orders of 2,000 were created, and %d paid, %d given back, %d held", created, paid, back, held)
		}
		if o.took != time.Second {
			t.Errorf("it took %v, want the second until the interrupt", o.took)
		}
	})
}

func TestRun_interruptedAtTheEnd_waitsForNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := program(ctx, strings.NewReader(orderLineOf("A-1")+"\n"), "-in", "-", "-speed", "0.1")
		o.want(t, exitFine)
		if held := o.count(t, "still held"); held != 1 {
			t.Errorf("%d orders are held, want 1", held)
		}
	})
}

func TestRun_interruptedWhileTheInputIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		silent, w := io.Pipe()
		defer w.Close()
		program(ctx, silent, "-in", "-").want(t, exitFine)
	})
}

func TestRun_silentInput_holdsUpNoPayment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			fmt.Fprintln(w, orderLineOf("A-1")) // whose payment is due after 200 ms, and its window after 500 ms
			time.Sleep(time.Second)
			w.Close()
		}()
		o := program(t.Context(), r, "-in", "-")
		o.want(t, exitFine)
		if got, want := o.counts(t), "1 created, 0 refused, 1 paid, 0 given back, 0 paid late"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestRun_quietStretches_areSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := teaOrder("A-1", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z") +
			teaOrder("A-2", "2026-06-01T00:00:00Z", "2026-06-01T00:10:00Z") +
			teaOrder("A-3", "2222-06-01T00:00:00Z", "2222-06-01T00:31:00Z")
		o := program(t.Context(), strings.NewReader(text), "-in", "-")
		o.want(t, exitFine)
		if got, want := o.counts(t), "3 created, 0 refused, 1 paid, 2 given back, 2 paid late"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if o.took > 3*time.Second {
			t.Errorf("it took %v, though little happens", o.took)
		}
	})
}

func TestRun_orderOutOfOrder_comesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := teaOrder("A-1", "2026-01-01T00:10:00Z", "2026-01-01T00:50:00Z") +
			teaOrder("A-2", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z") +
			teaOrder("A-3", "2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z")
		o := program(t.Context(), strings.NewReader(text), "-in", "-")
		o.want(t, exitFine)
		if got, want := o.counts(t), "3 created, 0 refused, 2 paid, 1 given back, 1 paid late"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if !strings.Contains(o.stdout, "behind the clock           0 µs") {
			t.Errorf("it is behind its clock:\n%s", o.stdout)
		}
	})
}

func TestRun_unreadableInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := iotest.ErrReader(errors.New("on fire"))
		o := program(t.Context(), io.MultiReader(strings.NewReader(orderLineOf("A-1")+"\n"), broken), "-in", "-")
		o.want(t, exitUsage)
		const want = "orders: the orders cannot be read: reading standard input at line 2: on fire\n"
		if o.stderr != want {
			t.Errorf("standard error: %s", o.stderr)
		}
		o = program(t.Context(), broken, "-in", "-")
		if o.status != exitUsage || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("of nothing at all: %+v", o)
		}
	})
}

func TestRun_writtenOut_isTheSameSale(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sale.jsonl")
	o := program(t.Context(), nil, "-generate", "300", "-seed", "3", "-out", file)
	if o.status != exitFine || o.stdout != "" {
		t.Fatalf("got %+v", o)
	}
	o = program(t.Context(), nil, "-generate", "300", "-seed", "3", "-out", "-")
	if text := readFile(t, file); text != o.stdout || strings.Count(text, "\n") != 300 {
		t.Errorf("standard output and the file differ, or have not 300 lines")
	}
	want := sale(t, 300, 3)
	for got, err := range readOrders(strings.NewReader(o.stdout), "out") {
		if err != nil || !same(got, want[0]) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want[0])
		}
		want = want[1:]
	}
	o = program(t.Context(), nil, "-generate", "300", "-out", filepath.Join(file, "nowhere"))
	if o.status != exitUsage || !strings.Contains(o.stderr, "orders: creating the file for the orders: ") {
		t.Errorf("got %+v", o)
	}
}

func TestRun_wrongFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "give either -in or -generate"},
		{"-in x -generate 1", "give either -in or -generate"},
		{"-in=", "-in is empty"},
		{"-in does-not-exist", "opening the orders: open does-not-exist"},
		{"-generate 0", "-generate 0 is not positive"},
		{"-generate many", `invalid value "many" for flag -generate`},
		{"-generate 1 more", `"more" is no flag`},
		{"-in x -out y", "-out goes with -generate"},
		{"-in x -stock -1", "-stock -1 is negative"},
		{"-in x -window 0s", "-window 0s is not positive"},
		{"-in x -speed 0", "-speed 0 is not a positive number"},
		{"-in x -speed NaN", "-speed NaN is not a positive number"},
		{"-in x -speed Inf", "-speed +Inf is not a positive number"},
		{"-in x -speed 1e9", "-window 30m0s at -speed 1e+09 is 1.8µs, less than -tick 1ms"},
		{"-in x -tick 1us", "-tick 1µs is less than 100µs"},
		{"-in x -http=", "-http is empty"},
		{"-generate 1 -out y -http :0", "-out only writes orders; it does not go with -http"},
		{"-colour", "flag provided but not defined: -colour"},
	} {
		o := program(t.Context(), nil, strings.Fields(c.args)...)
		if o.status != exitUsage || !strings.HasPrefix(o.stderr, "orders: "+c.want) || o.stdout != "" {
			t.Errorf("orders %s: got %+v, want %q", c.args, o, c.want)
		}
	}
}

func TestRun_help_namesAllFlagsAndStatuses(t *testing.T) {
	o := program(t.Context(), nil, "-h")
	if o.status != exitFine || o.stderr != "" {
		t.Errorf("got %+v", o)
	}
	for _, want := range []string{
		"-in FILE", "-generate N", "-seed N", "-out FILE", "-window TIME", "-speed X", "-stock N", "-tick TIME",
		"-http ADDR",
		"0 ", "1 ", "2 ", "3 ",
	} {
		if !strings.Contains(o.stdout, "\n    "+want) {
			t.Errorf("the help does not say %q:\n%s", want, o.stdout)
		}
	}
}

// The lines written before an interrupt are complete.
func TestRun_out_interrupted_saysHowMuchIsWritten(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	o := program(ctx, nil, "-generate", "1000", "-out", "-")
	if o.status != exitFine || o.stdout != "" || o.stderr != "orders: interrupted: the first 0 of 1,000 orders are written\n" {
		t.Errorf("got %+v", o)
	}
}

// teaOrder returns the line of an order of one unit.
func teaOrder(id, at, paidAt string) string {
	return fmt.Sprintf(`{"order":%q,"sku":"TEA","quantity":1,"at":%q,"paid_at":%q}`+"\n", id, at, paidAt)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
