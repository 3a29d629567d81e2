// SPDX-License-Identifier: MIT

package orders

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"
)

// Ids and SKUs are untrusted text: when printed they do not control the terminal, break lines or widen tables.
func TestRun_hostileIDsAndSKUs_arePrintedEscapedAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const at, paid = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
		line := func(id, sku string) string {
			return `{"order":"` + id + `","sku":"` + sku + `","quantity":1,"at":"` + at + `","paid_at":"` + paid + `"}` + "\n"
		}
		text := line(`A\u001b[2J\r\n1`, "TEA") + line(`A\u001b[2J\r\n1`, "TEA") + // twice, which is reported
			line("A-2", `\u001b]0;owned\u0007`) + line("A-3", strings.Repeat("W", 500)) + line("A-4", `\u202eAET`) +
			"\x1b[31mnot JSON\n"
		o := program(t.Context(), strings.NewReader(text), "-in", "-")
		o.want(t, exitMalformed)
		for _, out := range []string{o.stdout, o.stderr} {
			for i, r := range out {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Fatalf("character %d, %q, is printed:\n%q", i, r, out)
				}
			}
		}
		for _, want := range []string{`\x1b]0;owned\a`, `\u202eAET`, "WWW…"} {
			if !strings.Contains(o.stdout, want) {
				t.Errorf("%q is not in the report:\n%s", want, o.stdout)
			}
		}
		if !strings.Contains(o.stderr, `order A\x1b[2J\r\n1 is on line 1 already`) {
			t.Errorf("standard error: %q", o.stderr)
		}
		_, ledger, _ := strings.Cut(o.stdout, "Ledger")
		ledger, _, _ = strings.Cut(ledger, "\n\n")
		width := 0
		for row := range strings.Lines(ledger) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(row, "\n")); strings.Contains(row, " = ") {
				if width == 0 {
					width = n
				}
				if n != width || n > 100 {
					t.Errorf("one row has %d characters and another %d:\n%s", n, width, ledger)
				}
			}
		}
	})
}

// A program that is interrupted, or asked to terminate as in a container, reports its results so far.
func TestMain_signal_reportsWhatWasDone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signal can be sent")
	}
	kept := filepath.Join(t.TempDir(), "shop")
	for _, c := range []struct {
		sig  syscall.Signal
		args string
	}{
		{syscall.SIGINT, "-generate 1000000 -http 127.0.0.1:0"},
		{syscall.SIGTERM, "-generate 1000000 -http 127.0.0.1:0"},
		{syscall.SIGINT, "-generate 100000 -durable " + kept},
	} {
		cmd := process(strings.Fields(c.args)...)
		var out strings.Builder
		cmd.Stdout = &out
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
		if strings.Contains(c.args, kept) {
			awaitBook(t, kept)
		} else if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.HasPrefix(line, "the wheel: ") {
			t.Errorf("it does not work: %q, %v", line, err)
		}
		if err := cmd.Process.Signal(c.sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v ended it with %v", c.args, c.sig, err)
		}
		for _, want := range []string{"Interrupted.", "Everything balances."} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in the report:\n%s", want, out.String())
			}
		}
	}
}

// awaitBook waits until the program has opened its book.
func awaitBook(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(filepath.Join(dir, "book.jsonl")); err == nil && info.Size() > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the book is not there")
		}
	}
}
