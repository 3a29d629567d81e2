// SPDX-License-Identifier: MIT

package pebble_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// The environment of a child process: the directory of its store, the number of its life, and whether it must end when
// nothing is left to do.
const (
	childDir  = "DURABLE_TEST_DIR"
	childLife = "DURABLE_TEST_LIFE"
	childEnds = "DURABLE_TEST_ENDS"
	killsEnv  = "DURABLE_KILLS" // how often TestCrash_killedAtAnyMoment kills; 10 by default
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if limit, err := strconv.ParseUint(os.Getenv(childFiles), 10, 64); err == nil {
			fewFiles(dir, limit)
		} else {
			child(dir)
		}
		return
	}
	os.Exit(m.Run())
}

// child works on the store as fast as it can, and reports its actions on its standard output. Each line is written at
// once, so that it outlives the process. A line is a letter and the key:
//
//	a  is about to be added, for n runs       A  was added
//	m  is about to be moved                   M  was moved
//	r  is about to be removed                 R  was removed
//	S  a run with that number starts          E  it ends, and its handler returns nil
//	K  its end is known to be in the store
//	L  is there at the end, with n runs       end  nothing is left that is due soon
func child(dir string) {
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	must := func(err error) {
		if err != nil {
			say("error %v", err)
			os.Exit(3)
		}
	}
	s, err := newScheduler(dir, durable.WithTick(time.Millisecond))
	must(err)
	ends := make(chan durable.Token, 1<<20)
	go func() {
		for run := range ends {
			for {
				i, ok, err := s.Get(ctx, run.Key)
				if errors.Is(err, durable.ErrStopped) {
					return
				}
				must(err)
				if !ok || i.Generation != run.Generation || i.Seq != run.Seq {
					break
				}
				time.Sleep(time.Millisecond)
			}
			// A look-up may see a commit a moment before it is synced. The answer of a verb comes after that.
			if err := s.RemoveTask(ctx, "no such key"); errors.Is(err, durable.ErrTaskKeyNotFound) {
				say("K %s %d", run.Key, run.Seq)
			}
		}
	}()
	must(s.Handle("note", func(_ context.Context, run durable.Run) error {
		say("S %s %d %x", run.Key, run.Seq, run.Generation)
		if run.Attempt == 1 && run.Seq%5 == 4 {
			return errFail // and is retried
		}
		say("E %s %d", run.Key, run.Seq)
		ends <- run.Token
		return nil
	}, durable.WithRetry(100, time.Millisecond, 10*time.Millisecond)))
	must(s.Start())
	if os.Getenv(childEnds) != "" {
		for quietSince := time.Now(); time.Since(quietSince) < time.Second; time.Sleep(20 * time.Millisecond) {
			for i, err := range s.All(ctx) {
				must(err)
				if i.State != durable.Parked && time.Until(i.Next) < time.Minute {
					quietSince = time.Now()
				}
				break // the first is the next due
			}
		}
		for i, err := range s.All(ctx) {
			must(err)
			say("L %s %d", i.Key, i.Times)
		}
		must(s.Shutdown(ctx))
		say("end")
		return
	}
	life := os.Getenv(childLife)
	var serial atomic.Int64
	for worker := range 8 {
		go func() {
			rnd := rand.New(rand.NewPCG(uint64(worker), uint64(time.Now().UnixNano())))
			var far []string
			for {
				batch := make([]durable.Task, 1+rnd.IntN(20))
				for i := range batch {
					t := &batch[i]
					*t = durable.Task{Key: fmt.Sprintf("%s-%d", life, serial.Add(1)), Kind: "note", Times: 1,
						Delay: time.Duration(rnd.IntN(1500)) * time.Millisecond, Payload: make([]byte, rnd.IntN(200))}
					switch rnd.IntN(4) {
					case 0:
						t.Delay = time.Hour
					case 1:
						t.Times, t.Interval = 2+rnd.IntN(5), time.Duration(1+rnd.IntN(80))*time.Millisecond
					}
					if t.Delay == 0 {
						t.Delay = time.Millisecond
					}
					say("a %s %d", t.Key, t.Times)
				}
				must(s.AddTask(ctx, batch...))
				for _, t := range batch {
					say("A %s", t.Key)
					if t.Delay == time.Hour {
						far = append(far, t.Key)
					}
				}
				if t := batch[0]; t.Delay < time.Hour && rnd.IntN(3) == 0 {
					// Shortly before it is due, when it is due, or while it runs.
					time.AfterFunc(t.Delay-time.Duration(rnd.IntN(2000))*time.Microsecond, func() {
						say("r %s", t.Key)
						switch err := s.RemoveTask(ctx, t.Key); {
						case err == nil:
							say("R %s", t.Key)
						case !errors.Is(err, durable.ErrTaskKeyNotFound):
							must(err)
						}
					})
				}
				for len(far) > 10 {
					i := rnd.IntN(len(far))
					key := far[i]
					far = append(far[:i], far[i+1:]...)
					switch rnd.IntN(3) {
					case 0:
						say("r %s", key)
						must(s.RemoveTask(ctx, key))
						say("R %s", key)
					case 1:
						say("m %s", key)
						must(s.Reschedule(ctx, key, time.Duration(rnd.IntN(800))*time.Millisecond))
						say("M %s", key)
					}
				}
			}
		}()
	}
	select {}
}

// A story is the history of one key, as the process reported it.
type story struct {
	times         int
	asked, added  bool
	moving, moved bool
	leaving, gone bool
	goneLife      int
	goneAt        time.Time
	runs          map[string]*told // by number
	left          int
}

type told struct {
	starts   map[int]int // by life
	lastLife int
	ended    bool // its handler was about to return nil
	kept     bool // its end was in the store
	keptLife int
}

// A process that adds, moves, removes and runs at full speed is killed again and again. In the end its reports are
// compared with the results.
func TestCrash_killedAtAnyMoment_keepsWhatItSaid(t *testing.T) {
	kills := 10
	if n, err := strconv.Atoi(os.Getenv(killsEnv)); err == nil {
		kills = n
	}
	if testing.Short() {
		kills = 3
	}
	dir := filepath.Join(t.TempDir(), "store")
	stories := map[string]*story{}
	var lines int
	for life := 0; life <= kills; life++ {
		lines += oneLife(t, dir, life, life == kills, stories)
		if t.Failed() {
			return
		}
	}
	var acknowledged, removed, ran, again, kept int
	for key, s := range stories {
		if s.added {
			acknowledged++
		}
		if s.gone {
			removed++
		}
		ran += len(s.runs)
		for n, r := range s.runs {
			lives := 0
			for life, starts := range r.starts {
				lives++
				most := 1
				if number, _ := strconv.Atoi(n); number%5 == 4 {
					most = 2 // whose first attempt fails
				}
				if starts > most {
					t.Errorf("%s: run %s started %d times in life %d", key, n, starts, life)
				}
			}
			again += lives - 1
			if r.kept {
				kept++
			}
			if r.kept && r.lastLife > r.keptLife {
				t.Errorf("%s: run %s came again in life %d, though its end was in the store in life %d",
					key, n, r.lastLife, r.keptLife)
			}
		}
		if !s.added || s.leaving {
			continue
		}
		ended := 0
		for _, r := range s.runs {
			if r.ended {
				ended++
			}
		}
		if s.left == 0 && ended < s.times || s.left > 0 && ended+s.left < s.times {
			t.Errorf("%s was to run %d times: %d runs ended, and %d are left (moved: %v)", key, s.times, ended, s.left, s.moved)
		}
	}
	if acknowledged < 100*kills/4 || removed == 0 || ran == 0 || kept == 0 {
		t.Errorf("of %d adds, %d removals, %d runs and %d kept ends there is not much to learn", acknowledged, removed, ran, kept)
	}
	t.Logf("%d kills, %d lines, %d acknowledged adds, %d removals, %d runs, %d of them kept, %d again in another life",
		kills, lines, acknowledged, removed, ran, kept, again)
}

// oneLife starts the process, kills it after a while unless it is the last one, and records its reports.
func oneLife(t *testing.T, dir string, life int, last bool, stories map[string]*story) (lines int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childLife+"="+strconv.Itoa(life))
	if last {
		cmd.Env = append(cmd.Env, childEnds+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !last {
		time.AfterFunc(100*time.Millisecond+rand.N(1400*time.Millisecond), func() { _ = cmd.Process.Kill() })
	}
	ended := false
	for in := bufio.NewScanner(out); in.Scan(); lines++ {
		if in.Text() == "end" {
			ended = true
			continue
		}
		if complaint := listen(stories, life, strings.Fields(in.Text())); complaint != "" {
			t.Errorf("life %d: %q: %s", life, in.Text(), complaint)
		}
	}
	err = cmd.Wait()
	if last && (!ended || err != nil) {
		t.Errorf("the last life did not come to its end: %v", err)
	}
	if !last && cmd.ProcessState.Exited() {
		t.Errorf("life %d ended by itself: %v", life, err)
	}
	return lines
}

// listen records one line, and returns an error if it breaks a promise. The last line of a life may be cut off.
func listen(stories map[string]*story, life int, words []string) string {
	if len(words) < 2 {
		return ""
	}
	key := words[1]
	s := stories[key]
	if s == nil {
		if words[0] != "a" || len(words) < 3 {
			return "of a task that was not added"
		}
		times, _ := strconv.Atoi(words[2])
		stories[key] = &story{times: times, asked: true, runs: map[string]*told{}}
		return ""
	}
	switch words[0] {
	case "A":
		s.added = true
	case "m":
		s.moving = true
	case "M":
		s.moved = true
	case "r":
		s.leaving = true
	case "R":
		s.gone, s.goneLife, s.goneAt = true, life, time.Now()
	case "S":
		// On a busy machine a handler that began before the removal may report it afterwards, but not in another life.
		if s.gone && (life != s.goneLife || time.Since(s.goneAt) > time.Second) {
			return "it was removed, and runs"
		}
		r := s.runs[words[2]]
		if r == nil {
			r = &told{starts: map[int]int{}}
			s.runs[words[2]] = r
		}
		r.starts[life]++
		r.lastLife = life
	case "E":
		s.runs[words[2]].ended = true
	case "K":
		if r := s.runs[words[2]]; !r.kept {
			r.kept, r.keptLife = true, life
		}
	case "L":
		s.left, _ = strconv.Atoi(words[2])
		if s.gone {
			return "it was removed, and is there"
		}
	case "error":
		return "the process failed"
	}
	return ""
}
