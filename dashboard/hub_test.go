// SPDX-License-Identifier: MIT

package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

func TestEvents_firstIsWhole_thoseThatFollowHaveWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		add(t, tw, "far", time.Hour)
		bad := &timewheel.Task{Key: "bad", Interval: 2500 * time.Millisecond, Times: timewheel.Forever,
			Job: func(*timewheel.Task) { panic("told to") }}
		if err := tw.AddTask(bad); err != nil {
			t.Fatal(err)
		}
		s := servePipes(t, Handler(tw, WithRecorder(rec)))
		page := s.listen(t, "/api/events")
		e := page.next()
		if !e.Whole || e.Wheel != "wheel" || !e.Running || len(e.History) != 1 || e.History[0].Started != nil || len(e.Panics) != 0 {
			t.Fatalf("the first event is %+v", e)
		}
		if e.Dial.Slots != 60 || e.Dial.Tick != 0.01 || e.Dial.Layout != "hashed" || len(e.Dial.Tasks) != 60 || e.Stats.Workers == 0 {
			t.Errorf("the dial is %+v", e.Dial)
		}
		hand, points, panics := e.Dial.Hand, 0, 0
		for i := range 30 { // ten seconds
			e := page.next()
			if e.Whole || e.Stats.Pending != 2 || len(e.Upcoming) > 1 || len(e.Upcoming) == 1 && (e.Upcoming[0].Key != "bad" || e.Upcoming[0].Times != -1) {
				t.Fatalf("event %d is %+v", i, e)
			}
			if e.Dial.Hand == hand {
				t.Errorf("the hand stays at %d", hand)
			}
			hand = e.Dial.Hand
			points += len(e.History)
			for _, p := range e.History {
				if p.Started == nil || p.Missed == nil || p.Panicked == nil || p.Pending != 2 {
					t.Errorf("the point is %+v", p)
				}
			}
			for _, p := range e.Panics {
				panics++
				if p.Key != "bad" || p.Value != "told to" || !strings.Contains(p.Stack, "hub_test.go") {
					t.Errorf("a panic is %+v", p)
				}
			}
		}
		if points != 10 || panics != 4 && panics != 3 {
			t.Errorf("in ten seconds there were %d points and %d panics", points, panics)
		}
		page.close()
	})
}

func TestEvents_rates_areThoseOfTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		if err := tw.AddTask(&timewheel.Task{Key: "k", Interval: 20 * time.Millisecond, Times: timewheel.Forever,
			Job: func(*timewheel.Task) {}}); err != nil {
			t.Fatal(err)
		}
		h := newHub("w", tw, rec)
		p := h.open()
		time.Sleep(10*time.Second + time.Millisecond)
		h.close(p)
		time.Sleep(time.Minute)
		p = h.open()
		time.Sleep(1500 * time.Millisecond)
		h.close(p)
		synctest.Wait()
		if len(h.history) != 13 {
			t.Fatalf("there are %d points", len(h.history))
		}
		for i, p := range h.history {
			if i == 0 || i == 11 { // no page was open before
				if p.Started != nil || p.Missed != nil || p.Panicked != nil {
					t.Errorf("point %d has rates: %+v", i, p)
				}
			} else if *p.Started < 45 || *p.Started > 55 {
				t.Errorf("point %d has %v starts a second, want 50", i, *p.Started)
			}
		}
	})
}

func TestHistory_isBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, _ := newWheel(t, 60)
		h := newHub("w", tw, nil)
		p := h.open()
		time.Sleep(2 * maxPoints * time.Second)
		h.close(p)
		if n := len(h.history); n != maxPoints {
			t.Errorf("the history has %d points", n)
		}
		if first := h.history[0].Time; time.Since(first) > (maxPoints+1)*time.Second {
			t.Errorf("the first point is %v old", time.Since(first))
		}
		if s := h.state(time.Now()); !s.Whole || len(s.History) < maxPoints-1 {
			t.Errorf("a page that is opened after more than that gets %d points", len(s.History))
		}
		time.Sleep(2 * linger)
	})
}

// A page that is opened after a day does not show yesterday.
func TestHistory_isOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, _ := newWheel(t, 60)
		h := newHub("w", tw, nil)
		p := h.open()
		time.Sleep(10 * time.Second)
		h.close(p)
		time.Sleep(5*time.Minute - 5*time.Second)
		if s := h.state(time.Now()); len(s.History) < 4 || len(s.History) > 7 {
			t.Errorf("after less than five minutes there are %d points", len(s.History))
		}
		time.Sleep(24 * time.Hour)
		if s := h.state(time.Now()); len(s.History) != 0 {
			t.Errorf("after a day there are %d points", len(s.History))
		}
		time.Sleep(2 * linger)
	})
}

// Stacks are long, and a wheel may have very many panics.
func TestEvents_manyPanics_haveTwoStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		served := Handler(tw, WithRecorder(rec))
		page := servePipes(t, served).listen(t, "/api/events")
		page.next()
		told := 0
		for _, n := range []int{1, 2, 3, 10, 100, 0, 1} {
			synctest.Wait() // all that was seen before has been sent
			for range n {
				told++
				rec.Panicked(&timewheel.Task{Key: fmt.Sprint(told)}, "again", []byte("stack"))
			}
			e := page.next()
			if want := min(n, keepPanics); e.Whole || e.Panics == nil || len(e.Panics) != want {
				t.Fatalf("of %d panics %d are told of", n, len(e.Panics))
			}
			for i, p := range e.Panics {
				if p.Key != fmt.Sprint(told-i) || (p.Stack == "stack") != (i < 2) {
					t.Errorf("panic %d of %d is %+v", i, n, p)
				}
			}
			s := answer[stateJSON](t, ask(served, "GET", "/api/wheel", nil), 200)
			for i, p := range s.Panics {
				if len(s.Panics) != min(told, keepPanics) || p.Stack != "stack" {
					t.Errorf("panic %d of %d in the whole state is %+v", i, len(s.Panics), p)
				}
			}
		}
		page.close()
		time.Sleep(2 * linger)
	})
}

// Pages that have read the same are sent the same text, which is made once.
func TestPublish_pagesThatHaveTheSame_shareTheText(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := newHub("w", tw, nil)
	pages := make([]*page, 3)
	for i := range pages {
		pages[i] = &page{events: make(chan []byte, 1)}
		h.pages[pages[i]] = struct{}{}
	}
	for range 3 {
		h.publish(time.Now())
		first := <-pages[0].events
		for _, p := range pages[1:] {
			if text := <-p.events; &text[0] != &first[0] {
				t.Error("two pages have texts of their own")
			}
		}
	}
}

// goroutines counts those of this package's hubs and pages.
func goroutines() int {
	buf := make([]byte, 8<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	return strings.Count(stacks, "dashboard.(*hub).run(") + strings.Count(stacks, "dashboard.(*handler).events(")
}

func TestHub_noPageOpen_costsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		h := newHub("w", tw, rec)
		for range 3 {
			if n := goroutines(); n != 0 || rec.watchers.Load() != 0 {
				t.Fatalf("with no page open there are %d goroutines, and %d watch", n, rec.watchers.Load())
			}
			a, b := h.open(), h.open()
			synctest.Wait()
			if n := goroutines(); n != 1 || rec.watchers.Load() != 2 {
				t.Errorf("with two pages open there are %d goroutines, and %d watch", n, rec.watchers.Load())
			}
			h.close(a)
			h.close(b)
			synctest.Wait()
		}
		n := testing.AllocsPerRun(100, func() { NewRecorder().Observe(timewheel.Run{}) })
		if n > 1 { // that of the recorder
			t.Errorf("a run with no page open costs %v allocations", n)
		}
	})
}

// A page that does not read holds up neither the wheel nor the other pages, gets all that it missed if it reads
// again, and is closed if it does not for long.
func TestEvents_slowReader_holdsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		var runs atomic.Int64
		if err := tw.AddTask(&timewheel.Task{Key: "k", Interval: 100 * time.Millisecond, Times: timewheel.Forever,
			Job: func(*timewheel.Task) { runs.Add(1) }}); err != nil {
			t.Fatal(err)
		}
		served := Handler(tw, WithRecorder(rec))
		s := servePipes(t, served)
		slow, quick := s.listen(t, "/api/events"), s.listen(t, "/api/events")
		slow.next()
		quick.next()
		before := runs.Load()
		for i := range 15 { // five seconds
			if i == 7 {
				rec.Panicked(&timewheel.Task{Key: "bad"}, "meanwhile", nil)
			}
			quick.next()
		}
		synctest.Wait()
		if n := runs.Load() - before; n < 45 {
			t.Errorf("with a slow reader the task ran %d times in five seconds", n)
		}
		var got []stateJSON
		for len(got) < 4 {
			got = append(got, slow.next())
			quick.next()
		}
		for i, e := range got { // the first two were on their way before
			if want := []int{-1, -1, 5, 0}[i]; e.Whole || want == 5 && (len(e.History) != want && len(e.History) != want+1 || len(e.Panics) != 1) {
				t.Errorf("event %d after a pause is %+v", i, e)
			}
		}

		for range 3 * int(patience/time.Second) * 2 {
			quick.next()
		}
		if n := served.(*handler).pages.Load(); n != 1 {
			t.Errorf("%d pages are open, and one does not read", n)
		}
		slow.close()
		quick.close()
	})
}

func TestEvents_200Pages_getTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		for i := range 1000 {
			add(t, tw, fmt.Sprint(i), time.Hour)
		}
		served := Handler(tw, WithRecorder(rec))
		s := servePipes(t, served)
		var conns []net.Conn
		for range 200 {
			conns = append(conns, s.get(t, "/api/events"))
		}
		var pages []*stream
		for _, c := range conns {
			pages = append(pages, readStream(t, c))
		}
		for _, p := range pages {
			if e := p.next(); !e.Whole || e.Stats.Pending != 1000 {
				t.Fatalf("the first event is %+v", e)
			}
		}
		for range 5 {
			for _, p := range pages {
				if e := p.next(); e.Stats.Pending != 1000 {
					t.Fatalf("an event is %+v", e)
				}
			}
		}
		if n := served.(*handler).pages.Load(); n != 200 {
			t.Errorf("%d pages are open", n)
		}
		for _, p := range pages {
			p.close()
		}
		if n := served.(*handler).pages.Load(); n != 0 || goroutines() != 0 {
			t.Errorf("%d pages are open when all are closed, and %d goroutines left", n, goroutines())
		}
	})
}

func TestEvents_tooManyPages_areTurnedAway(t *testing.T) {
	tw, _ := newWheel(t, 60)
	served := Handler(tw)
	served.(*handler).pages.Store(maxPages)
	w := ask(served, "GET", "/api/events", nil)
	if got := answer[errorJSON](t, w, http.StatusServiceUnavailable); !strings.Contains(got.Error, "1000") || w.Header().Get("Retry-After") == "" {
		t.Errorf("the answer is %+v, %v", got, w.Header())
	}
	if n := served.(*handler).pages.Load(); n != maxPages {
		t.Errorf("%d pages are counted", n)
	}
}

// Asking for the JSON now and then returns what a page would show, and costs no more.
func TestState_askedAgainAndAgain_countsAsAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		if err := tw.AddTask(&timewheel.Task{Key: "k", Interval: 20 * time.Millisecond, Times: timewheel.Forever,
			Job: func(*timewheel.Task) {}}); err != nil {
			t.Fatal(err)
		}
		served := Handler(tw, WithRecorder(rec))
		ask := func() stateJSON { return answer[stateJSON](t, ask(served, "GET", "/api/wheel", nil), 200) }
		if s := ask(); !s.Whole || s.Lateness == nil || s.History == nil || s.Panics == nil || s.Upcoming == nil || s.Runs == nil {
			t.Errorf("the first state is %+v", s)
		}
		for range 4 {
			testkit.Settle(linger - time.Second + every/4)
			if goroutines() != 1 || rec.watchers.Load() != 1 {
				t.Fatalf("%d goroutines, %d watch", goroutines(), rec.watchers.Load())
			}
			first, second := ask(), ask()
			if first.Lateness.Runs < 100 || len(first.History) < 5 || time.Since(first.Now) > every {
				t.Errorf("the state is %+v", first)
			}
			if !first.Now.Equal(second.Now) || first.Now.Equal(time.Now()) {
				t.Error("two requests at the same time did not share the last reading")
			}
		}
		time.Sleep(linger + time.Second)
		if goroutines() != 0 || rec.watchers.Load() != 0 {
			t.Errorf("after a long time without a request there are %d goroutines, and %d watch", goroutines(), rec.watchers.Load())
		}
		ask()
		time.Sleep(linger) // the timer runs out just as it is reset
		ask()
		time.Sleep(3 * linger)
		if goroutines() != 0 || rec.watchers.Load() != 0 {
			t.Errorf("in the end there are %d goroutines, and %d watch", goroutines(), rec.watchers.Load())
		}
	})
}

func TestState_wheelWithoutARecorder_tellsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(10*time.Millisecond, 60)
		tw.Start()
		defer tw.Stop()
		end := make(chan struct{})
		if err := tw.AddTask(&timewheel.Task{Key: "k", Interval: time.Second, Job: func(*timewheel.Task) { <-end }}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		got := answer[stateJSON](t, ask(Handler(tw), "GET", "/api/wheel", nil), 200)
		if got.Lateness != nil || got.Panics == nil || len(got.Panics) != 0 || len(got.Runs) != 1 || got.Runs[0].For < 3.9 || got.Runs[0].For > 4 {
			t.Errorf("the state is %+v", got)
		}
		close(end)
		time.Sleep(2 * linger)
	})
}

func TestState_dialAndList_areOfTheTasksThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, _ := newWheel(t, 60) // which turns in 600 ms
		for i := range 3 {
			add(t, tw, fmt.Sprint("near ", i), 500*time.Millisecond)
		}
		for i := range 10 {
			add(t, tw, fmt.Sprint("far ", i), time.Duration(i+1)*time.Hour)
		}
		got := answer[stateJSON](t, ask(Handler(tw), "GET", "/api/wheel", nil), 200)
		tasks, width := 0, 0
		for i := range got.Dial.Tasks {
			tasks, width = tasks+got.Dial.Tasks[i], width+got.Dial.Width[i]
		}
		if tasks != 13 || width != 60 || len(got.Upcoming) != 3 {
			t.Errorf("%d slots have %d tasks, and %d are listed", width, tasks, len(got.Upcoming))
		}
		time.Sleep(2 * linger)
	})
}

// Neither a page that does not read nor a single request makes the hub write text that is then thrown away.
func TestPublish_toThoseWhoDoNotRead_writesNothing(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := newHub("w", tw, nil)
	h.pages[&page{events: make(chan []byte, 1)}] = struct{}{}
	publish := func() { h.publish(time.Now()) }
	publish() // which it does not read
	few := testing.AllocsPerRun(10, publish)
	for range 10_000 {
		h.history = append(h.history, point{})
	}
	if many := testing.AllocsPerRun(10, publish); many > few+50 {
		t.Errorf("an update takes %v allocations with a long history, and %v with none", many, few)
	}
}

func TestState_running_listsTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		end := make(chan struct{})
		for i := range 2 * running {
			if err := tw.AddTask(&timewheel.Task{Key: fmt.Sprint(i), Interval: time.Duration(i+1)*time.Second - 3*time.Millisecond,
				Job: func(*timewheel.Task) { <-end }}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		got := answer[stateJSON](t, ask(Handler(tw, WithRecorder(rec)), "GET", "/api/wheel", nil), 200)
		if len(got.Runs) != running || got.Stats.Running != 2*running {
			t.Fatalf("%d runs are listed of %d", len(got.Runs), got.Stats.Running)
		}
		for i, r := range got.Runs {
			if r.Key != fmt.Sprint(i) || r.For < 58.9-float64(i) || r.For > 59-float64(i) || !r.Handed.After(r.Due) {
				t.Errorf("run %d is %+v", i, r)
			}
		}
		close(end)
		time.Sleep(2 * linger)
	})
}
