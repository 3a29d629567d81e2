// SPDX-License-Identifier: MIT

package dashboard

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	every     = time.Second / 3  // between two updates
	linger    = 10 * time.Second // how long a request for the state counts as an open page
	maxPages  = 1000             // that are open at a time
	upcoming  = 8                // tasks that are listed
	running   = 8                // runs that are listed
	maxPoints = 300              // of the history, one a second
	maxAge    = 5 * time.Minute  // of a point
	maxStacks = 2                // of panics, that are sent in an update
)

// A hub is what all pages of one wheel have in common. It reads the wheel for all of them, on one goroutine,
// which exists while a page is open.
type hub struct {
	name string
	tw   *timewheel.TimeWheel
	rec  *Recorder // may be nil

	mu      sync.Mutex // protects all below
	pages   map[*page]struct{}
	quit    chan struct{} // ends the goroutine; nil if there is none
	asker   *page         // stands for requests for the state, and
	leaving *time.Timer   // closes it; both are nil if there was none lately
	seen    stateJSON     // at the last look, without the history and with all panics that are kept
	history []point
	last    statsJSON // of the last point
	now     mark
}

// A page is one reader of the events.
type page struct {
	events chan []byte // one at most: until the page reads it, it misses the next ones
	has    mark        // under the hub's lock
}

// A mark is how much there has been, or how much of it a page has. A new page has nothing.
type mark struct{ points, panics int }

// A point is one second of the history.
type point struct {
	Time    time.Time `json:"time"`
	Pending int       `json:"pending"`
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`

	// Runs a second since the point before; null if no page was open then.
	Started  *float64 `json:"started"`
	Missed   *float64 `json:"missed"`
	Panicked *float64 `json:"panicked"`
}

func newHub(name string, tw *timewheel.TimeWheel, rec *Recorder) *hub {
	return &hub{name: name, tw: tw, rec: rec, pages: make(map[*page]struct{}), history: []point{}}
}

// open returns a new page.
func (h *hub) open() *page {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.openLocked()
}

func (h *hub) openLocked() *page {
	p := &page{events: make(chan []byte, 1)}
	if h.rec != nil {
		h.rec.watch(time.Now())
	}
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
	if h.rec != nil {
		h.rec.leave()
	}
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

// publish sends the state to every page that has room for it, with what is new to that page. Pages with the
// same mark get the same text.
func (h *hub) publish(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = h.look(now)
	h.record(now, h.seen.Stats)
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
		p.events <- nil // so that it gets nothing, since it reads nothing
		h.asker, h.leaving = p, time.AfterFunc(linger, func() { h.close(p) })
	} else {
		h.leaving.Reset(linger)
	}
	if now.Sub(h.seen.Now) >= every {
		h.seen = h.look(now)
	}
	return h.newTo(mark{})
}

// newTo returns what was seen, with the history and the panics that are new to a page with the given mark.
func (h *hub) newTo(has mark) stateJSON {
	s := h.seen
	s.Whole = has == mark{}
	s.History = []point{}
	for _, p := range h.history[max(len(h.history)-(h.now.points-has.points), 0):] {
		if s.Now.Sub(p.Time) <= maxAge {
			s.History = append(s.History, p)
		}
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
	stats := h.tw.Stats()
	hand := h.tw.Hand()
	s := stateJSON{
		Wheel:   h.name,
		Now:     now,
		Running: h.tw.IsRunning(),
		Dial: dialJSON{
			Tick: hand.Tick.Seconds(), Slots: hand.Slots, Layout: hand.Layout.String(), Hand: hand.Slot,
		},
		Stats:    newStatsJSON(stats),
		Upcoming: []taskJSON{},
		Runs:     []runJSON{},
		Panics:   []panicJSON{},
	}
	for _, sector := range h.tw.Occupancy(sectors(hand.Slots)) {
		s.Dial.Width = append(s.Dial.Width, sector.Slots)
		s.Dial.Tasks = append(s.Dial.Tasks, sector.Tasks)
	}
	for _, info := range h.tw.Upcoming(upcoming) {
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

// sectors returns into how many parts a page divides the dial: one for each slot if there are at most 200.
// Otherwise it is the largest number from 200 down to 60 that divides the slots evenly, or 120 if there is
// none.
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

// record adds a point to the history if a second has passed since the last one.
func (h *hub) record(now time.Time, stats statsJSON) {
	var since time.Duration
	if n := len(h.history); n > 0 {
		since = now.Sub(h.history[n-1].Time)
		if since < time.Second-every/2 {
			return
		}
	}
	p := point{Time: now, Pending: stats.Pending, Waiting: stats.Waiting, Running: stats.Running}
	if since > 0 && since < 3*time.Second {
		rate := func(now, before uint64) *float64 {
			r := float64(now-before) / since.Seconds()
			return &r
		}
		p.Started = rate(stats.Started, h.last.Started)
		p.Missed = rate(stats.Missed, h.last.Missed)
		p.Panicked = rate(stats.Panicked, h.last.Panicked)
	}
	h.last = stats
	if len(h.history) == maxPoints {
		h.history = slices.Delete(h.history, 0, 1)
	}
	h.history = append(h.history, p)
	h.now.points++
}

// event returns the state as a server-sent event.
func event(s stateJSON) []byte {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := json.NewEncoder(&b).Encode(s); err != nil {
		panic(err) // a bug: there is nothing in it that cannot be encoded
	}
	b.WriteString("\n")
	return b.Bytes()
}
