// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

var errTrouble = errors.New("trouble")

func loader(calls *atomic.Int64, d time.Duration, value int, err error) func(context.Context, string) (int, error) {
	return func(context.Context, string) (int, error) {
		calls.Add(1)
		time.Sleep(d)
		return value, err
	}
}

func TestGetOrLoad_manyCallers_loadOnce(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var calls, got atomic.Int64
		for range 100 {
			go func() {
				v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, time.Second, 7, nil))
				if v == 7 && err == nil {
					got.Add(1)
				}
			}()
		}
		synctest.Wait()
		if k.Len() != 0 || got.Load() != 0 {
			t.Error("a value is there before it was loaded")
		}
		testkit.Settle(time.Second)
		if calls.Load() != 1 || got.Load() != 100 {
			t.Errorf("%d callers got the value of %d loads", got.Load(), calls.Load())
		}
		if v, err := k.GetOrLoad(k.Context(), "a", nil); v != 7 || err != nil {
			t.Errorf("a value that is there: %d, %v", v, err)
		}
		if s := k.Stats(); s.Loads != 1 || s.LoadErrors != 0 || s.Misses != 100 || s.Hits != 1 {
			t.Errorf("%+v", s)
		}
		testkit.Settle(time.Minute)
		k.wantNone("a")
	})
}

func TestGetOrLoad_keysThatLookTheSame_areNotMixedUp(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		c, err := New(k.tw, Config[any, string]{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, key := range []any{1, "1", int8(1), 1.0} {
			go func() {
				v, err := c.GetOrLoad(k.Context(), key, func(_ context.Context, key any) (string, error) {
					time.Sleep(time.Second)
					return fmt.Sprintf("%T", key), nil
				})
				if want := fmt.Sprintf("%T", key); v != want || err != nil {
					t.Errorf("for the %s it returns %q, %v", want, v, err)
				}
			}()
		}
		testkit.Settle(2 * time.Second)
	})
}

func TestGetOrLoad_error_reachesAllAndIsNotKept(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var calls, got atomic.Int64
		for range 10 {
			go func() {
				if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, time.Second, 7, errTrouble)); err == errTrouble && v == 0 {
					got.Add(1)
				}
			}()
		}
		testkit.Settle(time.Second)
		if calls.Load() != 1 || got.Load() != 10 || k.Len() != 0 {
			t.Errorf("%d callers got the error of %d loads, and %d values are there", got.Load(), calls.Load(), k.Len())
		}
		if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 8, nil)); v != 8 || err != nil {
			t.Errorf("after an error: %d, %v", v, err)
		}
		if s := k.Stats(); s.Loads != 2 || s.LoadErrors != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestGetOrLoad_panic_reachesAllAndHarmsNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var got atomic.Int64
		for range 10 {
			go func() {
				defer func() {
					if recover() == errTrouble {
						got.Add(1)
					}
				}()
				_, _ = k.GetOrLoad(k.Context(), "a", func(context.Context, string) (int, error) {
					time.Sleep(time.Second)
					panic(errTrouble)
				})
			}()
		}
		testkit.Settle(time.Second)
		if got.Load() != 10 {
			t.Errorf("%d of 10 callers got the panic", got.Load())
		}
		var calls atomic.Int64
		if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 8, nil)); v != 8 || err != nil {
			t.Errorf("after a panic: %d, %v", v, err)
		}
		if s := k.Stats(); s.Loads != 2 || s.LoadErrors != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestGetOrLoad_goexit_isAnError(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		v, err := k.GetOrLoad(k.Context(), "a", func(context.Context, string) (int, error) {
			runtime.Goexit()
			return 1, nil
		})
		if v != 0 || err != errGoexit || k.Len() != 0 {
			t.Errorf("it returns %d, %v", v, err)
		}
	})
}

type contextKey struct{}

func TestGetOrLoad_callerLeaves_theOthersGetTheValue(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		cause := errors.New("no more patience")
		ctx, cancel := context.WithCancelCause(context.WithValue(k.Context(), contextKey{}, "first"))
		var value any
		var left, got atomic.Bool
		load := func(ctx context.Context, _ string) (int, error) {
			value = ctx.Value(contextKey{})
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Minute):
				return 7, nil
			}
		}
		go func() {
			_, err := k.GetOrLoad(ctx, "a", load)
			left.Store(err == cause)
		}()
		synctest.Wait()
		go func() {
			v, err := k.GetOrLoad(k.Context(), "a", load)
			got.Store(v == 7 && err == nil)
		}()
		testkit.Settle(time.Second)
		cancel(cause)
		synctest.Wait()
		if !left.Load() || got.Load() || value != "first" {
			t.Errorf("the first caller has left: %v, the other has a value: %v; the context has the value %v",
				left.Load(), got.Load(), value)
		}
		testkit.Settle(time.Minute)
		if !got.Load() {
			t.Error("the other did not get the value")
		}
	})
}

func TestGetOrLoad_allCallersLeave_theLoadIsToldSo(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		ctx, cancel := context.WithCancel(k.Context())
		var told atomic.Bool
		for range 3 {
			go func() {
				_, _ = k.GetOrLoad(ctx, "a", func(ctx context.Context, _ string) (int, error) {
					<-ctx.Done()
					told.Store(true)
					return 0, ctx.Err()
				})
			}()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !told.Load() || flights(k.Cache) != 0 {
			t.Errorf("the load was canceled: %v, and %d are in progress", told.Load(), flights(k.Cache))
		}
	})
}

func TestGetOrLoad_whatIsSetMeanwhile_stays(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var calls atomic.Int64
		for _, c := range []struct {
			name      string
			meanwhile func()
			there     bool
			value     int
		}{
			{"set", func() { k.Set("a", 1) }, true, 1},
			{"deleted", func() { k.Delete("a") }, false, 0},
			{"set and deleted", func() { k.Set("a", 1); k.Delete("a") }, false, 0},
			{"set and over", func() { k.SetTTL("a", 1, 1) }, false, 0},
			{"another key", func() { k.Set("b", 1) }, true, 7},
		} {
			k.Delete("a")
			var got int
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				got, _ = k.GetOrLoad(k.Context(), "a", loader(&calls, time.Second, 7, nil))
			}()
			testkit.Settle(time.Millisecond)
			c.meanwhile()
			<-ended
			if v, ok := k.Get("a"); got != 7 || ok != c.there || v != c.value {
				t.Errorf("%s: the caller got %d, and then there is %d, %v", c.name, got, v, ok)
			}
		}
	})
}

func TestGetOrLoad_afterADelete_loadsAnew(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var old, fresh atomic.Int64
		go func() {
			if v, _ := k.GetOrLoad(k.Context(), "a", loader(&old, time.Second, 1, nil)); v != 1 {
				t.Errorf("the first caller got %d", v)
			}
		}()
		testkit.Settle(time.Millisecond)
		k.Delete("a")
		if v, _ := k.GetOrLoad(k.Context(), "a", loader(&fresh, time.Millisecond, 2, nil)); v != 2 {
			t.Errorf("after the Delete it returns %d", v)
		}
		testkit.Settle(time.Second)
		k.want("a", 2)
	})
}

// A load that all callers have abandoned may still be running, and may end after another load has stored the value.
func TestGetOrLoad_loadThatNobodyWaitsFor_doesNotOverwrite(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		var calls atomic.Int64
		ctx, cancel := context.WithTimeout(k.Context(), time.Millisecond)
		defer cancel()
		if _, err := k.GetOrLoad(ctx, "a", loader(&calls, time.Second, 1, nil)); err != context.DeadlineExceeded {
			t.Errorf("the error is %v", err)
		}
		if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, time.Millisecond, 2, nil)); v != 2 || err != nil {
			t.Errorf("the second caller got %d, %v", v, err)
		}
		testkit.Settle(2 * time.Second)
		k.want("a", 2)
		if calls.Load() != 2 {
			t.Errorf("%d loads, want 2", calls.Load())
		}
	})
}

func TestGetOrLoad_closed_keepsNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		k.Close()
		var calls atomic.Int64
		if v, err := k.GetOrLoad(k.Context(), "a", loader(&calls, 0, 7, nil)); v != 7 || err != nil || k.Len() != 0 {
			t.Errorf("it returns %d, %v", v, err)
		}
	})
}

// A caller that arrives just after the value was set or loaded does not load it again.
func TestJoin_valueHasComeSince_isNotLoadedAgain(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		k.Set("a", 1)
		f, first, v, err := k.shardOf("a").join(k.Context(), "a")
		if f != nil || first || v != 1 || err != nil {
			t.Errorf("it returns %v, %v, %d, %v", f, first, v, err)
		}
	})
}

// The result of a load that all callers have abandoned may be stale by the time it arrives.
func TestGetOrLoad_loadThatNobodyWaitsFor_isNotKept(t *testing.T) {
	for name, meanwhile := range map[string]func(k *kit){
		"nothing":      func(*kit) {},
		"deleted":      func(k *kit) { k.Delete("a") },
		"set and over": func(k *kit) { k.SetTTL("a", 2, time.Millisecond) },
	} {
		in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
			var calls atomic.Int64
			ctx, cancel := context.WithCancel(k.Context())
			go func() { _, _ = k.GetOrLoad(ctx, "a", loader(&calls, time.Second, 1, nil)) }()
			synctest.Wait()
			cancel()
			synctest.Wait()
			meanwhile(k)
			testkit.Settle(2 * time.Second)
			k.wantNone("a")
			if calls.Load() != 1 {
				t.Errorf("%s: %d loads", name, calls.Load())
			}
		})
	}
}

// When a loaded value evicts another, OnEvict is called on a caller's goroutine, as by Set.
func TestGetOrLoad_onEvict_mayPanicOrEndTheGoroutineOrLoad(t *testing.T) {
	var k *kit
	does := func() {}
	config := Config[string, int]{TTL: time.Minute, MaxEntries: 1, OnEvict: func(string, int, Reason) { does() }}
	in(t, config, func(got *kit) {
		k = got
		var calls atomic.Int64
		load := loader(&calls, time.Second, 7, nil)
		k.Set("b", 1)

		does = func() { panic(errTrouble) }
		func() {
			defer func() {
				if recover() != errTrouble {
					t.Error("the panic does not reach the caller")
				}
			}()
			_, _ = k.GetOrLoad(k.Context(), "a", load)
		}()
		k.want("a", 7)

		does = runtime.Goexit // of the caller that stores the value, whichever that is
		var callers sync.WaitGroup
		var served atomic.Int64
		for range 3 {
			callers.Go(func() {
				if v, err := k.GetOrLoad(k.Context(), "b", load); v == 7 && err == nil {
					served.Add(1)
				}
			})
		}
		callers.Wait()
		if served.Load() != 2 {
			t.Errorf("%d of the 2 other callers served the value", served.Load())
		}

		nested := 0
		does = func() {
			if nested++; nested < 5 {
				if v, err := k.GetOrLoad(k.Context(), string(rune('p'+nested%2)), load); v != 7 || err != nil {
					t.Errorf("in OnEvict: %d, %v", v, err)
				}
			}
		}
		if v, err := k.GetOrLoad(k.Context(), "p", load); v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		does = func() {}
		if n := flights(k.Cache); n != 0 {
			t.Errorf("%d loads are in progress", n)
		}
	})
}
