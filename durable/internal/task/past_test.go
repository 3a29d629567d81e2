// SPDX-License-Identifier: MIT

package task

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A block decodes to the encoded attempts, in as many parts as its size requires.
func TestPastBlock(t *testing.T) {
	block := PastBlock{Kind: "k\xff", Node: "n", Past: []Past{
		{},
		{Key: "a", Group: "g", Generation: math.MaxUint64, Seq: 7, Attempt: 3, Due: 5, Started: 9, Ended: 20, Failure: "f", Parked: true},
		{Key: strings.Repeat("long", 256), Due: math.MinInt64 / 4, Started: -1, Ended: math.MaxInt64 / 4, Note: "n", Snoozed: true},
		{Key: "b", Due: 30, Started: 20, Ended: 10, Cancelled: true, Expired: true},
		{Key: "c", GivenUp: true, Cancelled: true},
	}}
	for _, most := range []int{1, 100, 1 << 20} {
		got := PastBlock{}
		for left := block; len(left.Past) > 0; {
			data, n := left.Encode(most)
			if n == 0 || len(data) > most+2048 {
				t.Fatalf("%d attempts take %d bytes", n, len(data))
			}
			left.Past = left.Past[n:]
			part, err := DecodePast(data)
			if err != nil {
				t.Fatal(err)
			}
			got.Kind, got.Node, got.Past = part.Kind, part.Node, append(got.Past, part.Past...)
		}
		if !reflect.DeepEqual(got, block) {
			t.Errorf("%+v has become %+v", block, got)
		}
	}
}

// A block that is cut off, damaged or of another version is not read.
func TestDecodePast_damaged(t *testing.T) {
	data, n := (&PastBlock{Kind: "k", Node: "n", Past: []Past{{Key: "a", Failure: "f"}}}).Encode(1)
	for i := range data {
		if b, err := DecodePast(data[:i]); err == nil && len(b.Past) == n {
			t.Errorf("%d of %d bytes are read as %+v", i, len(data), b)
		}
	}
	if _, err := DecodePast(nil); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := DecodePast([]byte{PastFormat + 1}); !errors.Is(err, engine.ErrVersion) {
		t.Errorf("a later version: %v", err)
	}
}

func FuzzDecodePast(f *testing.F) {
	data, _ := (&PastBlock{Kind: "k", Node: "n", Past: []Past{{Key: "a"}, {Key: "b", Parked: true}}}).Encode(1 << 10)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodePast(data)
		if err != nil || len(b.Past) == 0 {
			return
		}
		again, n := b.Encode(math.MaxInt)
		if c, err := DecodePast(again); err != nil || n != len(b.Past) || !reflect.DeepEqual(b, c) {
			t.Errorf("%+v has become %+v, %v", b, c, err)
		}
	})
}
