// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A scheduler with a long tick starts runs late, but not too late.
func TestExpires_belowTheTick(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		for i, expires := range []time.Duration{1, time.Millisecond, 2 * time.Second} {
			k.Add(durable.Task{Key: string(rune('a' + i)), Kind: "note", Delay: 3100 * time.Millisecond, Expires: expires})
		}
		k.Handle("k", ok)
		k.After(20 * time.Second)
		for _, n := range k.Nodes {
			if st := n.Stats(); st.Expired > 0 {
				t.Errorf("%d tasks have expired", st.Expired)
			}
		}
	}, durable.WithTick(3*time.Second))
}

func TestWithNodeName_bounds(t *testing.T) {
	long := strings.Repeat("ü", durable.MaxNodeName/2)
	for name, allowed := range map[string]bool{
		"web-1": true, long: true, "": false, long + "u": false, strings.Repeat("x", 64<<10): false, "\xff": false, "a\x00b": false,
	} {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			s, err := durable.New(ctx, memory.New().Shared(), durable.WithNodeName(name))
			if (err == nil) != allowed {
				t.Errorf("the name %.20q of %d bytes: %v", name, len(name), err)
			}
			if err == nil {
				k.Must(s.Shutdown(ctx))
			}
		})
	}
}

// A caller of Cancel that gives up does not wait for a node that does not answer.
func TestCancel_callerThatGivesUp(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.After(time.Second)
		k.Nodes[1].Link.SetDown(true)
		within, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := k.Nodes[0].Cancel(within, "a")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 400*time.Millisecond {
			t.Errorf("Cancel returns %v after %v", err, took)
		}
		k.Nodes[1].Link.SetDown(false)
	})
}

// A stuckEngine does not answer Leave for a while, whatever its context.
type stuckEngine struct{ engine.Engine }

func (e stuckEngine) Leave(ctx context.Context, by engine.MemberID) error {
	time.Sleep(time.Minute)
	return e.Engine.Leave(ctx, by)
}

// The error of a shutdown speaks of what there is: a node has an engine, and no store.
func TestShutdown_ofANode_whoseEngineDoesNotAnswer(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		n := k.Join(func(to engine.Engine) engine.Engine { return stuckEngine{to} }).Start()
		k.After(time.Second)
		k.Nodes = k.Nodes[:1]
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		want := "durable: shutdown: the engine has not answered, and the node has not left it yet"
		if err := n.Shutdown(within); err == nil || err.Error() != want {
			t.Errorf("Shutdown returns %v, want %s", err, want)
		}
		k.After(10 * time.Minute)
	})
}
