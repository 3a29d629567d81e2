// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Escaped strings sort like the strings, and can be unescaped.
func TestEscaped(t *testing.T) {
	all := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00b", "ab", "\xff", "\xff\x00"}
	slices.Sort(all)
	var last string
	for _, s := range all {
		if got := escaped(s); got <= last || strings.HasPrefix(got, last) && last != "" {
			t.Errorf("%q is escaped as %q, after %q", s, got, last)
		} else {
			last = got
		}
		if got, rest := unescaped(escaped(s) + "\x00\x01x"); got != s || rest != "\x00\x01x" {
			t.Errorf("%q comes back as %q, and %q", s, got, rest)
		}
	}
}

func TestDecode_refusesWhatIsNoRow(t *testing.T) {
	r := &row{Stored: engine.Stored{Record: engine.Record{Due: -5, Data: []byte("data")}, Kind: "kind", Group: "group"}}
	whole := r.encode()
	for n := range len(whole) - len(r.Data) {
		if _, err := decode(engine.Entry{Key: "tk", Value: whole[:n]}); err == nil {
			t.Errorf("%d bytes of a row are one", n)
		}
	}
	whole[0]++
	if _, err := decode(engine.Entry{Key: "tk", Value: whole}); err == nil {
		t.Error("a row of another format is read")
	}
}

// Whatever several processes do at the same time, the rows are consistent.
func TestRows_agree(t *testing.T) {
	for name, exclusive := range map[string]bool{"shared": false, "exclusive": true} {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(exclusive)
			first, err := New(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			var wait sync.WaitGroup
			for i := range 4 {
				e := first
				if _, ok := e.(*shared); ok {
					e = newShared(m)
				}
				wait.Go(func() { walk(t, e, rand.New(rand.NewPCG(7, uint64(i)))) })
			}
			wait.Wait()
			agree(t, first, m)
		})
	}
}

// walk does random operations, as one member after another.
func walk(t *testing.T, e engine.Engine, rnd *rand.Rand) {
	ctx := t.Context()
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for range 10 {
		by, _, err := e.Join(ctx, "m", time.Hour)
		check(err)
		var held []engine.Stored
		for range 60 {
			key := fmt.Sprint("k", rnd.IntN(12))
			w := engine.Write{Record: engine.Record{Key: key}, If: engine.Always}
			if rnd.IntN(3) > 0 {
				w.Data, w.Due, w.Kind = []byte{byte(rnd.IntN(3)), 'x'}, rnd.Int64N(5), fmt.Sprint("kind", rnd.IntN(2))
				w.Group = []string{"", "g", "h"}[rnd.IntN(3)]
				w.Hold, w.Failing = rnd.IntN(2) == 0, rnd.IntN(2) == 0
			}
			switch rnd.IntN(6) {
			case 0, 1:
				_, err = e.Commit(ctx, by, []engine.Batch{{w}})
			case 2, 3:
				var got engine.Claims
				got, err = e.Claim(ctx, engine.ClaimRequest{By: by, Kinds: []string{"kind0", "kind1"}, After: -1, Until: 3,
					Most: 1 + rnd.IntN(4), Readable: byte(rnd.IntN(4)), Fair: rnd.IntN(2) == 0})
				held = append(held, got.Tasks...)
			default:
				if len(held) == 0 {
					continue
				}
				s := held[rnd.IntN(len(held))]
				c := []engine.Claim{{Key: s.Key, Revision: s.Revision, Starts: s.Starts}}
				switch rnd.IntN(3) {
				case 0:
					_, _, err = e.Confirm(ctx, by, c, 0)
				case 1:
					err = e.Release(ctx, by, c)
				default:
					w.Key, w.If, w.Revision = s.Key, engine.IfUnchanged, s.Revision
					_, err = e.Commit(ctx, by, []engine.Batch{{w}})
				}
			}
			check(err)
		}
		check(e.Leave(ctx, by))
	}
}

// agree checks that the rows are exactly the rows of the tasks.
func agree(t *testing.T, e engine.Engine, kv engine.KV) {
	t.Helper()
	b := &base{}
	if a, ok := e.(*alone); ok {
		b.alone = true
		a.loadAll(t)
		indexed(t, a)
	}
	want := make(map[string]string) // the value of each index row
	tasks := 0
	for entry, err := range kv.Scan(context.Background(), taskRow, end(taskRow)) {
		r, failed := decode(entry)
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if tasks++; b.alone {
			if len(r.Data) > 0 {
				t.Errorf("the row of %q has data", r.Key)
			}
			free, err := kv.Get(context.Background(), r.freeRow())
			if err != nil || len(free) != 1 {
				t.Fatalf("%q has %d rows with its data (%v)", r.Key, len(free), err)
			}
			whole, err := decodeFree(r.Key, free[0].Value)
			if err != nil {
				t.Fatal(err)
			}
			p := *whole
			if p.Data = nil; !slices.Equal(p.encode(), r.encode()) {
				t.Errorf("the rows of %q are %+v and %+v", r.Key, r, whole)
			}
			r = whole
		}
		if r.Owner != 0 {
			t.Errorf("%q is held by member %d, and all have left", r.Key, r.Owner)
		}
		for _, row := range b.appendIndex(nil, r, true) {
			want[row.Key] = string(row.Value)
		}
	}
	for entry, err := range kv.Scan(context.Background(), "\x00", "\xff") {
		if err != nil {
			t.Fatal(err)
		}
		switch entry.Key[:1] {
		case taskRow, counterRow:
		case startsRow:
			if found, err := kv.Get(context.Background(), taskRow+entry.Key[1:]); err != nil || len(found) == 0 {
				t.Errorf("there are starts of %q, which is no task (%v)", entry.Key[1:], err)
			}
		default:
			if value, ok := want[entry.Key]; !ok || value != string(entry.Value) {
				t.Errorf("there is the row %q, with %q", entry.Key, entry.Value)
			}
			delete(want, entry.Key)
		}
	}
	if len(want) > 0 || tasks == 0 {
		t.Errorf("of %d tasks there are no rows %q", tasks, want)
	}
}
