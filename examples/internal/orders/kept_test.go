// SPDX-License-Identifier: MIT

package orders

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/examples/internal/tasks"
)

const argsEnv = "ORDERS_TEST_ARGS" // makes the test's process act as the program, with these arguments

func TestMain(m *testing.M) {
	if args := os.Getenv(argsEnv); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		open := Open(nil)
		if slices.Contains(os.Args, "-durable") {
			open = openTasks
		}
		Main(open)
	}
	os.Exit(m.Run())
}

// openTasks opens the tasks as examples/orders-durable does.
func openTasks(dir string, expire func(id string) error) (Tasks, error) {
	return tasks.Open(dir, expire)
}

func process(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), argsEnv+"="+strings.Join(args, " "))
	return cmd
}

// The program is killed again and again, at random moments, and finally allowed to end. Then every unit of the stock is
// in one place, no order holds any, and every order of the sale is in the book once.
func TestKept_killedAtAnyMoment_balancesToTheUnit(t *testing.T) {
	kills := 6
	if testing.Short() {
		kills = 2
	}
	dir := filepath.Join(t.TempDir(), "shop")
	args := []string{"-generate", "5000", "-durable", dir}
	for range kills {
		cmd := process(args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	printed, err := process(args...).Output()
	if err != nil {
		t.Fatalf("the last life: %v\n%s", err, printed)
	}
	for _, want := range []string{"5,000", "Everything balances.", "0 left in the store"} {
		if !strings.Contains(string(printed), want) {
			t.Errorf("%q is not in the report:\n%s", want, printed)
		}
	}
	seen := map[string]string{}
	b, err := openBook(filepath.Join(dir, "book.jsonl"), func(s step) error {
		if s.Is == isHeld || s.Is == isRefused {
			if seen[s.Order] != "" {
				t.Errorf("order %s came twice", s.Order)
			}
			seen[s.Order] = s.Is
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	if len(seen) != 5000 {
		t.Errorf("%d orders are in the book, want 5000", len(seen))
	}
	again, err := process(args...).Output()
	if err != nil || !strings.Contains(string(again), "0 added, 0 removed, 0 run") {
		t.Errorf("once more: %v\n%s", err, again)
	}
}

// The session does not end while an order is on its way to the shop, even if there is only one.
func TestKept_fewOrders_areAllSettled(t *testing.T) {
	for orders := range 4 {
		for range 15 {
			var lines strings.Builder
			at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
			for i := range orders + 1 {
				placed := at.Add(time.Duration(i) * 5 * time.Second)
				paid := ""
				if i%2 == 1 {
					paid = placed.Add(3 * time.Second).Format(time.RFC3339)
				}
				line := teaOrder(fmt.Sprint("A-", i), placed.Format(time.RFC3339), paid)
				lines.WriteString(strings.Replace(line, `,"paid_at":""`, "", 1))
			}
			o := program(t.Context(), strings.NewReader(lines.String()),
				"-in", "-", "-durable", filepath.Join(t.TempDir(), "shop"), "-speed", "360000")
			o.want(t, exitFine)
		}
	}
}

func TestBook_tornLine_isCutOffAndABadOneIsToldWithItsNumber(t *testing.T) {
	name := filepath.Join(t.TempDir(), "book.jsonl")
	whole := `{"order":"A","is":"held","sku":"TEA","quantity":2}` + "\n"
	if err := os.WriteFile(name, []byte(whole+`{"order":"B","is":"he`), 0o600); err != nil {
		t.Fatal(err)
	}
	var read []step
	note := func(s step) error { read = append(read, s); return nil }
	b, err := openBook(name, note)
	if err != nil {
		t.Fatal(err)
	}
	if len(read) != 1 || read[0].Order != "A" || read[0].Quantity != 2 {
		t.Errorf("these steps were read: %+v", read)
	}
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() {
			if err := b.write(step{Order: "C", Is: isPaid}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil || strings.Count(string(text), "\n") != 101 || !strings.HasPrefix(string(text), whole) {
		t.Errorf("the book has %d lines, %v", strings.Count(string(text), "\n"), err)
	}
	if err := os.WriteFile(name, []byte(whole+"nonsense\n"+whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openBook(name, note); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a bad line: %v", err)
	}
	refuse := errors.New("no")
	if _, err := openBook(name, func(step) error { return refuse }); !errors.Is(err, refuse) {
		t.Errorf("a step that makes no sense: %v", err)
	}
}

// The book decides: an order that was held when the process ended and has no task gets one, and a contradictory book is
// refused.
func TestKept_book_isMadeGoodOrRefused(t *testing.T) {
	open := func(t *testing.T, lines ...string) (*keptShop, error) {
		t.Helper()
		dir := t.TempDir()
		text := strings.Join(append(lines, ""), "\n")
		if err := os.WriteFile(filepath.Join(dir, "book.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return openKept(openTasks, dir, newLedger(func(string) int { return 5 }), 50*time.Millisecond)
	}
	held := `{"order":"A","is":"held","sku":"TEA","quantity":2,"at":"2026-03-02T09:30:00Z"}`
	s, err := open(t, `{"is":"opened"}`, held, `{"order":"B","is":"refused"}`)
	if err != nil {
		t.Fatal(err)
	}
	if s.lives != 2 || s.tally.created.Load() != 1 || s.tally.refused.Load() != 1 {
		t.Errorf("life %d, %d created, %d refused", s.lives, s.tally.created.Load(), s.tally.refused.Load())
	}
	s.leave()
	<-s.idle // its task has run
	if a := s.ledger.rows()[0].account; a.shelf != 5 || a.held != 0 {
		t.Errorf("the stock is %+v", a)
	}
	if err := s.pay("A"); err != nil || s.tally.paidLate.Load() != 1 {
		t.Errorf("a payment that is late: %v", err)
	}
	if err := s.pay("A"); err != nil || s.tally.paidLate.Load() != 1 {
		t.Errorf("the same payment again: %v", err)
	}
	if err := s.pay("C"); err == nil {
		t.Error("an order that there is not is paid")
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	for name, lines := range map[string][]string{
		"paid and never held": {`{"order":"A","is":"paid"}`},
		"paid and back":       {held, `{"order":"A","is":"paid"}`, `{"order":"A","is":"back"}`},
		"held twice":          {held, held},
		"more than there is":  {strings.Replace(held, `"quantity":2`, `"quantity":9`, 1)},
	} {
		if s, err := open(t, lines...); err == nil {
			t.Errorf("%s: the book is taken", name)
			_ = s.close()
		}
	}
}

func TestFlags_durable(t *testing.T) {
	for _, args := range []string{
		"-generate 5 -durable", "-generate 5 -durable=", "-generate 5", "-generate 5 -out x -durable y",
		"-generate 5 -tick 1ms -durable y", "-generate 5 -http :0 -durable y",
	} {
		if _, err := parseFlags(strings.Fields(args), true, nil); err == nil {
			t.Errorf("%s is taken", args)
		}
	}
}

func TestRun_keeps_helpNamesItsFlags(t *testing.T) {
	o := program(t.Context(), nil, "-h", "-durable", "x")
	for _, want := range []string{"-in FILE", "-generate N", "-window TIME", "-durable DIR", "0 "} {
		if o.status != exitFine || !strings.Contains(o.stdout, "\n    "+want) {
			t.Errorf("the help does not say %q:\n%s", want, o.stdout)
		}
	}
	if strings.Contains(o.stdout, "-http") || strings.Contains(o.stdout, "-tick") {
		t.Errorf("the help names flags that it does not take:\n%s", o.stdout)
	}
}
