// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// An incident is a fault, and the reports that must appear.
type incident struct {
	name  string
	on    []backend
	seeds []string             // tasks overdue when the processes start
	begin func(s *scene) error // starts the fault; after seeds the processes have just started
	after time.Duration        // how long after begin the fault can be known
	seen  view                 // must appear within trueWithin after that, and stay until the end
	holds time.Duration        // how long it must stay; longer if an alert takes longer
	never string               // regexp for the kinds of findings that would be false at any time
	also  func(s *scene) error // an additional check before the end, or nil
	end   func(s *scene) error // ends the fault, or nil
	stays string               // regexp for the kinds of findings that the page promises to keep for a while
	keeps []string             // alerts whose expressions keep a result for a while
}

const (
	trueWithin = 3 * time.Second
	goneWithin = 15 * time.Second
)

// A view describes the expected reports of the page, the metrics, the alerts and the command.
type view struct {
	headline string // regexp for the kind of the first finding of the first process; well means none
	says     string // regexp for its text, or for the text when all is well
	others   string // headline of the other processes; empty means the same as the first
	note     string // regexp for the text of a note; empty if none is needed

	metrics []string      // expressions that have a result
	alerts  []string      // alerts whose expressions have a result
	alarm   time.Duration // how much later than the page the alerts may appear
	may     []string      // other alerts whose expressions may have a result

	asks []question // none on a wheel and on a store, which its process has open
}

// A question is a call of the command.
type question struct {
	args   []string
	prints string // regexp for its output
	fails  bool
}

// A reading contains the relevant parts of the JSON of a page.
type reading struct {
	Health struct {
		Well     bool
		Text     string
		Findings []finding
		Notes    []finding
	}
}

type finding struct{ Kind, Text string }

func (r reading) kind() string {
	if len(r.Health.Findings) == 0 {
		return "well"
	}
	return r.Health.Findings[0].Kind
}

func (r reading) String() string {
	text := r.kind() + ": " + r.Health.Text
	for _, f := range r.Health.Findings[min(len(r.Health.Findings), 1):] {
		text += "; " + f.Kind + ": " + f.Text
	}
	for _, n := range r.Health.Notes {
		text += "; note: " + n.Text
	}
	return text
}

// matches reports whether the text contains a match of the pattern.
func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// isKind reports whether the pattern matches the kind. An empty pattern matches none.
func isKind(pattern, kind string) bool {
	return pattern != "" && matches("^(?:"+pattern+")$", kind)
}

// wrong returns the first difference between the page of a process and the view, or "".
func (v view) wrong(r reading, first bool) string {
	want := v.headline
	if !first && v.others != "" {
		want = v.others
	}
	switch {
	case !isKind(want, r.kind()):
		return fmt.Sprintf("the headline is not %s, but %v", want, r)
	case first && !matches(v.says, r.Health.Text):
		return fmt.Sprintf("the headline does not say %q: %v", v.says, r)
	case v.note != "" && !slices.ContainsFunc(r.Health.Notes, func(n finding) bool { return matches(v.note, n.Text) }):
		return fmt.Sprintf("no note says %q: %v", v.note, r)
	}
	return ""
}

// A moment contains the readings of all processes at one time.
type moment struct {
	asked  time.Time // the pages
	names  []string  // names of the processes, in order
	pages  map[string]reading
	silent map[string]error // processes whose page does not answer
	alerts []string
	lacks  []string // expressions of the view that have no result
}

// pageTime is the time limit of a page.
const pageTime = 5 * time.Second

// pages reads the pages of all processes.
func (s *scene) pages(ctx context.Context) moment {
	m := moment{asked: time.Now(), pages: make(map[string]reading), silent: make(map[string]error)}
	var mu sync.Mutex // protects the maps
	var all sync.WaitGroup
	what := "scheduler"
	if s.on == wheel {
		what = "wheel"
	}
	for _, p := range s.all() {
		m.names = append(m.names, p.Name)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pageTime)
			defer cancel()
			var r reading
			err := s.get(ctx, "http://"+p.addr+page+"api/"+what+"?after=1000000000", &r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				m.silent[p.Name] = err
			} else {
				m.pages[p.Name] = r
			}
		})
	}
	all.Wait()
	return m
}

// read reads all pages, and evaluates the rules and the expressions.
func (s *scene) read(ctx context.Context, exprs []string) (m moment, err error) {
	m = s.pages(ctx)
	if m.alerts, err = s.past.alerts(ctx); err != nil {
		return m, err
	}
	for _, expr := range exprs {
		is, err := s.past.holds(ctx, expr)
		if err != nil {
			return m, err
		}
		if !is {
			m.lacks = append(m.lacks, expr)
		}
	}
	return m, nil
}

// wrong returns the differences between the pages and the view.
func (m moment) wrong(v view) (all []string) {
	for i, name := range m.names {
		if err := m.silent[name]; err != nil {
			all = append(all, fmt.Sprintf("the page of %s does not answer: %v", name, err))
		} else if text := v.wrong(m.pages[name], i == 0); text != "" {
			all = append(all, "page of "+name+": "+text)
		}
	}
	return all
}

// missing returns the alerts of the view that are not in the moment.
func (m moment) missing(v view) []string {
	return slices.DeleteFunc(slices.Clone(v.alerts), func(a string) bool { return slices.Contains(m.alerts, a) })
}

// false returns the alerts of the moment that are not in the view.
func (m moment) false(v view) []string {
	return slices.DeleteFunc(slices.Clone(m.alerts), func(a string) bool {
		return slices.Contains(v.alerts, a) || slices.Contains(v.may, a)
	})
}

// healthy is the view without trouble.
var healthy = view{headline: "well", says: "^Working"}

// replay replays an incident.
func (w *world) replay(ctx context.Context, i incident, on backend) (r result) {
	s, err := w.stage(ctx, on)
	if errors.Is(err, pgtest.ErrNotInstalled) {
		return result{skipped: err.Error()}
	}
	if err != nil {
		r.fail("%v", err)
		return r
	}
	defer func() {
		if err := s.strike(); err != nil {
			r.fail("the end of the processes: %v", err)
		}
	}()
	done, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { s.scrapeAll(done) })
	said, contrary := "", []string(nil)
	watching.Go(func() { contrary = s.watchTruth(done) })
	watching.Go(func() { said = s.falseFinding(done, i.never) })
	err = s.play(ctx, i, &r)
	stop()
	watching.Wait()
	if said != "" {
		r.fail("false: %s", said)
	}
	for _, text := range contrary {
		r.fail("contradiction: %s", text)
	}
	if errors.Is(err, errCannot) {
		r.skipped = err.Error()
	} else if err != nil {
		r.fail("%v", err)
	}
	return r
}

// errCannot is the error of an incident that this machine cannot replay.
var errCannot = errors.New("cannot be replayed here")

// falseFinding reads all pages until ctx is done, or until a page has a finding of one of the kinds, which it returns.
func (s *scene) falseFinding(ctx context.Context, never string) string {
	if never == "" {
		return ""
	}
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		m := s.pages(ctx)
		for _, name := range slices.Sorted(maps.Keys(m.pages)) {
			for _, f := range m.pages[name].Health.Findings {
				if isKind(never, f.Kind) {
					return fmt.Sprintf("page of %s: %s: %s", name, f.Kind, f.Text)
				}
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ""
		}
	}
}

const (
	// readEvery is the pause between two readings of the pages.
	readEvery = 300 * time.Millisecond

	// falseFor is how long an alert's expression may have a false result. An alert itself needs longer to fire, unless
	// it watches a condition that does not change quickly.
	falseFor = 5 * time.Second
)

// scrapeAll scrapes all processes until ctx is done.
func (s *scene) scrapeAll(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	busy := make(map[string]chan struct{}) // by process; full while the process is scraped
	ticker := time.NewTicker(scrapeEvery)
	defer ticker.Stop()
	for {
		if s.prom != nil {
			_ = s.prom.scrape(s.all())
		}
		for _, p := range s.all() {
			if busy[p.Name] == nil {
				busy[p.Name] = make(chan struct{}, 1)
			}
			scrape := busy[p.Name]
			select {
			case scrape <- struct{}{}:
			default:
				continue
			}
			all.Go(func() {
				defer func() { <-scrape }()
				limit, cancel := context.WithTimeout(ctx, 2*pageTime)
				defer cancel()
				_ = s.past.scrape(limit, s.http, p.addr, p.Name) // a process that has ended exports nothing
			})
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// play plays an incident.
func (s *scene) play(ctx context.Context, i incident, r *result) error {
	if len(i.seeds) > 0 {
		if err := s.seed(i.seeds...); err != nil {
			return err
		}
	}
	if err := s.start(); err != nil {
		return err
	}
	if len(i.seeds) == 0 {
		before := healthy
		if s.on == two || s.on == stuck {
			before.says += ".* 2 nodes"
		}
		_, wrong, err := s.until(ctx, before, time.Now().Add(patience), "")
		if wrong != nil {
			err = fmt.Errorf("before the incident: %s", strings.Join(wrong, ", "))
		}
		if err != nil {
			return err
		}
	}
	if i.begin != nil {
		if err := i.begin(s); err != nil {
			return err
		}
	}
	known := time.Now().Add(i.after)
	if err := s.hold(ctx, i, known, r); err != nil {
		return err
	}
	if err := s.untilFiring(ctx, i.seen.alerts, i.seen.may, longestFor+patience, r); err != nil {
		return err
	}
	if i.also != nil {
		if err := i.also(s); err != nil {
			r.fail("%v", err)
		}
	}
	if s.on.onPostgres() {
		for _, q := range i.seen.asks {
			s.check(ctx, q, r)
		}
	}
	if i.end != nil {
		if err := i.end(s); err != nil {
			return err
		}
	}
	ended := time.Now()
	v := healthy
	v.may = i.keeps
	at, wrong, err := s.until(ctx, v, ended.Add(s.gone), i.stays)
	if err != nil {
		return err
	}
	if r.isGone = max(at.Sub(ended), time.Millisecond); wrong != nil {
		r.isGone = 0
		for _, text := range wrong {
			r.fail("%v after the end: %s", s.gone, text)
		}
	}
	return s.untilFiring(ctx, nil, i.keeps, time.Until(ended.Add(s.gone)), r)
}

// hold reads until the view is true, and then for as long as it must stay true.
func (s *scene) hold(ctx context.Context, i incident, known time.Time, r *result) error {
	said := make(map[string]bool) // reported differences, without their numbers
	fail := func(after time.Duration, text string) {
		if kind := numbers.ReplaceAllString(text, "#"); !said[kind] && len(said) < 5 {
			said[kind] = true
			r.fail("after %.1f s: %s", after.Seconds(), text)
		}
	}
	since := make(map[string]time.Time) // when each false alert began
	alarmed := len(i.seen.alerts) == 0
	for {
		m, err := s.read(ctx, i.seen.metrics)
		if err != nil {
			return err
		}
		after := m.asked.Sub(known)
		wrong := m.wrong(i.seen)
		if len(wrong) == 0 && len(m.lacks) == 0 && r.isTrue == 0 {
			r.isTrue = max(after, time.Millisecond)
		}
		if after >= s.within {
			for _, text := range wrong {
				fail(after, text)
			}
		}
		if after >= s.within+scrapeEvery {
			for _, expr := range m.lacks {
				fail(after, "metrics: not so: "+expr)
			}
		}
		untrue := m.false(i.seen)
		maps.DeleteFunc(since, func(alert string, _ time.Time) bool { return !slices.Contains(untrue, alert) })
		for _, alert := range untrue {
			if _, ok := since[alert]; !ok {
				since[alert] = m.asked
			} else if m.asked.Sub(since[alert]) > falseFor {
				fail(after, "a false alert: "+alert)
			}
		}
		if missing := m.missing(i.seen); len(missing) == 0 {
			alarmed = true
		} else if !alarmed && after >= i.seen.alarm+s.within+scrapeEvery {
			fail(after, "no alert "+strings.Join(missing, ", "))
		}
		late := after >= max(i.holds, i.seen.alarm)+s.within+s.gone // to find out how late it becomes true
		if after >= max(i.holds, trueWithin) && (late || alarmed && r.isTrue > 0) {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// numbers matches the numbers of a text, with the units after them.
var numbers = regexp.MustCompile(`just now|[0-9]+[0-9,.]*( (µs|ms|s|min|h)\b)?( ago)?`)

// until reads until the view is true, except for findings of the kinds that may stay. It returns that time, or all
// differences until the deadline, each as it was last.
func (s *scene) until(ctx context.Context, v view, deadline time.Time, stays string) (time.Time, []string, error) {
	began := time.Now()
	said := make(map[string]string) // differences, by their text without numbers
	for {
		m, err := s.read(ctx, v.metrics)
		if err != nil {
			return m.asked, nil, err
		}
		for name, r := range m.pages {
			n := len(r.Health.Findings)
			r.Health.Findings = slices.DeleteFunc(r.Health.Findings, func(f finding) bool { return isKind(stays, f.Kind) })
			if n > 0 && len(r.Health.Findings) == 0 {
				r.Health.Text = "Working"
			}
			m.pages[name] = r
		}
		wrong := m.wrong(v)
		for _, alert := range m.false(v) {
			wrong = append(wrong, "alert: "+alert)
		}
		if wrong == nil {
			return m.asked, nil, nil
		}
		for _, text := range wrong {
			said[numbers.ReplaceAllString(text, "#")] = fmt.Sprintf("%s (%.1f s)", text, m.asked.Sub(began).Seconds())
		}
		if m.asked.After(deadline) {
			return m.asked, slices.Sorted(maps.Values(said)), nil
		}
		if err := pause(ctx); err != nil {
			return m.asked, nil, err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(readEvery):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check calls the command.
func (s *scene) check(ctx context.Context, q question, r *result) {
	began := time.Now()
	out, status := s.ask(ctx, q.args...)
	what := "timewheel " + strings.Join(q.args, " ")
	switch {
	case time.Since(began) > commandTime:
		r.fail("%s has not ended after %v: %.300q", what, commandTime, out)
	case (status != 0) != q.fails:
		r.fail("%s ends with status %d: %.300q", what, status, out)
	case !matches(q.prints, out):
		r.fail("%s does not print %q: %.300q", what, q.prints, out)
	}
}
