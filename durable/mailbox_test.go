// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// inquired starts a run of 20 seconds on a node whose next writes have these faults, while another node asks for its
// end. The third node is cut off, so that the question stays open until that node is reaped.
func inquired(t *testing.T, faults ...enginetest.Fault) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		k.Handle("brief", func(context.Context, durable.Run) error { time.Sleep(20 * sec); return nil })
		k.Nodes[0].Add(durable.Task{Key: "a", Kind: "brief", Delay: sec})
		k.After(3 * sec)
		on := k.Ran("a")[0].Node
		var asks, cut *kit.Node
		for _, m := range k.Nodes {
			switch {
			case m.Name == on:
				m.Link.Next("Commit Notes", faults...)
			case asks == nil:
				asks = m
			default:
				cut = m
			}
		}
		cut.Link.SetDown(true)
		within, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		began := time.Now()
		ran, err := asks.RemoveTaskWait(within, "a")
		if waited := time.Since(began); !ran || err != nil || waited < 25*sec || waited > 40*sec {
			t.Errorf("after %v: %v, %v", waited, ran, err)
		}
		k.After(time.Minute)
		unasked(k)
		cut.Link.SetDown(false)
	}, durable.WithLease(30*sec))
}

// An answer that was lost or comes late replaces no later one, and leaves nothing behind.
func TestRemoveTaskWait_answersThatAreLostOrLate(t *testing.T) {
	for _, faults := range [][]enginetest.Fault{
		{{}},
		{{Lose: true}},
		{{Fail: true}, {Lose: true}, {Lose: true}},
		{{Delay: 19 * sec}},                                    // when the run has ended, and the question is open
		{{Delay: 19 * sec}, {Lose: true}},                      // and the answer that replaces it is lost
		{{Delay: 50 * sec}},                                    // when the question has ended
		{{}, {Delay: 40 * sec, Fail: true}, {Delay: 50 * sec}}, // as the last answer
	} {
		t.Run(fmt.Sprintf("%+v", faults), func(t *testing.T) { inquired(t, faults...) })
	}
}

// A question whose asker is gone is answered for a day. Then it and its answers are deleted.
func TestQuestion_ofWhomIsGone_isKeptForADay(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		members, err := membersOf(k.Engine)
		k.Must(err)
		put := func(id string, asked time.Time) {
			data := fmt.Sprintf(`{"at":%d,"members":[%d,99],"question":{"key":"YQ=="}}`, asked.UnixNano(), members[0].ID)
			_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{
				noteAt("question/"+id, []byte(data), 0), noteAt("answer/"+id+"/99", []byte(`{"running":true}`), 0),
			}})
			k.Must(err)
		}
		put("1", time.Now())
		put("2", time.Now().Add(-24*time.Hour+time.Minute))
		put("3", time.Now().Add(-24*time.Hour-sec))
		names := func() string {
			notes, err := notesOf(k.Engine, "")
			k.Must(err)
			var all []string
			for _, n := range notes {
				all = append(all, n.Key)
			}
			return strings.Join(all, " ")
		}
		node := fmt.Sprint("/", members[0].ID)
		k.After(2 * sec)
		if got, want := names(), "answer/1"+node+" answer/1/99 answer/2"+node+" answer/2/99 question/1 question/2"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		k.After(time.Minute)
		if got, want := names(), "answer/1"+node+" answer/1/99 question/1"; got != want {
			t.Errorf("after a minute there are %s, want %s", got, want)
		}
	})
}

// A node whose calls fail while it deletes a question leaves no answer without a question: nothing would ever find such
// an answer.
func TestQuestion_thatCannotBeDeleted_keepsItsAnswers(t *testing.T) {
	for i := range 3 {
		kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
			k.After(sec)                            // the engine's time is noted
			faults := make([]enginetest.Fault, i+1) // the first call asks
			a, fail := k.Nodes[0], false
			a.Link.SetFaults(func(method string) enginetest.Fault {
				if fail = fail || method == "Commit Notes" && len(faults) == 0; fail {
					return enginetest.Fault{Fail: method == "Commit Notes" || method == "Walk Notes"}
				}
				if method == "Commit Notes" {
					faults = faults[1:]
				}
				return enginetest.Fault{}
			})
			if _, err := a.Cancel(ctx, "a"); err != nil {
				t.Error(err)
			}
			questions, err := notesOf(k.Engine, "question/")
			k.Must(err)
			notes, err := notesOf(k.Engine, "")
			k.Must(err)
			if len(questions) == 0 && len(notes) > 0 {
				t.Errorf("after %d calls there are answers without a question: %+v", i, notes)
			}
		})
	}
}

// A question that no node can read does not affect other questions. It is deleted after a day, by the time in its name.
func TestQuestion_thatIsNotUnderstood_isLeftAlone(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		asked := func(ago time.Duration) string { return fmt.Sprintf("%016x-1", time.Now().Add(-ago).UnixNano()) }
		for id, data := range map[string]string{asked(0): "", asked(time.Minute): "{", asked(hour): `{"at":"now","members":[1,2]}`,
			asked(2 * hour): `[]`, asked(25 * hour): "{"} {
			_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{noteAt("question/"+id, []byte(data), 0)}})
			k.Must(err)
		}
		k.After(sec)
		began := time.Now()
		if ran, err := k.Nodes[0].Cancel(ctx, "a"); ran || err != nil || time.Since(began) > sec {
			t.Errorf("Cancel: %v, %v, after %v", ran, err, time.Since(began))
		}
		if left, err := notesOf(k.Engine, "question/"); err != nil || len(left) != 4 {
			t.Errorf("there are %+v, %v", left, err)
		}
	})
}

// A cluster's only node writes no question.
func TestCancel_onTheOnlyNode_writesNothing(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		var wrote atomic.Bool
		k.Nodes[0].Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Commit Notes" {
				wrote.Store(true)
			}
			return enginetest.Fault{}
		})
		if ran, err := k.Nodes[0].Cancel(ctx, "a"); ran || err != nil || wrote.Load() {
			t.Errorf("Cancel: %v, %v, and wrote: %v", ran, err, wrote.Load())
		}
	})
}
