// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestKeys_thatAreShown_canBeGiven(t *testing.T) {
	for key, shown := range map[string]string{
		"order:42": "order:42", "a b": "a b", "größe 大": "größe 大", " x": `" x"`, "": `""`, `"`: `"\""`,
		"a\n":  `"a\n"`,
		"\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`, `say "hi"`: `say "hi"`, "\x1b[31m": `"\x1b[31m"`,
	} {
		if got := quoteText(key); got != shown {
			t.Errorf("%q is shown as %s, want %s", key, got, shown)
		}
		if got, err := unquoteText(shown); err != nil || got != key {
			t.Errorf("%s is read as %q, %v, want %q", shown, got, err, key)
		}
	}
}

func FuzzKeys_thatAreShown_canBeGiven(f *testing.F) {
	f.Add("order:42")
	f.Add("\xff\"\n")
	f.Fuzz(func(t *testing.T, key string) {
		shown := quoteText(key)
		if strings.ContainsAny(shown, "\n\r\x1b\x00") {
			t.Errorf("%q is shown as %q", key, shown)
		}
		if got, err := unquoteText(shown); err != nil || got != key {
			t.Errorf("%s is read as %q, %v, want %q", shown, got, err, key)
		}
		if got := cut(shown, 10); cells(got) > 10 {
			t.Errorf("%q is cut to %q, of %d columns", shown, got, cells(got))
		}
	})
}

func TestNumbersAndTimes(t *testing.T) {
	for n, want := range map[int]string{0: "0 tasks", 1: "1 task", 999: "999 tasks", 1204: "1,204 tasks",
		1234567: "1,234,567 tasks", -1204: "-1,204 tasks"} {
		if got := count(n, "task"); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "now", time.Microsecond: "now", 350 * time.Millisecond: "in 350ms", 12 * time.Second: "in 12s",
		4*time.Minute + 12*time.Second: "in 4m12s", 4 * time.Minute: "in 4m", 3*time.Hour + 5*time.Minute: "in 3h5m",
		12*day + 4*time.Hour: "in 12d4h", 400 * day: "in 400d", -time.Minute: "1m ago",
		59*time.Minute + 59*time.Second + 999*time.Millisecond: "in 59m59s",
	} {
		if got := distance(now.Add(d), now); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestTable_fitsTheTerminal(t *testing.T) {
	full := table{columns: []column{{title: "KEY", least: 6}, {title: "N", right: true}, {title: "ERROR", least: 5}}}
	full.add("大きさ大きさ", "1,204", "connection refused by the server")
	full.add("short", "7", "")
	for _, width := range []int{0, 120, 60, 40, 24, 20, 5} {
		var b strings.Builder
		full.write(&b, width)
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if width >= 20 && cells(line) > width || strings.HasSuffix(line, " ") {
				t.Errorf("in %d columns there is the line %q of %d", width, line, cells(line))
			}
		}
		if !strings.Contains(b.String(), "1,204") || width == 0 && strings.Contains(b.String(), "…") {
			t.Errorf("in %d columns:\n%s", width, &b)
		}
	}
}

func TestPayload_isTextOrHexadecimal(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		want    string
	}{
		"text":      {"one\n\ttwo", "  one\n  \ttwo"},
		"bytes":     {"\x00\x01", "  00000000  00 01                                             |..|"},
		"an escape": {"\x1b[2J", "  00000000  1b 5b 32 4a                                       |.[2J|"},
		"cut in a character": {strings.Repeat("a", mostPayload-1) + "ä.",
			"  " + strings.Repeat("a", mostPayload-1) + "\n  … and 3 bytes more"},
		"cut, and of no text": {"\xff" + strings.Repeat("a", mostPayload), "… and 1 byte more"},
	} {
		if got := payloadText([]byte(c.payload)); got != c.want && (len(c.want) > 20 || !strings.HasSuffix(got, c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestComplete(t *testing.T) {
	r := &rig{T: t}
	for line, want := range map[string][]string{
		"r":                     {"run-now", "reschedule", "resume", "resume-kind", "rm"},
		"help st":               {"stats"},
		"ls -st":                {"-state"},
		"ls -state ":            stateNames(),
		"ls -state p":           {"parked", "paused"},
		"ls --state p":          {"parked", "paused"},
		"ls -dir /t":            {files},
		"stats -by ":            countedBy,
		"ls -prefix ":           nil,
		"ls -json -ki":          {"-kind"},
		"ls ":                   nil,
		"unpark -sta":           nil,
		"completion ":           shells,
		"completion z":          {"zsh"},
		"import ta":             {files},
		"import -replace ta":    {files},
		"import -- -":           {files},
		"nothing -":             nil,
		"backup -url x -dir ":   {files},
		"migrate -print -clust": {"-cluster"},
	} {
		got := r.run(append([]string{completeCommand}, strings.Split(line, " ")...)...)
		if lines := strings.Fields(got.out); got.code != done || !slices.Equal(lines, want) {
			t.Errorf("%q is completed to %q, want %q", line, lines, want)
		}
	}
}

// Each installed shell completes command lines with its script. The program is the test binary.
func TestCompletion_inTheShells(t *testing.T) {
	self, err := os.Executable()
	check(t, err)
	bin := t.TempDir()
	check(t, os.Symlink(self, filepath.Join(bin, "timewheel")))
	for shell, c := range map[string]struct{ args, words string }{
		"bash": {"--norc", `source <(timewheel completion bash)
			try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _timewheel; echo "${COMPREPLY[@]}"; }
			try timewheel unp; try timewheel ls -state par; try timewheel ls -after ""; try timewheel completion f`},
		"zsh": {"-f", `compdef() {}; compadd() { shift; echo ${(M)@:#${words[CURRENT]}*} }; _files() { echo files }
			source <(timewheel completion zsh)
			try() { words=("$@"); CURRENT=$#; _timewheel || echo }
			try timewheel unp; try timewheel ls -state par; try timewheel ls -after ""; try timewheel completion f`},
		"fish": {"--no-config", `timewheel completion fish | source
			complete -C "timewheel unp"; complete -C "timewheel ls -state par"; echo (complete -C "timewheel ls -after ")
			complete -C "timewheel completion f"`},
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			cmd := exec.Command(path, c.args, "-c", c.words)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TIMEWHEEL_TEST_MAIN=1")
			out, err := cmd.CombinedOutput()
			if want := "unpark\nparked\n\nfish\n"; err != nil || string(out) != want {
				t.Errorf("%v:\n%s\nwant\n%s", err, out, want)
			}
		})
	}
}
