// SPDX-License-Identifier: MIT

package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
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
		s := servePipes(t, handlerOf(tw, rec))
		page := s.listen(t, "/api/events")
		e := page.next()
		if !e.Whole || e.Wheel != "wheel" || !e.Running || !e.Health.Well || len(e.History) != 1 || e.History[0].Started != nil || len(e.Panics) != 0 {
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
		if points < 1 || points > 2 || panics != 4 && panics != 3 {
			t.Errorf("in ten seconds there were %d points and %d panics", points, panics)
		}
		page.close()
	})
}

// The history begins with the handler, whether a page is open or not.
func TestHistory_isOfTheTimeBeforeThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, _ := newWheel(t, 60)
		if err := tw.AddTask(&timewheel.Task{Key: "k", Interval: 20 * time.Millisecond, Times: timewheel.Forever,
			Job: func(*timewheel.Task) {}}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		served := handlerOf(tw, nil)
		time.Sleep(10*time.Minute + time.Second)
		if n := goroutines(); n != 0 {
			t.Errorf("%d goroutines read the wheel", n)
		}
		s := answer[stateJSON](t, ask(served, "GET", "/api/wheel", nil), 200)
		if len(s.History) != 121 {
			t.Fatalf("after ten minutes there are %d readings", len(s.History))
		}
		for i, p := range s.History {
			if want := began.Add(time.Duration(i) * readEvery); !p.Time.Equal(want.Truncate(time.Millisecond)) || p.Pending != 1 {
				t.Errorf("reading %d is %+v, want one of %v", i, p, want)
			}
			if i == 0 {
				if p.Started != nil || p.Missed != nil || p.Panicked != nil {
					t.Errorf("the first reading has rates: %+v", p)
				}
			} else if *p.Started < 49.5 || *p.Started > 50.5 || *p.Missed != 0 || *p.Panicked != 0 {
				t.Errorf("reading %d has %v starts a second, want 50", i, *p.Started)
			}
		}
		time.Sleep(2 * linger)
	})
}

func TestHistory_isOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, _ := newWheel(t, 60)
		h := newHub("w", tw, nil)
		time.Sleep(26*time.Hour + time.Second)
		s := h.state(time.Now())
		h.mu.Lock()
		kept, room := len(h.past), cap(h.past)
		h.mu.Unlock()
		if len(s.History) != maxReadings || kept != maxReadings || room > 2*maxReadings {
			t.Errorf("of %d readings %d are sent", kept, len(s.History))
		}
		if first := s.History[0].Time; time.Since(first) < time.Hour-readEvery || time.Since(first) > time.Hour+readEvery {
			t.Errorf("the first reading is %v old", time.Since(first))
		}
		time.Sleep(2 * linger)
	})
}

// Once the last run of a stopped wheel has ended, nothing can change.
func TestHistory_ofAStoppedWheel_isNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(10*time.Millisecond, 60, timewheel.WithLogger(testkit.Quiet()))
		h := newHub("w", tw, nil)
		end := make(chan struct{})
		if err := tw.AddTask(&timewheel.Task{Key: "k", Delay: 12 * time.Second, Job: func(*timewheel.Task) { <-end; panic("late") }}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second) // the wheel is read before it is started
		tw.Start()
		time.Sleep(10 * time.Second)
		tw.Stop()
		time.Sleep(time.Minute)
		close(end)
		time.Sleep(time.Hour)
		s := h.state(time.Now())
		if n := len(s.History); n != 17 {
			t.Errorf("the wheel was read %d times", n)
		}
		if s.Health.Text != "Stopped for 1 h" || len(s.Health.Findings) != 1 { // the panic is long ago
			t.Errorf("the health is %+v", s.Health)
		}
		time.Sleep(2 * linger)
	})
}

// An unused handler can be collected by the garbage collector.
func TestHistory_ofAHandlerThatIsGone_endsWithIt(t *testing.T) {
	tw, _ := newWheel(t, 60)
	gone := make(chan struct{})
	h := newHub("w", tw, nil)
	runtime.AddCleanup(h, func(gone chan struct{}) { close(gone) }, gone)
	runtime.KeepAlive(h)
	h = nil
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond):
		}
	}
	t.Error("a handler that is not used any more is kept")
}

func TestAgreeing_taskThatBecameDueSince_isLeftOut(t *testing.T) {
	waits, far := timewheel.Info{Key: "waits", Waiting: true}, timewheel.Info{Key: "far"}
	infos := func() []timewheel.Info {
		return slices.Concat([]timewheel.Info{waits}, slices.Repeat([]timewheel.Info{far}, 2*upcoming))
	}
	if got := agreeing(infos(), timewheel.Stats{}); len(got) != upcoming || got[0] != far {
		t.Errorf("if none waits %v is listed", got)
	}
	if got := agreeing(infos(), timewheel.Stats{Waiting: 1}); len(got) != upcoming || got[0] != waits || got[1] != far {
		t.Errorf("if one waits %v is listed", got)
	}
}

// The time of a panic is taken from the list of panics, not from a reading.
func TestState_panic_isSaidWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		served := handlerOf(tw, rec)
		time.Sleep(2 * time.Second)
		tw.AfterFunc(time.Second, func() { panic("once") })
		time.Sleep(20 * time.Second)
		s := answer[stateJSON](t, ask(served, "GET", "/api/wheel", nil), 200)
		if len(s.Panics) != 1 || s.Health.Text != "1 job panicked in the last 5 m, the latest 19 s ago" || !s.Health.Findings[0].Since.Equal(s.Panics[0].Time) {
			t.Errorf("the health is %+v, the panics are %+v", s.Health, s.Panics)
		}
		time.Sleep(2 * linger)
	})
}

// The incident: all workers are stuck, and 500 tasks are due. The problem and its start are reported at once, and all
// figures agree.
func TestState_stuckWorkers_areFoundAndAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := NewRecorder()
		tw := timewheel.NewTimeWheel(10*time.Millisecond, 60, timewheel.WithPoolSize(8), rec.Option(), timewheel.WithLogger(testkit.Quiet()))
		tw.Start()
		defer tw.Stop()
		served := handlerOf(tw, rec)
		time.Sleep(17 * time.Second)
		end := make(chan struct{})
		for i := range 500 {
			if err := tw.AddTask(&timewheel.Task{Key: fmt.Sprint(i), Interval: time.Second, Job: func(*timewheel.Task) { <-end }}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		began := time.Now()
		time.Sleep(3 * time.Second)
		get := func() stateJSON { return answer[stateJSON](t, ask(served, "GET", "/api/wheel", nil), 200) }
		for _, want := range []string{
			"Overloaded for 3 s: 8 of 8 workers busy, 492 runs wait, the oldest for 3 s; none has started for 1 s",
			"Overloaded for 42 s: 8 of 8 workers busy, 492 runs wait, the oldest for 42 s; none has started for 40 s",
		} {
			s := get()
			if s.Health.Well || s.Health.Text != want || len(s.Health.Findings) != 1 || s.Health.Findings[0].Kind != "overloaded" ||
				s.Health.Findings[0].Since.Sub(began).Abs() > 20*time.Millisecond {
				t.Errorf("the health is %+v, want %s", s.Health, want)
			}
			if s.Stats.Waiting != 492 || s.Stats.Running != 8 || s.Lateness.Runs != 0 || len(s.Runs) != 8 || len(s.Upcoming) != 8 || !s.Upcoming[0].Waiting {
				t.Errorf("the state is %+v", s)
			}
			time.Sleep(39 * time.Second)
		}
		if got := answer[sourcesJSON](t, ask(served, "GET", "/api/sources", nil), 200).Sources[0].Health; got.Well {
			t.Errorf("the overview says %+v", got)
		}
		close(end)
		time.Sleep(readEvery)
		if s := get(); !s.Health.Well || s.Lateness.Runs != 500 || s.Lateness.Wait.Max < 80 {
			t.Errorf("afterwards the state is %+v, %+v", s.Health, s.Lateness)
		}
		time.Sleep(2 * linger)
	})
}

// Stacks are long, and a wheel may have very many panics.
func TestEvents_manyPanics_haveTwoStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		served := handlerOf(tw, rec)
		page := servePipes(t, served).listen(t, "/api/events")
		page.next()
		told := 0
		for _, n := range []int{1, 2, 3, 10, 100, 0, 1} {
			synctest.Wait() // everything seen before has been sent
			for range n {
				told++
				rec.panicked(&timewheel.Task{Key: fmt.Sprint(told)}, "again", []byte("stack"))
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

// Pages in the same state get the same text, which is produced once.
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

// goroutines counts the goroutines of this package's hubs and pages.
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
			if n := goroutines(); n != 0 {
				t.Fatalf("with no page open there are %d goroutines", n)
			}
			a, b := h.open(), h.open()
			synctest.Wait()
			if n := goroutines(); n != 1 {
				t.Errorf("with two pages open there are %d goroutines", n)
			}
			h.close(a)
			h.close(b)
			synctest.Wait()
		}
		now := time.Now()
		if n := testing.AllocsPerRun(100, func() { rec.observe(timewheel.Run{Ended: now}) }); n > 0 {
			t.Errorf("a run costs %v allocations", n)
		}
	})
}

// A page that does not read holds up neither the wheel nor the other pages. It gets everything that it missed if it
// reads again, and is closed if it does not read for long.
func TestEvents_slowReader_holdsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, rec := newWheel(t, 60)
		var runs atomic.Int64
		if err := tw.AddTask(&timewheel.Task{Key: "k", Interval: 100 * time.Millisecond, Times: timewheel.Forever,
			Job: func(*timewheel.Task) { runs.Add(1) }}); err != nil {
			t.Fatal(err)
		}
		served := handlerOf(tw, rec)
		s := servePipes(t, served)
		slow, quick := s.listen(t, "/api/events"), s.listen(t, "/api/events")
		slow.next()
		quick.next()
		before := runs.Load()
		for i := range 15 { // five seconds
			if i == 7 {
				rec.panicked(&timewheel.Task{Key: "bad"}, "meanwhile", nil)
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
		for i, e := range got { // the first two were already on their way
			if want := []int{-1, -1, 1, 0}[i]; e.Whole || want == 1 && (len(e.History) != want && len(e.History) != want+1 || len(e.Panics) != 1) {
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
		served := handlerOf(tw, rec)
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
	served := handlerOf(tw, nil)
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
		served := handlerOf(tw, rec)
		ask := func() stateJSON { return answer[stateJSON](t, ask(served, "GET", "/api/wheel", nil), 200) }
		if s := ask(); !s.Whole || s.Lateness == nil || s.History == nil || s.Panics == nil || s.Upcoming == nil || s.Runs == nil {
			t.Errorf("the first state is %+v", s)
		}
		for range 4 {
			testkit.Settle(linger - time.Second + every/4)
			if goroutines() != 1 {
				t.Fatalf("%d goroutines", goroutines())
			}
			first, second := ask(), ask()
			if first.Lateness.Runs < 100 || len(first.History) < 2 || time.Since(first.Now) > every {
				t.Errorf("the state is %+v", first)
			}
			if !first.Now.Equal(second.Now) || first.Now.Equal(time.Now()) {
				t.Error("two requests at the same time did not share the last reading")
			}
		}
		time.Sleep(linger + time.Second)
		if goroutines() != 0 {
			t.Errorf("after a long time without a request there are %d goroutines", goroutines())
		}
		ask()
		time.Sleep(linger) // the timer fires just as it is reset
		ask()
		time.Sleep(3 * linger)
		if goroutines() != 0 {
			t.Errorf("in the end there are %d goroutines", goroutines())
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
		got := answer[stateJSON](t, ask(handlerOf(tw, nil), "GET", "/api/wheel", nil), 200)
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
		got := answer[stateJSON](t, ask(handlerOf(tw, nil), "GET", "/api/wheel", nil), 200)
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

// Neither a page that does not read nor a single request makes the hub produce text that is then discarded.
func TestPublish_toThoseWhoDoNotRead_writesNothing(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := newHub("w", tw, nil)
	h.pages[&page{events: make(chan []byte, 1)}] = struct{}{}
	publish := func() { h.publish(time.Now()) }
	publish() // which it does not read
	few := testing.AllocsPerRun(10, publish)
	for range maxReadings {
		h.readLocked(time.Now())
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
		got := answer[stateJSON](t, ask(handlerOf(tw, rec), "GET", "/api/wheel", nil), 200)
		if len(got.Runs) != running || got.Stats.Running != 2*running {
			t.Fatalf("%d runs are listed of %d", len(got.Runs), got.Stats.Running)
		}
		for i, r := range got.Runs {
			if r.Key != fmt.Sprint(i) || r.For < 58.9-float64(i) || r.For > 59-float64(i) || !r.Dispatched.After(r.Due) {
				t.Errorf("run %d is %+v", i, r)
			}
		}
		close(end)
		time.Sleep(2 * linger)
	})
}
