// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A load that fails is over: the next load has the context of a caller that is waiting for it, also if there has always
// been a caller.
func TestGetOrLoad_failingHotKey_eachLoadHasTheContextOfACallerThatWaits(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var loads int
		load := func(ctx context.Context, _ string) (int, error) {
			loads++
			if over := ctx.Value(contextKey{}).(*atomic.Bool); over.Load() {
				t.Errorf("load %d has the context of a caller that has left", loads)
			}
			time.Sleep(10 * time.Millisecond)
			return 0, errTrouble
		}
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // so that there is always one
				for range 50 {
					var over atomic.Bool
					if _, err := k.GetOrLoad(context.WithValue(k.Context(), contextKey{}, &over), "a", load); err != errTrouble {
						t.Errorf("the error is %v", err)
					}
					over.Store(true)
				}
			})
		}
		callers.Wait()
		if loads < 50 {
			t.Errorf("there were %d loads", loads)
		}
	})
}

func TestGetOrLoad_contextThatIsDone_beginsNoLoad(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		ctx, cancel := context.WithCancelCause(k.Context())
		cancel(errTrouble)
		var calls atomic.Int64
		if v, err := k.GetOrLoad(ctx, "a", loader(&calls, 0, 7, nil)); v != 0 || err != errTrouble {
			t.Errorf("it returns %d, %v", v, err)
		}
		if testkit.Settle(0); calls.Load() != 0 {
			t.Error("it has loaded")
		}
		k.Set("a", 1)
		if v, err := k.GetOrLoad(ctx, "a", nil); v != 1 || err != nil {
			t.Errorf("with a value it returns %d, %v", v, err)
		}
	})
}

// A caller that missed, and finds the value that was set in between, does not store it again.
func TestJoin_valueThatWasSetSince_isNotStoredAgain(t *testing.T) {
	for _, bound := range []int{0, 10} {
		in(t, Config[string, int]{TTL: time.Hour, MaxEntries: bound}, func(k *kit) {
			k.SetTTL("a", 1, time.Millisecond)
			if v, err := k.fetch(k.Context(), "a", 0, false, nil); v != 1 || err != nil { // as after a miss
				t.Errorf("it returns %d, %v", v, err)
			}
			testkit.Settle(time.Millisecond)
			k.wantNone("a")
			testkit.Settle(time.Second)
			k.wantTold("a=1 expired")
		})
	}
}

func TestGetOrLoad_requestsItsOwnKey_isAnError(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		other, err := New(k.tw, Config[int, string]{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		next := map[string]string{"a": "a", "b": "c", "c": "d", "d": "b", "e": "f"}
		var load func(ctx context.Context, key string) (int, error)
		load = func(ctx context.Context, key string) (int, error) {
			to, ok := next[key]
			if !ok {
				return 7, nil
			}
			if key == "c" { // through another cache
				_, err := other.GetOrLoad(ctx, 3, func(ctx context.Context, _ int) (string, error) {
					_, err := k.GetOrLoad(ctx, to, load)
					return "", err
				})
				return 0, err
			}
			return k.GetOrLoad(ctx, to, load)
		}
		for key, want := range map[string]error{"a": errOwnKey, "b": errOwnKey, "e": nil} {
			v, err := k.GetOrLoad(k.Context(), key, load)
			if err != want || want == nil && v != 7 {
				t.Errorf("%q: it returns %d, %v", key, v, err)
			}
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			k.wantNone(key)
		}
	})
}

func TestGetOrLoadTTL_theLoadSaysHowLong(t *testing.T) {
	config := Config[string, int]{TTL: time.Hour, ErrorTTL: time.Hour}
	for _, c := range []struct {
		ttl, is time.Duration
		err     error
	}{
		{time.Second, time.Second, nil}, {0, 0, nil}, {-1, 0, nil},
		{time.Second, time.Second, errTrouble}, {0, 0, errTrouble}, {-1, 0, errTrouble},
	} {
		in(t, config, func(k *kit) {
			calls := 0
			load := func(context.Context, string) (int, time.Duration, error) {
				calls++
				return calls, c.ttl, c.err
			}
			want := func(load1, load2 int) {
				t.Helper()
				v, err := k.GetOrLoadTTL(k.Context(), "a", load)
				if calls != load2 || err != c.err || err == nil && v != load1 || err != nil && v != 0 {
					t.Errorf("%v, %v: after %d loads it returns %d, %v, want that of load %d", c.ttl, c.err, calls, v, err, load1)
				}
			}
			want(1, 1)
			if c.is == 0 {
				want(2, 2)
				return
			}
			testkit.Settle(c.is - 1)
			want(1, 1)
			testkit.Settle(1)
			want(2, 2)
		})
	}
}

func TestErrorTTL_remembersAnError(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, ErrorTTL: time.Second}, func(k *kit) {
		var calls atomic.Int64
		want := func(loads int64, err error) {
			t.Helper()
			if _, got := k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 0, errTrouble)); got != err || calls.Load() != loads {
				t.Errorf("after %d loads the error is %v, want %v after %d", calls.Load(), got, err, loads)
			}
		}
		want(1, errTrouble)
		testkit.Settle(time.Second - 1)
		want(1, errTrouble)
		if n := k.Len(); n != 0 {
			t.Errorf("%d values are there", n)
		}
		testkit.Settle(1)
		want(2, errTrouble)
		testkit.Settle(10 * time.Second)
		if n := flights(k.Cache) + k.tw.Len(); n != 0 {
			t.Errorf("%d errors are remembered, or have timers", n)
		}
		want(3, errTrouble)
		for i, forget := range []func(){
			func() { k.Set("a", 1); k.Delete("a") }, func() { k.Delete("a") }, k.Purge,
			func() { k.Compute("a", returns(0, DeleteOp)) },
		} {
			forget()
			want(int64(4+i), errTrouble)
		}
		k.Set("a", 1)
		want(7, nil)
	})
}

// However late the wheel is, an error is not returned after its time.
func TestErrorTTL_endsHoweverLateTheWheelIs(t *testing.T) {
	for _, refresh := range []time.Duration{0, 1} {
		in(t, Config[string, int]{TTL: time.Minute, ErrorTTL: time.Second, RefreshAfter: refresh}, func(k *kit) {
			k.tw.Stop() // so late that it never comes
			var calls atomic.Int64
			load := loader(&calls, 0, 0, errTrouble)
			k.Set("b", 1)
			testkit.Settle(1)
			for i := range int64(3) {
				_, _ = k.GetOrLoad(k.Context(), "a", load)
				if refresh > 0 {
					_, _ = k.GetOrLoad(k.Context(), "b", load)
					testkit.Settle(0)
				}
				if n := calls.Load(); n != (i+1)*int64(1+refresh) {
					t.Errorf("there were %d loads", n)
				}
				testkit.Settle(time.Second)
			}
		})
	}
}

// A context that was done, and a panic, say nothing about the key.
func TestErrorTTL_remembersNeitherAPanicNorThatAllLeft(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, ErrorTTL: time.Minute}, func(k *kit) {
		func() {
			defer func() { _ = recover() }()
			_, _ = k.GetOrLoad(k.Context(), "a", func(context.Context, string) (int, error) { panic(errTrouble) })
		}()
		ctx, cancel := context.WithTimeout(k.Context(), time.Second)
		defer cancel()
		_, _ = k.GetOrLoad(ctx, "b", func(ctx context.Context, _ string) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		testkit.Settle(0)
		var calls atomic.Int64
		for _, key := range []string{"a", "b"} {
			if v, err := k.GetOrLoad(k.Context(), key, loader(&calls, 0, 7, nil)); v != 7 || err != nil {
				t.Errorf("%q: then it returns %d, %v", key, v, err)
			}
		}
	})
}

func TestErrorTTL_closed_remembersNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, ErrorTTL: time.Minute}, func(k *kit) {
		var calls atomic.Int64
		k.SetTTL("x", 1, time.Second)
		_, _ = k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 7, errTrouble))
		k.Close()
		_, _ = k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 7, errTrouble))
		if n := flights(k.Cache) + k.tw.Len(); n != 0 || calls.Load() != 2 {
			t.Errorf("after %d loads %d errors are remembered", calls.Load(), n)
		}
	})
}

func TestRefreshAfter_oldValueIsReturned_whileOneLoadReplacesIt(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, RefreshAfter: 10 * time.Second}, func(k *kit) {
		var calls atomic.Int64
		get := func(want int) {
			t.Helper()
			begin := time.Now()
			if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, time.Second, int(calls.Load())+2, nil)); v != want || err != nil {
				t.Errorf("it returns %d, %v, want %d", v, err, want)
			}
			if d := time.Since(begin); d != 0 {
				t.Errorf("the caller waits for %v", d)
			}
		}
		k.Set("a", 1)
		testkit.Settle(10*time.Second - 1)
		get(1)
		testkit.Settle(0)
		if calls.Load() != 0 {
			t.Error("a value that is not old is loaded again")
		}
		testkit.Settle(1)
		for range 10 {
			get(1)
		}
		testkit.Settle(time.Second - 1)
		get(1)
		testkit.Settle(1)
		get(2)
		if s := k.Stats(); calls.Load() != 1 || s.Loads != 1 || s.Replaced != 1 {
			t.Errorf("after %d loads: %+v", calls.Load(), s)
		}
		k.wantTold("a=1 replaced")
		if end, _ := k.Expires("a"); time.Until(end) != time.Minute {
			t.Errorf("the new value lives for %v", time.Until(end))
		}
		k.want("a", 2)
		testkit.Settle(20 * time.Second)
		k.want("a", 2) // Get loads nothing
		testkit.Settle(0)
		if calls.Load() != 1 {
			t.Error("Get has loaded")
		}
		k.Touch("a") // counts as new
		get(2)
		testkit.Settle(time.Minute)
		if calls.Load() != 1 {
			t.Error("a value that was touched is loaded again")
		}
	})
}

// What ends a load ends it here, too; a load that fails leaves the old value.
func TestRefreshAfter_meanwhile(t *testing.T) {
	for _, c := range []struct {
		name      string
		meanwhile func(k *kit)
		err       error
		value     int // afterwards; 0: none
		canceled  bool
	}{
		{"nothing", func(*kit) {}, nil, 7, false},
		{"it fails", func(*kit) {}, errTrouble, 1, false},
		{"set", func(k *kit) { k.Set("a", 2) }, nil, 2, true},
		{"deleted", func(k *kit) { k.Delete("a") }, nil, 0, true},
		{"purged", (*kit).Purge, nil, 0, true},
		{"closed", (*kit).Close, nil, 0, true},
		{"kept", func(k *kit) { k.Compute("a", returns(2, KeepOp)) }, nil, 7, false},
		{"updated", func(k *kit) { k.Compute("a", returns(2, UpdateOp)) }, nil, 2, true},
		{"expired", func(*kit) { testkit.Settle(time.Minute) }, nil, 7, false},
		{"a caller waits, and leaves", func(k *kit) {
			testkit.Settle(time.Minute) // the old value has expired
			ctx, cancel := context.WithTimeout(k.Context(), time.Second)
			defer cancel()
			if _, err := k.GetOrLoad(ctx, "a", nil); err != context.DeadlineExceeded {
				k.Errorf("a caller gets %v", err)
			}
		}, nil, 7, false},
		{"a caller waits, and the key is deleted", func(k *kit) {
			testkit.Settle(time.Minute)
			ctx, cancel := context.WithTimeout(k.Context(), time.Second)
			defer cancel()
			go func() {
				time.Sleep(time.Millisecond)
				k.Delete("a")
			}()
			_, _ = k.GetOrLoad(ctx, "a", nil)
			testkit.Settle(0)
		}, nil, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, Config[string, int]{TTL: time.Minute, RefreshAfter: time.Second}, func(k *kit) {
				k.Set("a", 1)
				testkit.Settle(time.Second)
				begins, goOn := make(chan context.Context, 1), make(chan bool)
				ctx, cancel := context.WithCancel(context.WithValue(k.Context(), contextKey{}, "first"))
				v, err := k.GetOrLoad(ctx, "a", func(ctx context.Context, _ string) (int, error) {
					begins <- ctx
					<-goOn
					return 7, c.err
				})
				cancel()
				if v != 1 || err != nil {
					t.Errorf("the caller gets %d, %v", v, err)
				}
				loads := <-begins
				if loads.Err() != nil || loads.Value(contextKey{}) != "first" {
					t.Errorf("the load has a context with %v, %v", loads.Value(contextKey{}), loads.Err())
				}
				c.meanwhile(k)
				if canceled := loads.Err() != nil; canceled != c.canceled {
					t.Errorf("the context is done: %v", canceled)
				}
				close(goOn)
				testkit.Settle(0)
				if v, ok := k.Get("a"); v != c.value || ok != (c.value != 0) {
					t.Errorf("then there is %d, %v", v, ok)
				}
				if n := flights(k.Cache); n != 0 || loads.Err() == nil {
					t.Errorf("%d loads are under way, and the context is done: %v", n, loads.Err())
				}
			})
		})
	}
}

// A caller that found an old value does not load a value that was set since.
func TestRefresh_valueThatWasSetSince_isNotLoadedAgain(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, RefreshAfter: time.Second}, func(k *kit) {
		k.Set("a", 1)
		testkit.Settle(time.Second)
		for _, change := range []func(){func() { k.Set("a", 2) }, func() { k.Delete("a") }} {
			change()
			if f := k.shardOf("a").refresh(k.Context(), "a"); f != nil {
				t.Error("it loads")
			}
		}
	})
}

// A remembered error keeps the value from being loaded again.
func TestRefreshAfter_withErrorTTL_triesAgainWhenTheErrorIsForgotten(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Hour, RefreshAfter: time.Second, ErrorTTL: 10 * time.Second}, func(k *kit) {
		k.Set("a", 1)
		var calls atomic.Int64
		for i := range 40 {
			testkit.Settle(time.Second)
			if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 0, errTrouble)); v != 1 || err != nil {
				t.Errorf("after %d s it returns %d, %v", i, v, err)
			}
		}
		testkit.Settle(0)
		if n := calls.Load(); n != 4 {
			t.Errorf("there were %d loads, want one in ten seconds", n)
		}
	})
}

// No caller waits for a load in the background. So the wheel handles its panic, and that of OnEvict.
func TestRefreshAfter_panic_isHandledByTheWheel(t *testing.T) {
	for name, inLoad := range map[string]bool{"of load": true, "of OnEvict": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var panics []any
				tw, err := timewheel.New(tick, 64, timewheel.WithLogger(testkit.Quiet()),
					timewheel.WithPanicHandler(func(_ *timewheel.Task, reason any, _ []byte) {
						mu.Lock()
						defer mu.Unlock()
						panics = append(panics, reason)
					}))
				if err != nil {
					t.Fatal(err)
				}
				defer tw.Stop()
				tw.Start()
				c, err := New(tw, Config[string, int]{TTL: time.Minute, RefreshAfter: 1, OnEvict: func(string, int, Reason) {
					if !inLoad {
						panic(errTrouble)
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				c.Set("a", 1)
				testkit.Settle(1)
				v, err := c.GetOrLoad(t.Context(), "a", func(context.Context, string) (int, error) {
					if inLoad {
						panic(errTrouble)
					}
					return 2, nil
				})
				if v != 1 || err != nil {
					t.Errorf("the caller gets %d, %v", v, err)
				}
				testkit.Settle(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(panics, []any{errTrouble}) {
					t.Errorf("the wheel handles the panics %v", panics)
				}
				if s := c.Stats(); s.LoadErrors == 1 != inLoad || s.Loads != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestPurge_leavesNothing_andTheCacheGoesOn(t *testing.T) {
	for _, bound := range []int{0, 100} {
		in(t, Config[string, int]{TTL: time.Minute, MaxEntries: bound}, func(k *kit) {
			var want []string
			for i := range 50 {
				k.Set(fmt.Sprint(i), i)
				want = append(want, fmt.Sprint(i, "=", i, " deleted"))
			}
			var calls atomic.Int64
			got := make(chan int)
			go func() {
				v, _ := k.GetOrLoad(k.Context(), "loading", loader(&calls, time.Second, 7, nil))
				got <- v
			}()
			testkit.Settle(time.Millisecond)
			k.Purge()
			k.wantTold(want...)
			if n := k.Len() + k.tw.Len(); n != 0 {
				t.Errorf("%d values and timers are left", n)
			}
			if v := <-got; v != 7 {
				t.Errorf("the caller that waited gets %d", v)
			}
			k.wantNone("loading")
			k.Set("0", 1)
			k.want("0", 1)
			k.Purge()
			k.Close()
			k.Purge()
			k.Set("0", 1)
			k.wantTold("0=1 deleted")
			k.wantNone("0")
		})
	}
}

func TestPeekAndExpires_changeNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, TouchOnGet: true, MaxEntries: 2}, func(k *kit) {
		k.Set("a", 1)
		testkit.Settle(time.Second)
		k.Set("b", 2)
		for range 2 {
			if v, ok := k.Peek("a"); v != 1 || !ok {
				t.Errorf("Peek returns %d, %v", v, ok)
			}
			if end, ok := k.Expires("a"); time.Until(end) != 59*time.Second || !ok {
				t.Errorf("it expires in %v, %v", time.Until(end), ok)
			}
		}
		for _, key := range []string{"none", "c"} {
			if v, ok := k.Peek(key); v != 0 || ok {
				t.Errorf("%q: Peek returns %d, %v", key, v, ok)
			}
			if end, ok := k.Expires(key); !end.IsZero() || ok {
				t.Errorf("%q: it expires at %v, %v", key, end, ok)
			}
		}
		if s := k.Stats(); s.Hits+s.Misses != 0 {
			t.Errorf("they count as lookups: %+v", s)
		}
		k.Set("c", 3) // a was used least recently
		k.wantTold("a=1 evicted")
		k.tw.Stop()
		testkit.Settle(time.Minute)
		if _, ok := k.Peek("b"); ok {
			t.Error("Peek returns an expired value")
		}
		if _, ok := k.Expires("b"); ok {
			t.Error("an expired value will expire")
		}
	})
}

// The stack does not grow with the number of calls that panic or end the goroutine, and the first panic continues.
func TestOnEvict_thatAlwaysFails_isCalledForAll(t *testing.T) {
	for name, does := range map[string]func(n int){
		"panic": func(n int) { panic(n) }, "Goexit": func(int) { runtime.Goexit() },
		"both": func(n int) {
			if n%2 == 0 {
				panic(n)
			}
			runtime.Goexit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 5 * chunk
				tw := timewheel.NewTimeWheel(tick, 64, timewheel.WithLogger(testkit.Quiet()))
				defer tw.Stop()
				tw.Start()
				told, deepest, of := 0, 0, make([]byte, 1<<20)
				c, err := New(tw, Config[int, int]{TTL: time.Second, MaxEntries: 2 * n, OnEvict: func(int, int, Reason) {
					told++
					if told%512 == 0 {
						deepest = max(deepest, strings.Count(string(of[:runtime.Stack(of, false)]), "\n"))
					}
					does(told - 1)
				}})
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					c.Set(i, i)
				}
				testkit.Settle(2 * time.Second)
				if told != n {
					t.Errorf("in the wheel it was called %d times of %d", told, n)
				}
				told = 0
				for i := range n {
					c.Set(i, i)
				}
				var reason any
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { reason = recover() }()
					c.Close()
				}()
				<-ended
				if told != n || name != "Goexit" && reason != 0 {
					t.Errorf("by Close it was called %d times of %d, and the panic is %v", told, n, reason)
				}
				if deepest > 60 {
					t.Errorf("the stack had %d lines", deepest)
				}
			})
		})
	}
}

// Loads with any outcome, removals and purges at once, for the race detector: every stored value leaves the cache once.
func TestLoads_manyGoroutines_everyValueLeavesOnce(t *testing.T) {
	tw := timewheel.NewTimeWheel(tick, 64)
	tw.Start()
	var mu sync.Mutex
	left := make(map[int64]int)
	c, err := New(tw, Config[int, int64]{
		TTL: 3 * time.Millisecond, ErrorTTL: time.Millisecond, RefreshAfter: time.Millisecond, MaxWeight: 60,
		Weigh: func(int, int64) int64 { return 2 },
		OnEvict: func(_ int, value int64, _ Reason) {
			mu.Lock()
			defer mu.Unlock()
			left[value]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var last atomic.Int64
	load := func(ctx context.Context, key int) (int64, error) {
		n := last.Add(1)
		if n%8 == 0 {
			time.Sleep(time.Millisecond)
		}
		if n%5 == 0 {
			return n, errors.New("no")
		}
		return n, nil
	}
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 5000 {
				key := (i*7 + w) % 40
				switch i % 10 {
				case 0:
					c.Delete(key)
				case 1:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%100)*time.Microsecond)
					_, _ = c.GetOrLoad(ctx, key, load)
					cancel()
				case 2:
					if i%500 == 2 {
						c.Purge()
					}
				default:
					_, _ = c.GetOrLoad(t.Context(), key, load)
				}
			}
		})
	}
	workers.Wait()
	c.Close()
	for end := time.Now().Add(time.Minute); flights(c) > 0 || c.Stats().Loads < uint64(last.Load()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d loads are under way", flights(c))
		}
	}
	tw.Stop()
	if err := tw.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	var total uint64
	for v, times := range left {
		if total++; times != 1 || v%5 == 0 {
			t.Fatalf("value %d has left %d times", v, times)
		}
	}
	if s := c.Stats(); s.Expired+s.Replaced+s.Deleted+s.Evicted+s.Closed != total || total == 0 || s.Loads != uint64(last.Load()) {
		t.Errorf("%d values have left after %d loads: %+v", total, last.Load(), s)
	}
}
