// SPDX-License-Identifier: MIT

package series

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// full returns an hour with these kinds in each minute.
func full(kinds int, name func(i int) string, n Numbers) Hour {
	h := Hour{Node: "node", Started: 1000 * minute}
	for i := range kinds {
		k := Kind{Name: name(i)}
		for at := range int64(Minutes) {
			k.Minutes = append(k.Minutes, Minute{1000 + at, n})
		}
		h.Kinds = append(h.Kinds, k)
	}
	return h
}

// An hour is read as it was written, also with a name that is not UTF-8, but for the minutes that are too old.
func TestEncode(t *testing.T) {
	h := full(3, func(i int) string { return fmt.Sprint("\xff", i) }, Numbers{3, 2, -1})
	data, err := h.encode(1000 + Minutes - 1)
	if err != nil {
		t.Fatal(err)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if got := s.hour((1000 + Minutes) * minute); !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, want %+v", got, h)
	}
	if got := s.hour((1010 + Minutes) * minute); len(got.Kinds) != 3 || got.Kinds[0].Minutes[0].At != 1010 {
		t.Errorf("ten minutes later got %+v", got)
	}
	if got := s.hour((2000 + Minutes) * minute); len(got.Kinds) > 0 {
		t.Errorf("much later got %+v", got)
	}
}

// The kinds with the fewest runs are added up. The overdue tasks of a sum are not known if none are known.
func TestBusiest_addsUpTheRest(t *testing.T) {
	h := full(MostKinds+3, func(i int) string { return fmt.Sprint(i) }, Numbers{10, 1, -1})
	for i, overdue := range []int{-1, 4, 7} {
		of := &h.Kinds[2*i]
		for j := range of.Minutes {
			of.Minutes[j].Numbers = Numbers{1, 0, -1}
		}
		of.Minutes[5].Overdue = overdue
		of.Minutes[6].Overdue = min(overdue, 0)
	}
	kinds := h.busiest()
	rest := kinds[MostKinds]
	if len(kinds) != MostKinds+1 || rest.Name != "" || len(rest.Minutes) != Minutes {
		t.Fatalf("the kinds are %+v", kinds)
	}
	for at, want := range map[int]Numbers{4: {3, 0, -1}, 5: {3, 0, 11}, 6: {3, 0, 0}} {
		if got := rest.Minutes[at].Numbers; got != want {
			t.Errorf("in minute %d the rest is %+v, want %+v", at, got, want)
		}
	}
}

// A note is bounded, and far below what an engine stores.
func TestEncode_isBounded(t *testing.T) {
	for _, c := range []struct {
		kinds int
		name  string
		n     Numbers
		most  int
	}{
		{100, "kind-%03d", Numbers{9999, 99, 9999}, 21 << 10},
		{100, strings.Repeat("k", task.MaxKind-3) + "%03d", Numbers{math.MaxUint32, math.MaxUint32, math.MaxUint32}, engine.MaxNote},
		{5, "kind-%03d", Numbers{9999, 0, 0}, 5 << 10},
	} {
		data, err := full(c.kinds, func(i int) string { return fmt.Sprintf(c.name, i) }, c.n).encode(1059)
		if err != nil || len(data) > c.most {
			t.Errorf("%d kinds with %+v take %d bytes, %v; at most %d are allowed", c.kinds, c.n, len(data), err, c.most)
		}
		t.Logf("%d kinds with %+v take %d bytes", c.kinds, c.n, len(data))
	}
}

// A clock that goes back takes the minutes after it along, and one that is suspended leaves a gap.
func TestWriter_clockThatIsSet(t *testing.T) {
	var runs uint64
	w := NewWriter(nil, "node", nil, func() map[string]Numbers {
		runs++
		return map[string]Numbers{"k": {runs, 0, 0}}
	})
	for _, c := range []struct {
		at   int64
		want []Minute
	}{
		{100, []Minute{{100, Numbers{1, 0, 0}}}},
		{100, []Minute{{100, Numbers{2, 0, 0}}}},
		{102, []Minute{{100, Numbers{2, 0, 0}}, {102, Numbers{1, 0, 0}}}},
		{101, []Minute{{100, Numbers{2, 0, 0}}, {101, Numbers{1, 0, 0}}}},
		{160, []Minute{{101, Numbers{1, 0, 0}}, {160, Numbers{1, 0, 0}}}},
		{900, []Minute{{900, Numbers{1, 0, 0}}}},
	} {
		if w.take(c.at); !reflect.DeepEqual(w.minutes["k"], c.want) {
			t.Errorf("after minute %d there are %v, want %v", c.at, w.minutes["k"], c.want)
		}
	}
}

// blank is a notebook that keeps nothing.
type blank struct{}

func (blank) Read(context.Context, engine.Range) iter.Seq2[engine.Record, error] {
	return func(func(engine.Record, error) bool) {}
}
func (blank) Write(context.Context, []engine.Record) error { return nil }

// BenchmarkWriter measures a minute of a process with as many kinds as a note has, without the call of the engine.
func BenchmarkWriter(b *testing.B) {
	all := make(map[string]Numbers)
	for i := range MostKinds {
		all[fmt.Sprint("kind-", i)] = Numbers{}
	}
	w := NewWriter(blank{}, "node", nil, func() map[string]Numbers {
		for kind, n := range all {
			n.Succeeded += 1000
			all[kind] = n
		}
		return all
	})
	at := int64(0)
	for b.Loop() {
		at++
		w.take(at)
		w.write(b.Context(), writeFor, at)
	}
}
