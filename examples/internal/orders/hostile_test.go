// SPDX-License-Identifier: MIT

package orders

import (
	"bufio"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"unicode"
	"unicode/utf8"
)

// Ids and SKUs are anybody's text: what is printed of them steers no terminal, ends no line and widens no
// table.
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

// A program that is asked to terminate, as in a container, reports what was done until then.
func TestMain_terminated_reportsWhatWasDone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	cmd := process("-generate", "1000000", "-http", "127.0.0.1:0")
	var out strings.Builder
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.HasPrefix(line, "the wheel: ") {
		t.Errorf("it does not work: %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{"Interrupted.", "Everything balances."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, out.String())
		}
	}
}
