// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A sight holds the statements of all processes at one time, and the facts. While an engine hangs, it takes seconds.
type sight struct {
	asked   time.Time          // when the processes were asked
	at      time.Time          // when all had answered
	pages   map[string]reading // of the processes whose page answers
	away    map[string]bool    // what their metrics say of the engine; absent if they say nothing
	orphans map[string]bool    // whether their metrics say that due tasks have no handler; absent likewise
	began   map[string]int     // runs that have begun, by the handlers' own counters
	steady  bool               // tasks fall due all the time on each process
	overdue int                // the overdue tasks that the command finds; negative if unknown
}

// nothingFor is the time without a start after which nothing starts.
const nothingFor = 3 * time.Second

// A truth finds contradictions in a series of sights.
type truth struct {
	within time.Duration // how long sayings may contradict each other or the truth

	past  []sight
	since map[string]time.Time // when each contradiction began
	found []string             // contradictions that lasted for longer
}

// add adds a sight.
func (t *truth) add(s sight) {
	now := t.contradictions(s)
	maps.DeleteFunc(t.since, func(what string, _ time.Time) bool { return now[what] == "" })
	if t.since == nil {
		t.since = make(map[string]time.Time)
	}
	for what, text := range now {
		if _, known := t.since[what]; !known {
			t.since[what] = s.at
		}
		if d := s.asked.Sub(t.since[what]); d > t.within && !slices.ContainsFunc(t.found, func(f string) bool { return strings.HasPrefix(f, what) }) {
			t.found = append(t.found, fmt.Sprintf("%s, for %.1f s: %s", what, d.Seconds(), text))
		}
	}
	t.past = append(t.past, s)
}

// started returns how many runs have begun on a process within nothingFor. known is false if the process is younger.
func (t *truth) started(s sight, name string) (n int, known bool) {
	for _, was := range slices.Backward(t.past) {
		if s.at.Sub(was.at) >= nothingFor {
			began, ok := was.began[name]
			return s.began[name] - began, ok
		}
	}
	return 0, false
}

var (
	saysNothing  = regexp.MustCompile(`nothing starts|nothing has run|none has started`)
	saysTakeOver = regexp.MustCompile(`other nodes take over`)
)

// contradictions returns the contradictions in a sight, each with an example.
func (t *truth) contradictions(s sight) map[string]string {
	all := make(map[string]string)
	nothing := len(s.began) > 0 // nothing has begun anywhere
	for name := range s.began {
		n, known := t.started(s, name)
		nothing = nothing && known && n == 0
	}
	for name, page := range s.pages {
		text := page.String()
		well := page.Health.Well && len(page.Health.Notes) == 0
		if well && s.overdue > 0 {
			all["the command finds overdue tasks, and the page of "+name+" is calm"] = fmt.Sprintf("%d tasks", s.overdue)
		}
		if well && s.steady && nothing {
			all["the page of "+name+" is calm, and nothing starts anywhere"] = text
		}
		if n, known := t.started(s, name); known && n > 0 && saysNothing.MatchString(page.Health.Text) {
			all["the page of "+name+" says that nothing starts, and runs begin there"] = fmt.Sprintf("%d runs in %v: %s", n, nothingFor, text)
		}
		if saysTakeOver.MatchString(text) && s.steady && nothing {
			all["the page of "+name+" says that other nodes take over, and nothing starts anywhere"] = text
		}
		says := func(kinds ...string) bool {
			return slices.ContainsFunc(page.Health.Findings, func(f finding) bool { return slices.Contains(kinds, f.Kind) })
		}
		switch orphans, known := s.orphans[name]; {
		case known && orphans && !says("unhandled", "drained", "away", "unread", "failed"):
			all["the metrics of "+name+" say that due tasks have no handler, and its page does not"] = text
		case known && !orphans && says("unhandled"):
			all["the page of "+name+" says that due tasks have no handler, and its metrics do not"] = text
		}
		said := says("away")
		switch away, known := s.away[name]; { // their answers may be of different times, so they may differ once in each direction
		case known && away && !said:
			all["the metrics of "+name+" say that the engine is away, and its page does not"] = text
		case known && !away && said:
			all["the page of "+name+" says that the engine is away, and its metrics do not"] = text
		}
	}
	return all
}

// watchTruth watches all processes until ctx is done, and returns the contradictions.
func (s *scene) watchTruth(ctx context.Context) []string {
	t := truth{within: s.within}
	var overdue atomic.Int64
	overdue.Store(-1)
	var asking sync.WaitGroup
	defer asking.Wait()
	if s.on.onPostgres() {
		asking.Go(func() {
			for pause(ctx) == nil {
				overdue.Store(s.askOverdue(ctx))
				_, _ = pause(ctx), pause(ctx)
			}
		})
	}
	for pause(ctx) == nil {
		t.add(s.sight(ctx, int(overdue.Load())))
	}
	return t.found
}

// sight asks all processes at the same time.
func (s *scene) sight(ctx context.Context, overdue int) sight {
	now := sight{
		asked: time.Now(), away: make(map[string]bool), orphans: make(map[string]bool), began: make(map[string]int), steady: s.steady.Load(), overdue: overdue,
	}
	var mu sync.Mutex // protects the maps
	var all sync.WaitGroup
	for _, p := range s.all() {
		all.Go(func() {
			var c counts
			err := s.get(ctx, "http://"+p.addr+"/counts", &c)
			metrics := s.metricsOf(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				now.began[p.Name] = c.Began
			}
			if found := engineIsAway.FindSubmatch(metrics); found != nil {
				now.away[p.Name] = string(found[1]) == "1"
			}
			for _, found := range unhandledFor.FindAllSubmatch(metrics, -1) {
				seconds, err := strconv.ParseFloat(string(found[1]), 64)
				now.orphans[p.Name] = now.orphans[p.Name] || err == nil && seconds > 0
			}
		})
	}
	now.pages = s.pages(ctx).pages
	all.Wait()
	now.at = time.Now()
	return now
}

// askOverdue returns how many overdue tasks the command finds, or a negative number if it does not say.
func (s *scene) askOverdue(ctx context.Context) int64 {
	out, status := s.ask(ctx, "stats", "-json")
	var said struct{ Overdue *struct{ Tasks int64 } }
	if status != 0 || json.Unmarshal([]byte(out), &said) != nil {
		return -1
	}
	if said.Overdue == nil {
		return 0
	}
	return said.Overdue.Tasks
}

var (
	engineIsAway = regexp.MustCompile(`(?m)^timewheel_durable_engine_away\{[^}]*\} ([01])$`)
	unhandledFor = regexp.MustCompile(`(?m)^timewheel_durable_kind_unhandled_seconds\{[^}]*\} (\S+)$`)
)

// metricsOf returns the metrics of a process, or nothing.
func (s *scene) metricsOf(ctx context.Context, p *process) []byte {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	text, _, err := metricsOf(ctx, s.http, p.addr)
	if err != nil {
		return nil
	}
	return text
}
