// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memengine"
)

// inquired has a run of 20 seconds on a node, with these faults of what that writes next, while another node asks for its
// end. The third is cut off, so that the question stays open until that is reaped.
func inquired(t *testing.T, faults ...memengine.Fault) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.handle("brief", func(*member) durable.Handler {
			return func(context.Context, durable.Run) error { time.Sleep(20 * sec); return nil }
		})
		c.nodes[0].add(durable.Task{Key: "a", Kind: "brief", Delay: sec})
		time.Sleep(3 * sec)
		on := c.ran("a").node
		var asks, cut *member
		for _, m := range c.nodes {
			switch {
			case m.name == on:
				m.link.Next("Commit Notes", faults...)
			case asks == nil:
				asks = m
			default:
				cut = m
			}
		}
		cut.link.SetDown(true)
		within, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		began := time.Now()
		ran, err := asks.RemoveTaskWait(within, "a")
		if waited := time.Since(began); !ran || err != nil || waited < 25*sec || waited > 40*sec {
			t.Errorf("after %v: %v, %v", waited, ran, err)
		}
		time.Sleep(time.Minute)
		c.unasked()
		cut.link.SetDown(false)
	}, durable.WithLease(30*sec))
}

// An answer that was lost, or comes late, replaces no later one, and nothing of it is left.
func TestRemoveTaskWait_answersThatAreLostOrLate(t *testing.T) {
	for _, faults := range [][]memengine.Fault{
		{{}},
		{{Lose: true}},
		{{Fail: true}, {Lose: true}, {Lose: true}},
		{{Delay: 19 * sec}},                                    // when the run has ended, and the question is open
		{{Delay: 19 * sec}, {Lose: true}},                      // and the answer in its place is lost
		{{Delay: 50 * sec}},                                    // when the question has ended
		{{}, {Delay: 40 * sec, Fail: true}, {Delay: 50 * sec}}, // as the last answer
	} {
		t.Run(fmt.Sprintf("%+v", faults), func(t *testing.T) { inquired(t, faults...) })
	}
}

// A question whose asker is gone is answered for a day. Then it is deleted, with its answers.
func TestQuestion_ofWhomIsGone_isKeptForADay(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		members, err := membersOf(c.engine)
		c.must(err)
		put := func(id string, asked time.Time) {
			data := fmt.Sprintf(`{"at":%d,"members":[%d,99],"question":{"key":"YQ=="}}`, asked.UnixNano(), members[0].ID)
			_, err := c.engine.Commit(ctx, 0, []engine.Batch{{
				noteAt("ask/"+id, []byte(data), 0), noteAt("answer/"+id+"/99", []byte(`{"running":true}`), 0),
			}})
			c.must(err)
		}
		put("1", time.Now())
		put("2", time.Now().Add(-24*time.Hour+time.Minute))
		put("3", time.Now().Add(-24*time.Hour-sec))
		names := func() string {
			notes, err := notesOf(c.engine, "")
			c.must(err)
			var all []string
			for _, n := range notes {
				all = append(all, n.Key)
			}
			return strings.Join(all, " ")
		}
		node := fmt.Sprint("/", members[0].ID)
		time.Sleep(2 * sec)
		if got, want := names(), "answer/1"+node+" answer/1/99 answer/2"+node+" answer/2/99 ask/1 ask/2"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		time.Sleep(time.Minute)
		if got, want := names(), "answer/1"+node+" answer/1/99 ask/1"; got != want {
			t.Errorf("after a minute there are %s, want %s", got, want)
		}
	})
}

// A node whose calls fail as it deletes a question leaves no answer without a question: nothing would ever find that.
func TestQuestion_thatCannotBeDeleted_keepsItsAnswers(t *testing.T) {
	for i := range 3 {
		inCluster(t, 2, func(t *testing.T, c *cluster) {
			faults := make([]memengine.Fault, i+1) // the first call asks
			a, fail := c.nodes[0], false
			a.link.SetFaults(func(method string) memengine.Fault {
				if fail = fail || method == "Commit Notes" && len(faults) == 0; fail {
					return memengine.Fault{Fail: method == "Commit Notes" || method == "Walk Notes"}
				}
				if method == "Commit Notes" {
					faults = faults[1:]
				}
				return memengine.Fault{}
			})
			if _, err := a.Cancel(ctx, "a"); err != nil {
				t.Error(err)
			}
			questions, err := notesOf(c.engine, "ask/")
			c.must(err)
			notes, err := notesOf(c.engine, "")
			c.must(err)
			if len(questions) == 0 && len(notes) > 0 {
				t.Errorf("after %d calls there are answers without a question: %+v", i, notes)
			}
		})
	}
}

// A question that no node can read disturbs no other.
func TestQuestion_thatIsNotUnderstood_isLeftAlone(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		for id, data := range map[string]string{"0": "", "1": "{", "2": `{"at":"now","members":[1,2]}`, "3": `[]`} {
			_, err := c.engine.Commit(ctx, 0, []engine.Batch{{noteAt("ask/"+id, []byte(data), 0)}})
			c.must(err)
		}
		time.Sleep(sec)
		began := time.Now()
		if ran, err := c.nodes[0].Cancel(ctx, "a"); ran || err != nil || time.Since(began) > sec {
			t.Errorf("Cancel: %v, %v, after %v", ran, err, time.Since(began))
		}
		if left, err := notesOf(c.engine, "ask/"); err != nil || len(left) != 4 {
			t.Errorf("there are %+v, %v", left, err)
		}
	})
}

// The only node leaves no question.
func TestCancel_onTheOnlyNode_writesNothing(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		var wrote atomic.Bool
		c.nodes[0].link.SetFaults(func(method string) memengine.Fault {
			if method == "Commit Notes" {
				wrote.Store(true)
			}
			return memengine.Fault{}
		})
		if ran, err := c.nodes[0].Cancel(ctx, "a"); ran || err != nil || wrote.Load() {
			t.Errorf("Cancel: %v, %v, and wrote: %v", ran, err, wrote.Load())
		}
	})
}
