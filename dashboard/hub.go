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

	"github.com/seed581295f1/timewheel/internal/cpu"
	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	every    = time.Second / 3  // interval between two updates
	linger   = 10 * time.Second // how long a request for the state counts as an open page
	maxPages = 1000             // maximum number of open pages
	upcoming = 8                // number of upcoming tasks listed
	running  = 8                // number of runs listed

	readEvery   = 5 * time.Second // interval between two readings, whether or not a page is open
	maxReadings = 720             // number of readings kept: one hour's worth, of 168 bytes each

	maxStacks = 2 // maximum number of panic stacks sent in an update
)

// A hub reads one wheel for all its pages. It does so on one goroutine, which exists while a page is open.
type hub struct {
	name string
	tw   *timewheel.TimeWheel
	rec  *Recorder // may be nil; in that case there is no lateness and there are no panics
	cpu  cpu.Watch

	mu      sync.Mutex // protects the fields below
	pages   map[*page]struct{}
	quit    chan struct{} // closed to end the goroutine; nil if there is none
	asker   *page         // a page that represents recent requests for the state; nil if there were none
	leaving *time.Timer   // closes asker; nil if asker is nil
	seen    stateJSON     // the last state read, without the history and with all stored panics
	past    []health.Reading
	timer   *time.Timer // fires when the next reading is due
	now     mark
}

// A page is one reader of the events.
type page struct {
	events chan []byte // holds at most one event; until the page reads that event, it misses later ones
	has    mark        // what the page has received; protected by the hub's mu
}

// A mark counts readings and panics: either all of them so far, or those that a page has received. The mark of a new
// page is zero.
type mark struct{ readings, panics int }

// A point is one reading in the history.
type point struct {
	Time    time.Time `json:"time"`
	Pending int       `json:"pending"`
	Waiting int       `json:"waiting"`
	Running int       `json:"running"`

	// The runs per second since the previous reading; null if there is no previous reading.
	Started  *float64 `json:"started"`
	Missed   *float64 `json:"missed"`
	Panicked *float64 `json:"panicked"`
}

// newHub returns a hub that starts reading the wheel immediately.
func newHub(name string, tw *timewheel.TimeWheel, rec *Recorder) *hub {
	h := &hub{name: name, tw: tw, rec: rec, pages: make(map[*page]struct{})}
	weakly := weak.Make(h) // the timer must not keep an unused hub alive
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
	r := health.Reading{Time: now, Running: h.tw.IsRunning(), Stats: h.tw.Stats(), CPUWait: h.cpu.Wait()}
	if h.rec != nil {
		r.Panics = h.rec.panicTimes()
	}
	return r
}

// readLocked reads the wheel and stores the reading. It reports whether further readings are useful: once a stopped
// wheel's last run has ended, its statistics no longer change.
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

// open adds a new page and returns it.
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
		return // the timer of the asker had already fired when it was reset
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

// publish sends the state to every page that is ready to receive it, with the history and panics that are new to that
// page. Pages with the same mark get the same text.
func (h *hub) publish(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = h.look(now)
	texts := make(map[mark][]byte)
	for p := range h.pages {
		if len(p.events) > 0 { // only publish sends, so an empty channel stays empty until the send below
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

// state returns the whole state for a single request. The request counts as an open page for a while, and the state is
// read again only if it is older than the update interval. Frequent requests therefore cost no more than an open page.
func (h *hub) state(now time.Time) stateJSON {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asker == nil {
		p := h.openLocked()
		p.events <- nil // fill the channel so that publish skips this page, which never reads
		h.asker, h.leaving = p, time.AfterFunc(linger, func() { h.close(p) })
	} else {
		h.leaving.Reset(linger)
	}
	if now.Sub(h.seen.Now) >= every {
		h.seen = h.look(now)
	}
	return h.newTo(mark{})
}

// newTo returns the last state, with only the history and the panics that are new to a page with the given mark.
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

// look reads the wheel and returns its state, without the history.
func (h *hub) look(now time.Time) stateJSON {
	r := h.reading(now)
	hand := h.tw.Hand()
	s := stateJSON{
		Wheel:   h.name,
		Now:     now,
		Running: r.Running,
		Health:  newHealthJSON(health.Judge(r, h.past), health.Well(r), health.Notes(r, h.past)...),
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

// agreeing returns the first tasks that are consistent with the statistics. If the statistics contain no waiting runs,
// it omits waiting tasks, because they became due after the statistics were read.
func agreeing(infos []timewheel.Info, stats timewheel.Stats) []timewheel.Info {
	infos = slices.DeleteFunc(infos, func(i timewheel.Info) bool { return i.Waiting && stats.Waiting == 0 })
	return infos[:min(len(infos), upcoming)]
}

// sectors returns the number of parts that the dial on a page has. With at most 200 slots, each slot is a part. With
// more, the number of parts is the largest from 60 to 200 that divides the slots evenly, or 120 if there is no such
// number.
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

// source returns the hub's entry in the overview.
func (h *hub) source(now time.Time) sourceJSON {
	r := h.reading(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	judged := newHealthJSON(health.Judge(r, h.past), health.Well(r), health.Notes(r, h.past)...)
	return sourceJSON{Name: h.name, Kind: "wheel", Health: judged, Stats: newStatsJSON(r.Stats)}
}

func (h *hub) title() string { return h.name }

// about returns all data for a key.
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
		panic(err) // unreachable: every field of the state can be encoded
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
