// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

func taskOf(group string, due int64) *Task {
	return &Task{Rec: &task.Record{Token: task.Token{Key: fmt.Sprint(group, due)}, Kind: "k", Group: group, Due: due, Payload: make([]byte, due)}}
}

// drained removes all tasks from a queue, and returns their keys in that order.
func drained(q *Queue) (keys []string) {
	for q.Len() > 0 {
		t := q.Next()
		keys = append(keys, t.Rec.Key)
		q.Remove(t)
	}
	return keys
}

func TestQueue_groupsTakeTurns_eachInDueOrder(t *testing.T) {
	q := NewQueue(ByGroup)
	for _, due := range []int64{3, 1, 2} {
		q.Add(taskOf("a", due))
	}
	q.Add(taskOf("b", 9))
	q.Add(taskOf("c", 4))
	q.Add(taskOf("c", 0))
	if got, want := drained(&q), []string{"a1", "b9", "c0", "a2", "c4", "a3"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// A group keeps its turn while its first task may not run.
func TestQueue_groupThatMayNotRun_isPassedOver(t *testing.T) {
	q := NewQueue(ByGroup)
	q.Add(taskOf("a", 1))
	q.Add(taskOf("b", 2))
	if got := q.NextOf(func(first *Task) bool { return first.Rec.Group == "b" }); got == nil || got.Rec.Key != "b2" {
		t.Errorf("the next task is %+v", got)
	}
	if got := q.NextOf(func(*Task) bool { return false }); got != nil {
		t.Errorf("the next task is %+v, and none may run", got)
	}
	if got, want := drained(&q), []string{"a1", "b2"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// The counts of a queue match the tasks in it.
func TestQueue_counts(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	q := NewQueue(ByGroup)
	in := make(map[string]*Task)
	for range 10_000 {
		one := taskOf(fmt.Sprint("group", draw.IntN(4)), draw.Int64N(20))
		if draw.IntN(2) == 0 {
			q.Add(one) // replaces one at the same position
			in[one.Rec.Key] = one
			continue
		}
		if q.Has(one) || q.Remove(one) {
			t.Fatal("a task is in that was not put in")
		}
		if old := in[one.Rec.Key]; old != nil {
			if !q.Has(old) || !q.Remove(old) {
				t.Fatalf("%s is not in", old.Rec.Key)
			}
			delete(in, one.Rec.Key)
		}
	}
	n, size := make(map[string]int), make(map[string]int)
	for _, one := range in {
		n[one.Rec.Group]++
		size[one.Rec.Group] += one.Rec.Size()
	}
	groups := 0
	for first, held := range q.Groups() {
		groups++
		if counted, bytes := q.Held(first.Rec.Group); held != counted || held != n[first.Rec.Group] || bytes != size[first.Rec.Group] {
			t.Errorf("%d tasks of %d bytes are counted, and %d of %d are there", counted, bytes, n[first.Rec.Group], size[first.Rec.Group])
		}
	}
	if groups != len(n) || q.Len() != len(in) {
		t.Errorf("%d tasks of %d groups, want %d of %d", q.Len(), groups, len(in), len(n))
	}
}
