// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// one returns the task of the key, and whether there is one.
func one(e engine.Engine, key string) (s engine.Stored, ok bool, err error) {
	found, err := e.Get(ctx, key)
	if err != nil || len(found) == 0 {
		return s, false, err
	}
	return found[0], true, nil
}

// membersOf returns the members of the engine.
func membersOf(e engine.Engine) ([]engine.Membership, error) {
	all, _, err := e.Renew(ctx, 0, nil)
	return all, err
}

// pausesNote is the name of the note that lists the paused kinds.
const pausesNote = "pauses"

// noteAt returns the write of a note with that revision, or of a new note if it is 0.
func noteAt(name string, data []byte, revision int64) engine.Write {
	w := engine.Write{Record: engine.Record{Key: name, Data: data}, Note: true, If: engine.IfUnchanged, Revision: revision}
	if revision == 0 {
		w.If = engine.IfAbsent
	}
	return w
}

// collected returns what a walk yields.
func collected(walk iter.Seq2[engine.Stored, error]) (all []engine.Stored, err error) {
	for s, err := range walk {
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

// yieldAll yields the results of a walk.
func yieldAll(all []engine.Stored, err error, yield func(engine.Stored, error) bool) {
	for _, s := range all {
		if !yield(s, nil) {
			return
		}
	}
	if err != nil {
		yield(engine.Stored{}, err)
	}
}

// notesOf returns the notes from the name on, without that of the engine's time and the last hours of processes.
func notesOf(e engine.Engine, from string) ([]engine.Stored, error) {
	all, err := collected(e.Walk(ctx, engine.Range{Order: engine.Notes, From: from}))
	return slices.DeleteFunc(all, func(note engine.Stored) bool { return note.Key == "time" || strings.HasPrefix(note.Key, "hour/") }), err
}

// The other nodes report which node was taken over, soon after its lease has expired. A node that leaves is not taken
// over.
func TestNodes_sayWhichWasTakenOver(t *testing.T) {
	kit.OnNodes(t, 4, func(t *testing.T, k *kit.Kit) {
		k.After(time.Minute)
		k.Nodes[3].End()
		k.Nodes[1].Link.SetDown(true)
		down := time.Now()
		k.After(lease + sec)
		nodes, err := k.Nodes[0].Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var all []durable.Takeover
		for _, n := range nodes {
			all = append(all, n.TakenOver...)
		}
		if len(nodes) != 2 || len(all) != 1 || all[0].Node != "node 2" || all[0].At.Before(down) || time.Since(all[0].At) > sec+sec/2 {
			t.Errorf("the nodes are %+v", nodes)
		}
		k.Nodes[1].Link.SetDown(false)
		k.After(lease)
	})
}

// A node that has left does not join again while it ends, so it leaves nothing for others to take over.
func TestShutdown_leavesNoMember(t *testing.T) {
	for name, delay := range map[string]time.Duration{"at once": 0, "slowly": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
					k.Nodes[1].Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: delay} })
					k.After(sec)
					k.Nodes[1].End()
					k.After(sec)
					if all, err := membersOf(k.Engine); len(all) != 1 || err != nil {
						t.Fatalf("there are %+v, %v", all, err)
					}
				})
			}
		})
	}
}

// A watched engine calls functions before a Commit, and before it answers Commit and Confirm. Each may be nil.
type watched struct {
	engine.Engine
	commits, committed, confirmed func()
}

func (e watched) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if e.commits != nil {
		e.commits()
	}
	results, err := e.Engine.Commit(ctx, by, batches)
	if e.committed != nil {
		e.committed()
	}
	return results, err
}

func (e watched) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	held, now, err := e.Engine.Confirm(ctx, by, claims, within)
	if e.confirmed != nil {
		e.confirmed()
	}
	return held, now, err
}
