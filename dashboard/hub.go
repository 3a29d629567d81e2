// SPDX-License-Identifier: MIT

package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	every    = time.Second / 3  // between two updates
	linger   = 10 * time.Second // how long a request for the state counts as an open page
	maxPages = 1000             // open at a time
	upcoming = 8                // tasks listed
	running  = 8                // runs listed

	readEvery   = 5 * time.Second // between two readings, whether a page is open or not
	maxReadings = 720             // kept: an hour, of 160 bytes each

	maxStacks = 2 // of panics, sent in an update
)

// A hub reads one wheel for all its pages, on one goroutine, which exists while a page is open.
type hub struct {
	name string
	tw   *timewheel.TimeWheel
	rec  *Recorder // may be nil

	mu      sync.Mutex // protects all below
	pages   map[*page]struct{}
	quit    chan struct{} // ends the goroutine; nil if there is none
	asker   *page         // stands for requests for the state, and
	leaving *time.Timer   // closes it; both are nil if there was no recent request
	seen    stateJSON     // at the last look, without the history and with all stored panics
	past    []health.Reading
	timer   *time.Timer // of the next reading
	now     mark
}

// A page is one reader of the events.
type page struct {
	events chan []byte // one at most: until the page reads it, it misses the next ones
	has    mark        // under the hub's lock
}

// A mark counts all readings and panics so far, or those that a page has. A new page has none.
type mark struct{ readings, panics int }

// A point is one reading in the history.
type point struct {
	Time    time.Time `json:"time"`
	Pending int       `json:"pending"`
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`

	// Runs a second since the previous reading; null if there is none.
	Started  *float64 `json:"started"`
	Missed   *float64 `json:"missed"`
	Panicked *float64 `json:"panicked"`
}

// newHub returns a hub, which reads the wheel from now on.
func newHub(name string, tw *timewheel.TimeWheel, rec *Recorder) *hub {
	h := &hub{name: name, tw: tw, rec: rec, pages: make(map[*page]struct{})}
	weakly := weak.Make(h) // the timer must not keep an unused hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readLocked(time.Now())
	h.timer = time.AfterFunc(readEvery, func() {
		if h := weakly.Value(); h != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.readLocked(time.Now()) {
				h.timer.Reset(readEvery)
			}
		}
	})
	return h
}

// reading reads the wheel.
func (h *hub) reading(now time.Time) health.Reading {
	r := health.Reading{Time: now, Running: h.tw.IsRunning(), Stats: h.tw.Stats()}
	if h.rec != nil {
		r.Panics = h.rec.panicTimes()
	}
	return r
}

// readLocked keeps a reading. It reports whether later readings are useful: the statistics of a stopped wheel no longer
// change once its last run has ended.
func (h *hub) readLocked(now time.Time) bool {
	r := h.reading(now)
	r.Panics = nil // not needed in a past reading
	stopped := !r.Running && slices.ContainsFunc(h.past, func(p health.Reading) bool { return p.Running })
	if len(h.past) == maxReadings {
		h.past = slices.Delete(h.past, 0, 1)
	}
	h.past = append(h.past, r)
	h.now.readings++
	return !stopped || r.Stats.Running > 0
}

// open returns a new page.
func (h *hub) open() *page {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.openLocked()
}

func (h *hub) openLocked() *page {
	p := &page{events: make(chan []byte, 1)}
	h.pages[p] = struct{}{}
	if h.quit == nil {
		h.quit = make(chan struct{})
		go h.run(h.quit)
	}
	return p
}

func (h *hub) close(p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.pages[p]; !ok {
		return // the timer of the asker had fired when it was reset
	}
	if p == h.asker {
		h.asker, h.leaving = nil, nil
	}
	delete(h.pages, p)
	if len(h.pages) == 0 {
		close(h.quit)
		h.quit = nil
	}
}

func (h *hub) run(quit chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		h.publish(time.Now())
		select {
		case <-ticker.C:
		case <-quit:
			return
		}
	}
}

// publish sends the state to every page that has room for it, with the parts that are new to that page. Pages with the
// same mark get the same text.
func (h *hub) publish(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = h.look(now)
	texts := make(map[mark][]byte)
	for p := range h.pages {
		if len(p.events) > 0 { // only this sends: it stays so, or becomes empty
			continue
		}
		text := texts[p.has]
		if text == nil {
			text = event(h.newTo(p.has))
			texts[p.has] = text
		}
		p.events <- text
		p.has = h.now
	}
}

// state returns the whole state, for a single request. The request counts as an open page for a while, and
// requests between two looks share the first. So frequent requests cost no more than a page.
func (h *hub) state(now time.Time) stateJSON {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asker == nil {
		p := h.openLocked()
		p.events <- nil // so that it gets nothing, because it reads nothing
		h.asker, h.leaving = p, time.AfterFunc(linger, func() { h.close(p) })
	} else {
		h.leaving.Reset(linger)
	}
	if now.Sub(h.seen.Now) >= every {
		h.seen = h.look(now)
	}
	return h.newTo(mark{})
}

// newTo returns the last state, with the history and the panics that are new to a page with the given mark.
func (h *hub) newTo(has mark) stateJSON {
	s := h.seen
	s.Whole = has == mark{}
	s.History = []point{}
	for i := max(len(h.past)-(h.now.readings-has.readings), 0); i < len(h.past); i++ {
		s.History = append(s.History, pointOf(h.past, i))
	}
	if !s.Whole {
		s.Panics = slices.Clone(s.Panics[:min(h.now.panics-has.panics, len(s.Panics))])
		for i := maxStacks; i < len(s.Panics); i++ {
			s.Panics[i].Stack = ""
		}
	}
	return s
}

// look looks at the wheel.
func (h *hub) look(now time.Time) stateJSON {
	r := h.reading(now)
	hand := h.tw.Hand()
	s := stateJSON{
		Wheel:   h.name,
		Now:     now,
		Running: r.Running,
		Health:  newHealthJSON(health.Judge(r, h.past), health.Well(r)),
		Dial: dialJSON{
			Tick: hand.Tick.Seconds(), Slots: hand.Slots, Layout: hand.Layout.String(), Hand: hand.Slot,
		},
		Stats:    newStatsJSON(r.Stats),
		Upcoming: []taskJSON{},
		Runs:     []runJSON{},
		Panics:   []panicJSON{},
	}
	for _, sector := range h.tw.Occupancy(sectors(hand.Slots)) {
		s.Dial.Width = append(s.Dial.Width, sector.Slots)
		s.Dial.Tasks = append(s.Dial.Tasks, sector.Tasks)
	}
	for _, info := range agreeing(h.tw.Upcoming(8*upcoming), r.Stats) {
		s.Upcoming = append(s.Upcoming, newTaskJSON(info))
	}
	for _, run := range h.tw.LongestRuns(running) {
		s.Runs = append(s.Runs, newRunJSON(run, time.Now()))
	}
	if h.rec != nil {
		s.Lateness = h.rec.lateness(now)
		s.Panics, h.now.panics = h.rec.lastPanics()
	}
	return s
}

// agreeing returns the first tasks that do not contradict the statistics: if these have no waiting run, a waiting task
// has become due since.
func agreeing(infos []timewheel.Info, stats timewheel.Stats) []timewheel.Info {
	infos = slices.DeleteFunc(infos, func(i timewheel.Info) bool { return i.Waiting && stats.Waiting == 0 })
	return infos[:min(len(infos), upcoming)]
}

// sectors returns the number of parts of the dial on a page: one for each slot if there are at most 200. Otherwise it
// is the largest number from 200 down to 60 that divides the slots evenly, or 120 if there is none.
func sectors(slots int) int {
	const few, many = 60, 200
	if slots <= many {
		return slots
	}
	for n := many; n >= few; n-- {
		if slots%n == 0 {
			return n
		}
	}
	return 120
}

// pointOf returns reading i as a point of the history.
func pointOf(past []health.Reading, i int) point {
	r := past[i]
	p := point{
		Time:    r.Time,
		Pending: r.Stats.Pending, Waiting: r.Stats.Waiting, Running: r.Stats.Running,
	}
	if i == 0 {
		return p
	}
	last := past[i-1]
	seconds := r.Time.Sub(last.Time).Seconds()
	p.Started = perSecond(r.Stats.Started-last.Stats.Started, seconds)
	p.Missed = perSecond(r.Stats.Missed-last.Stats.Missed, seconds)
	p.Panicked = perSecond(r.Stats.Panicked-last.Stats.Panicked, seconds)
	return p
}

// source returns the hub's line of the overview.
func (h *hub) source(now time.Time) sourceJSON {
	r := h.reading(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	judged := newHealthJSON(health.Judge(r, h.past), health.Well(r))
	return sourceJSON{Name: h.name, Kind: "wheel", Health: judged, Stats: newStatsJSON(r.Stats)}
}

func (h *hub) title() string { return h.name }

// about returns everything about a key.
func (h *hub) about(key string, now time.Time) aboutJSON {
	a := aboutJSON{Runs: []runJSON{}, Panics: []panicJSON{}}
	if info, ok := h.tw.Get(key); ok {
		task := newTaskJSON(info)
		a.Task = &task
	}
	for _, run := range h.tw.LongestRuns(math.MaxInt) {
		if run.Key == key {
			a.Runs = append(a.Runs, newRunJSON(run, now))
		}
	}
	if h.rec != nil {
		a.Panics = h.rec.panicsOf(key)
	}
	return a
}

// event returns the state as a server-sent event.
func event(s stateJSON) []byte {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := json.NewEncoder(&b).Encode(s); err != nil {
		panic(err) // a bug: everything in it can be encoded
	}
	b.WriteString("\n")
	return b.Bytes()
}

func (h *hub) remove(_ context.Context, key string) error { return h.tw.RemoveTask(key) }

func (h *hub) reschedule(_ context.Context, key string, d time.Duration) error {
	return h.tw.Reschedule(key, d)
}

func (h *hub) pause(_ context.Context, key string) error { return h.tw.Pause(key) }

func (h *hub) resume(_ context.Context, key string) error { return h.tw.Resume(key) }
