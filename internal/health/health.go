// SPDX-License-Identifier: MIT

// Package health judges the state of a wheel from readings of its statistics. The judgement is a pure function, so all
// views of a wheel agree.
package health

import (
	"fmt"
	"strconv"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	// TooLong is the wait for a worker from which a wheel counts as overloaded. A burst of short jobs ends sooner.
	TooLong = time.Second

	// Lately is how long missed runs and panics continue to be reported.
	Lately = 5 * time.Minute
)

// A Kind is a kind of finding.
type Kind string

// The kinds of findings, worst first.
const (
	Stopped    Kind = "stopped"    // the wheel is not running
	Overloaded Kind = "overloaded" // a run has waited for a worker for at least TooLong
	Panicked   Kind = "panicked"   // a job has panicked lately
	Missed     Kind = "missed"     // a run was missed recently
)

// A Reading is the state of a wheel at one moment.
type Reading struct {
	Time    time.Time
	Running bool // whether the wheel is started and not stopped
	Stats   timewheel.Stats
	Panics  []time.Time   // times of the last known panics, newest first
	CPUWait time.Duration // how long this process waits for a processor, if that is long
}

// A Finding describes a problem and when it began. Since is zero if unknown.
type Finding struct {
	Kind  Kind
	Since time.Time
	Text  string // one sentence without a full stop
}

// Judge returns the findings for the current reading, worst first. past contains earlier readings, oldest first. They
// show when a problem began, and which events are recent.
func Judge(now Reading, past []Reading) []Finding {
	var all []Finding
	for _, judge := range []func(Reading, []Reading) (Finding, bool){stopped, overloaded, panicked, missed} {
		if f, ok := judge(now, past); ok {
			all = append(all, f)
		}
	}
	return all
}

// Notes returns a note if the process of the wheel gets too little CPU.
func Notes(now Reading, past []Reading) []Finding {
	return starvedFor(now.CPUWait, func() time.Time {
		from := now.Time
		for i := len(past) - 1; i >= 0; i-- {
			if past[i].CPUWait == 0 {
				return from
			}
			from = past[i].Time
		}
		return time.Time{}
	})
}

// Well describes a reading without findings.
func Well(now Reading) string {
	return fmt.Sprintf("Working: %s, no run has waited for %s", busy(now.Stats), Span(TooLong))
}

// busy describes the runs in progress.
func busy(s timewheel.Stats) string {
	if s.Workers == 0 { // an executor provides the workers
		return count(s.Running, "run") + " in progress"
	}
	return fmt.Sprintf("%s of %s busy", number(s.Running), count(s.Workers, "worker"))
}

func stopped(now Reading, past []Reading) (f Finding, wrong bool) {
	if now.Running {
		return f, false
	}
	f.Kind = Stopped
	ran := now.Stats.Due > 0
	for i := len(past) - 1; i >= 0; i-- {
		if past[i].Running {
			ran = true
			break
		}
		f.Since = past[i].Time
	}
	switch {
	case !ran:
		f.Text = "Not started"
	case f.Since.IsZero(), past[0].Time.Equal(f.Since): // it was stopped before the first reading, or just now
		f.Since = time.Time{}
		f.Text = "Stopped"
	default:
		f.Text = "Stopped for " + Span(now.Time.Sub(f.Since))
	}
	if n := now.Stats.Pending; n > 0 {
		f.Text += fmt.Sprintf(": %s will not run", count(n, "task"))
	}
	return f, true
}

// isOverloaded reports whether a single reading shows an overload.
func isOverloaded(r Reading) bool {
	return r.Running && r.Stats.Waiting > 0 && r.Stats.OldestWait >= TooLong
}

func overloaded(now Reading, past []Reading) (f Finding, wrong bool) {
	if !isOverloaded(now) {
		return f, false
	}
	s := now.Stats
	since := now.Time.Add(-s.OldestWait)
	idle := now.Time // the time since which no run has started
	for i := len(past) - 1; i >= 0 && isOverloaded(past[i]); i-- {
		if began := past[i].Time.Add(-past[i].Stats.OldestWait); began.Before(since) {
			since = began
		}
	}
	for i := len(past) - 1; i >= 0 && past[i].Stats.Started == s.Started && past[i].Time.After(since); i-- {
		idle = past[i].Time
	}
	text := fmt.Sprintf("Overloaded for %s: %s, %s, the oldest for %s",
		Span(now.Time.Sub(since)), busy(s), waits(s.Waiting), Span(s.OldestWait))
	if d := now.Time.Sub(idle); d >= TooLong {
		text += fmt.Sprintf("; none has started for %s", Span(d))
	}
	return Finding{Overloaded, since, text}, true
}

func panicked(now Reading, past []Reading) (Finding, bool) {
	n, first, latest := lately(now, past, func(s timewheel.Stats) uint64 { return s.Panicked })
	if known := uint64(len(now.Panics)); n > 0 && known > 0 {
		latest = now.Panics[0]
		if n <= known {
			first = now.Panics[n-1]
		}
	}
	return Finding{Panicked, first, fmt.Sprintf("%s panicked in the last %s, the latest %s",
		count(n, "job"), Span(Lately), ago(now.Time.Sub(latest)))}, n > 0
}

func missed(now Reading, past []Reading) (Finding, bool) {
	n, first, latest := lately(now, past, func(s timewheel.Stats) uint64 { return s.Missed })
	return Finding{Missed, first, fmt.Sprintf("%s missed in the last %s, the latest %s",
		count(n, "run"), Span(Lately), ago(now.Time.Sub(latest)))}, n > 0
}

// lately returns by how much a counter has grown lately, and the times of the first and last readings that show the
// growth.
func lately(now Reading, past []Reading, of func(timewheel.Stats) uint64) (n uint64, first, latest time.Time) {
	from := now.Time.Add(-Lately)
	for i := len(past) - 1; i >= 0; i-- {
		if after := of(now.Stats) - of(past[i].Stats); after > n {
			n, first = after, now.Time
			if i+1 < len(past) {
				first = past[i+1].Time
			}
			if latest.IsZero() {
				latest = first
			}
		}
		if past[i].Time.Before(from) {
			break
		}
	}
	return n, first, latest
}

func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return Span(d) + " ago"
}

func waits(n int) string {
	if n == 1 {
		return "1 run waits"
	}
	return number(n) + " runs wait"
}

func count[N int | uint64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return number(n) + " " + what
}

// number formats 1204 as "1,204" and 12345678 as "12.35 M". The page uses the same format.
func number[N int | uint64](n N) string {
	if n >= 1e7 {
		power := -1
		short, _ := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'e', 3, 64), 64)
		for ; short >= 1000; power++ {
			short /= 1000
		}
		return strconv.FormatFloat(short, 'g', 4, 64) + " " + "kMGTPE"[power:power+1]
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Span formats a duration the way people say it: "300 ms", "41 s", "2 m 5 s", "3 h 10 m", "4 d 2 h".
func Span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds())
	}
	s := int(d.Seconds())
	units := []struct {
		n    int
		name string
	}{{s / 86400, "d"}, {s / 3600 % 24, "h"}, {s / 60 % 60, "m"}, {s % 60, "s"}}
	for i, u := range units {
		if u.n == 0 {
			continue
		}
		text := fmt.Sprintf("%s %s", number(u.n), u.name)
		if i+1 < len(units) && units[i+1].n > 0 {
			text += fmt.Sprintf(" %d %s", units[i+1].n, units[i+1].name)
		}
		return text
	}
	return "0 s"
}
