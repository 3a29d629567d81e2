// SPDX-License-Identifier: MIT

package histories

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/anishathalye/porcupine"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// makeInMemory makes a history on the engine in memory, in virtual time. The engine has the given mistake, or none.
func makeInMemory(t *testing.T, seed uint64, mistake string) *history {
	d := &driver{seed: seed, history: history{virtual: true}}
	synctest.Test(t, func(t *testing.T) {
		var renewsNot [2]atomic.Int64 // until when each node does not renew its lease
		shared := &mistaken{Engine: memory.New().Shared(), mistake: mistake, read: make(map[string]read)}
		var links []*enginetest.Link
		for i := range 2 {
			link := enginetest.NewLink(shared)
			links = append(links, link)
			var own engine.Engine = link
			if mistake == "a commit whose answer is lost is sent again" {
				own = again{link}
			}
			d.join(t, own)
			time.Sleep(some(draws(seed, "join", i), 10*time.Millisecond))
			calls := make(map[string]int)
			link.SetFaults(func(method string) (f enginetest.Fault) {
				if method == "Renew" && time.Now().UnixNano() < renewsNot[i].Load() {
					return enginetest.Fault{Fail: true}
				}
				calls[method]++
				rnd := draws(seed, "fault", i, method, calls[method])
				switch p := rnd.IntN(100); {
				case p < 6:
					f.Lose = true
				case p < 9:
					f.Fail = true
				case p < 30:
					f.Delay = some(rnd, 20*time.Millisecond)
				case p < 33:
					f.Delay = some(rnd, lease)
					f.Lose = rnd.IntN(2) == 0
				}
				return f
			})
		}
		var trouble sync.WaitGroup
		trouble.Go(func() {
			rnd := draws(seed, "trouble")
			for range 2 {
				time.Sleep(some(rnd, 200*time.Millisecond))
				renewsNot[rnd.IntN(2)].Store(time.Now().Add(lease + some(rnd, lease)).UnixNano())
			}
		})
		d.drive(t)
		trouble.Wait()
		for _, link := range links {
			link.SetFaults(nil)
		}
		d.settle(t)
	})
	return &d.history
}

func TestHistories_inMemory_areLinearizable(t *testing.T) {
	n := *count
	if testing.Short() {
		n = min(n, 100)
	}
	var all tally
	for seed := *fromSeed; seed < *fromSeed+uint64(n); seed++ {
		all.check(t, makeInMemory(t, seed, ""), fmt.Sprintf("go test -run inMemory -histories 1 -seed %d", seed))
	}
	all.report(t)
}

// Mistakes built into the engine are found.
func TestHistories_ofAnEngineWithAMistake_areRefused(t *testing.T) {
	for _, mistake := range []string{
		"an add succeeds on a present key", "a read is stale", "every start is confirmed",
		"a run ends whatever its revision", "a commit is forgotten", "a commit whose answer is lost is sent again",
		"a paused task starts", "a pause is forgotten", "no verb waits for a run that may begin",
	} {
		t.Run(mistake, func(t *testing.T) {
			const most = 100
			for seed := range uint64(most) {
				if makeInMemory(t, seed, mistake).check() == porcupine.Illegal {
					t.Logf("found by seed %d", seed)
					return
				}
			}
			t.Errorf("%d histories have not found it", most)
		})
	}
}

// mistaken is an engine with a mistake.
type mistaken struct {
	engine.Engine
	mistake string

	mu      sync.Mutex // protects below
	commits int
	read    map[string]read
}

// A read is the answer of a Get.
type read struct {
	s  []engine.Stored
	at time.Time
}

func (m *mistaken) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	m.mu.Lock()
	m.commits++
	forget := m.commits%20 == 0 && m.mistake == "a commit is forgotten"
	m.mu.Unlock()
	results := make([]engine.Result, len(batches))
	for i, batch := range batches {
		for j := range batch {
			switch w := &batch[j]; {
			case w.Note:
			case m.mistake == "an add succeeds on a present key" && w.If == engine.IfAbsent:
				w.If = engine.Always
			case m.mistake == "a run ends whatever its revision" && w.If == engine.IfUnchanged:
				w.If = engine.IfPresent
			case m.mistake == "a pause is forgotten" && w.Data != nil && paused(w.Record):
				if s, _ := m.Engine.Get(ctx, w.Key); len(s) > 0 {
					w.Record, w.Hold = s[0].Record, false
				}
			}
			results[i].Written = append(results[i].Written, engine.Written{})
		}
	}
	if forget {
		return results, nil
	}
	return m.Engine.Commit(ctx, by, batches)
}

func (m *mistaken) Get(ctx context.Context, keys ...string) ([]engine.Stored, error) {
	if m.mistake != "a read is stale" || len(keys) != 1 {
		return m.Engine.Get(ctx, keys...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keys[0]
	if old, seen := m.read[key]; seen && time.Since(old.at) < 50*time.Millisecond {
		return old.s, nil
	}
	s, err := m.Engine.Get(ctx, key)
	m.read[key] = read{s, time.Now()}
	return s, err
}

func (m *mistaken) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) ([]bool, int64, error) {
	if m.mistake == "no verb waits for a run that may begin" {
		within = 0
	}
	held, now, err := m.Engine.Confirm(ctx, by, claims, within)
	if len(claims) > 0 && claims[0].Revision%4 == 0 {
		time.Sleep(60 * time.Millisecond) // the answer is on its way
	}
	for i := range held {
		switch m.mistake {
		case "every start is confirmed":
			held[i] = true
		case "a paused task starts":
			s, _ := m.Engine.Get(ctx, claims[i].Key)
			held[i] = held[i] || len(s) > 0 && paused(s[0].Record)
		}
	}
	return held, now, err
}

func paused(r engine.Record) bool {
	info, err := durable.InfoOf(r)
	return err == nil && info.State == durable.Paused
}

// again is an engine that repeats a failed commit.
type again struct{ engine.Engine }

func (e again) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	results, err := e.Engine.Commit(ctx, by, batches)
	if err != nil && ctx.Err() == nil {
		results, err = e.Engine.Commit(ctx, by, batches)
	}
	return results, err
}
