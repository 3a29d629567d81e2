// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/timewheel/timewheeltest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// In virtual time, the real nights around both changes of the clock. The third night, a Monday, is bad. On the day
// after the fourth, an operator makes the parked payout run.
func TestNights(t *testing.T) {
	for name, c := range map[string]struct {
		from time.Time // noon in Berlin
		want string
	}{
		"forward": {time.Date(2027, time.March, 26, 11, 0, 0, 0, time.UTC), `
Sat 27 Mar 2027 02:30:00 CET nightly/sales, attempt 1: done for 27 March
Sun 28 Mar 2027 03:00:00 CEST nightly/sales, attempt 1: done for 28 March
Mon 29 Mar 2027 02:30:00 CEST nightly/sales, attempt 1: the books are closed
Mon 29 Mar 2027 02:30:00 CEST nightly/sales, attempt 2: the books are closed
Mon 29 Mar 2027 02:30:00 CEST nightly/sales, attempt 3: the books are closed, given up
Tue 30 Mar 2027 02:30:00 CEST nightly/sales, attempt 1: done for 30 March
Wed 31 Mar 2027 02:30:00 CEST nightly/sales, attempt 1: done for 31 March
Sat 27 Mar 2027 03:00:00 CET nightly/payout, attempt 1: done for 27 March
Sun 28 Mar 2027 03:00:00 CEST nightly/payout, attempt 1: done for 28 March
Mon 29 Mar 2027 03:00:00 CEST nightly/payout, attempt 1: the books are closed
Mon 29 Mar 2027 03:00:00 CEST nightly/payout, attempt 2: the books are closed
Mon 29 Mar 2027 03:00:00 CEST nightly/payout, attempt 3: the books are closed, parked
Tue 30 Mar 2027 13:00:00 CEST nightly/payout, attempt 1: done for 30 March
Wed 31 Mar 2027 03:00:00 CEST nightly/payout, attempt 1: done for 31 March
`},
		"back": {time.Date(2027, time.October, 29, 10, 0, 0, 0, time.UTC), `
Sat 30 Oct 2027 02:30:00 CEST nightly/sales, attempt 1: done for 30 October
Sun 31 Oct 2027 02:30:00 CEST nightly/sales, attempt 1: done for 31 October
Mon 1 Nov 2027 02:30:00 CET nightly/sales, attempt 1: the books are closed
Mon 1 Nov 2027 02:30:00 CET nightly/sales, attempt 2: the books are closed
Mon 1 Nov 2027 02:30:00 CET nightly/sales, attempt 3: the books are closed, given up
Tue 2 Nov 2027 02:30:00 CET nightly/sales, attempt 1: done for 2 November
Wed 3 Nov 2027 02:30:00 CET nightly/sales, attempt 1: done for 3 November
Sat 30 Oct 2027 03:00:00 CEST nightly/payout, attempt 1: done for 30 October
Sun 31 Oct 2027 03:00:00 CET nightly/payout, attempt 1: done for 31 October
Mon 1 Nov 2027 03:00:00 CET nightly/payout, attempt 1: the books are closed
Mon 1 Nov 2027 03:00:00 CET nightly/payout, attempt 2: the books are closed
Mon 1 Nov 2027 03:00:00 CET nightly/payout, attempt 3: the books are closed, parked
Tue 2 Nov 2027 11:00:00 CET nightly/payout, attempt 1: done for 2 November
Wed 3 Nov 2027 03:00:00 CET nightly/payout, attempt 1: done for 3 November
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(c.from))
				var out strings.Builder
				bad := func(_ string, night time.Time) bool { return night.Weekday() == time.Monday }
				p, err := newProgram(t.Context(), memory.New().Engine(), &out, bad)
				check(t, err)
				check(t, errors.Join(p.deploy(t.Context(), 1, 0), p.tasks.Start()))
				timewheeltest.Advance(4 * 24 * time.Hour) // then it is 13 or 11 o'clock in Berlin
				check(t, p.tasks.Reschedule(t.Context(), prefix+"payout", 0))
				timewheeltest.Advance(24 * time.Hour)
				check(t, p.tasks.Shutdown(t.Context()))
				t.Log("\n" + out.String())
				var got []string
				for _, key := range []string{"/sales,", "/payout,"} {
					for line := range strings.Lines(out.String()) {
						if strings.Contains(line, key) {
							got = append(got, strings.TrimSpace(line))
						}
					}
				}
				want := strings.Split(strings.TrimSpace(c.want), "\n")
				if !slices.Equal(got, want) {
					t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), c.want)
				}
			})
		})
	}
}

// The commands of the package comment, in a directory and in PostgreSQL.
func TestRun(t *testing.T) {
	t.Run("directory", func(t *testing.T) { releases(t, "", filepath.Join(t.TempDir(), "tasks")) })
	t.Run("PostgreSQL", func(t *testing.T) {
		s, err := pgtest.Start()
		pgtest.Must(t, err)
		defer func() { check(t, s.Close()) }()
		releases(t, s.URL(), "")
	})
}

func releases(t *testing.T, db, dir string) {
	for i, want := range []string{
		"release 1: 3 added, 0 changed, 0 removed, 0 left alone",
		"release 1: 0 added, 0 changed, 0 removed, 3 left alone\n  nightly/payout",
		"release 2: 1 added, 1 changed, 1 removed, 1 left alone\n  nightly/payout",
		"release 1: 0 added, 0 changed, 0 removed, 0 left alone\nrelease 2 is newer\n  nightly/payout",
	} {
		var out strings.Builder
		check(t, run(t.Context(), &out, db, dir, []int64{1, 1, 2, 1}[i], time.Second/2))
		text := out.String()
		t.Log("\n" + text)
		failed, done := "nightly/sales, attempt 3: the books are closed, given up\n", "nightly/sales, attempt 1: done"
		if !strings.HasPrefix(text, want) || !strings.Contains(text, failed) || strings.Count(text, done) < 2 {
			t.Errorf("the output is not %q with a bad night and two good ones of sales", want)
		}
		if !strings.Contains(text, "Sun 28 Mar 2027 03:00:00 CEST\n") || strings.Count(text, "Sun 31 Oct 2027 02:30:00 CEST\n") != 1 {
			t.Error("the calendar is wrong")
		}
	}
}

// With the real nights, the program runs until it is interrupted. It leaves no directory.
func TestRun_interrupted(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp)
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		text := make([]byte, 1<<10)
		for n := 0; !strings.Contains(string(text[:n]), "the nights:"); n, _ = r.Read(text) {
		}
		interrupt()
		_, _ = io.Copy(io.Discard, r)
	}()
	check(t, run(ctx, w, "", "", 1, 0))
	check(t, w.Close())
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
