// SPDX-License-Identifier: MIT

package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// call is one webhook, of task i.
func (l *load) call(i int, due time.Time) {
	r := httptest.NewRequest("POST", "/", strings.NewReader("payload"))
	r.Header.Set("Timewheel-Key", strconv.Itoa(i))
	r.Header.Set("Timewheel-Due", due.Format(time.RFC3339Nano))
	l.ServeHTTP(httptest.NewRecorder(), r)
}

// The account notices each fault of a service.
func TestReport(t *testing.T) {
	service := exec.Command(os.Args[0], "-test.run=^$")
	if err := service.Run(); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		calls []int         // the tasks called
		late  time.Duration // of each
		want  string
	}{
		"all well":        {[]int{2, 0, 1}, time.Second, ""},
		"nothing called":  {nil, 0, "no webhook was called"},
		"a task lost":     {[]int{0, 2}, time.Second, "1 tasks were not called"},
		"a task twice":    {[]int{0, 1, 1, 2}, time.Second, "1 tasks were called twice: task 1 after "},
		"a task early":    {[]int{0, 1, 2}, -time.Hour, "early"},
		"most tasks late": {[]int{0, 1, 2}, 2 * time.Hour, "the 99th percentile is above 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 3
			l := &load{bound: time.Hour, batch: 1, called: make([]time.Time, n), complete: make(chan bool), left: n}
			for _, i := range of.calls {
				l.call(i, time.Now().Add(-of.late))
			}
			switch err := l.report(n, time.Second, service.ProcessState); {
			case of.want == "" && err != nil:
				t.Error(err)
			case of.want != "" && (err == nil || !strings.Contains(err.Error(), of.want)):
				t.Errorf("the error is %v, want %q", err, of.want)
			}
		})
	}
}

// A small load passes through a service, in batches and one by one.
func TestLoad(t *testing.T) {
	command, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []int{1, 50} {
		l := &load{rate: 200, time: time.Second / 2, batch: batch, callers: 4, lead: time.Second / 2, bound: time.Hour, payload: 100}
		if err := l.measure(t.Context(), command, t.TempDir()); err != nil {
			t.Errorf("batch %d: %v", batch, err)
		}
	}
}
