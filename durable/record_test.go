// SPDX-License-Identifier: MIT

package durable

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Records that programs with version 1 have written, and what they mean.
func TestRecord_version1_isRead(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want record
	}{
		"once": {"01" + "05" + "00" + "02" + "00" + "c801" + "00" + "00" + "046b696e64" + "00" + "7061796c6f6164",
			record{kind: "kind", times: 1, generation: 5, grid: 100, payload: []byte("payload")}},
		"failed": {"01" + "05" + "07" + "06" + "14" + "c801" + "01" + "04" + "046b696e64" + "03776879" + "70",
			record{kind: "kind", times: 3, interval: 10, generation: 5, seq: 7, grid: 100, attempts: 1, missed: 4,
				failed: []failed{{text: "why"}}, payload: []byte("p")}},
	} {
		data, err := hex.DecodeString(c.data)
		if err != nil {
			t.Fatal(err)
		}
		c.want.key, c.want.due = "k", 9
		got, err := decode(engine.Record{Key: "k", Due: 9, Data: data})
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
			continue
		}
		if again := got.encode(); name == "once" && !bytes.Equal(again, data) {
			t.Errorf("a record without optional fields is written as %x, and not as %x", again, data)
		}
	}
}

// The bytes of version 2: the header, the failed attempts under tag 1, the end, and the payload.
func TestRecord_version2_bytes(t *testing.T) {
	r := &record{key: "k", due: 9, kind: "kind", times: 3, interval: 10, generation: 5, seq: 7, grid: 100, attempts: 2,
		missed: 4, failed: []failed{{200, "why"}, {0, "so"}}, payload: []byte("p")}
	want := "02" + "05" + "07" + "06" + "14" + "c801" + "02" + "04" + "046b696e64" + "00" +
		"01" + "0a" + "9003" + "03776879" + "00" + "02736f" + "00" + "70"
	if got := hex.EncodeToString(r.encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	again, err := decode(engine.Record{Key: "k", Due: 9, Data: r.encode()})
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("%+v becomes %+v, %v", r, again, err)
	}
}

func TestRecord_fields_thatMakeNoSense(t *testing.T) {
	head := "02" + "05" + "00" + "02" + "00" + "c801" + "01" + "00" + "046b696e64" + "00"
	for fields, want := range map[string]error{
		"00":                                     nil,
		"0100" + "00":                            nil,
		"0102" + "0000" + "00":                   nil,
		"0102" + "0000":                          ErrCorrupt, // no end
		"0103" + "0000" + "00":                   ErrCorrupt, // too short
		"0101" + "00" + "00":                     ErrCorrupt, // half an attempt
		"0102" + "0000" + "0102" + "0000" + "00": ErrCorrupt, // twice
		"010c" + "000000000000000000000000" + "00": ErrCorrupt, // too many
		"0801" + "05" + "00":                       ErrCorrupt, // a calendar shifted that is not there
		"0901" + "00" + "00":                       ErrCorrupt, // a deadline of none
		"0902" + "0a0a" + "00":                     ErrCorrupt, // one and a half
		"0a00" + "00":                              ErrCorrupt, // an empty note
		"7f00" + "00":                              ErrVersion,
		"ff":                                       ErrCorrupt,
	} {
		data, err := hex.DecodeString(head + fields)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(engine.Record{Key: "k", Data: data}); !errors.Is(err, want) {
			t.Errorf("the fields %s: %v, want %v", fields, err, want)
		}
	}
}

// A record of a task that repeats, and does not say when, is corrupt.
func TestRecord_repeatsWithoutAGrid_isCorrupt(t *testing.T) {
	for _, times := range []int64{Forever, 2, 1} {
		r := record{key: "k", kind: "kind", times: times, grid: 100, due: 100}
		want := ErrCorrupt
		if times == 1 {
			want = nil
		}
		if got, err := decode(engine.Record{Key: "k", Due: 100, Data: r.encode()}); !errors.Is(err, want) {
			t.Errorf("%d times: %+v, %v", times, got, err)
		}
	}
}

// A record keeps the last failed attempts of a run, the newest first, with their times.
func TestRecord_failed_areTheLast(t *testing.T) {
	of := &kind{attempts: 100, least: 1, most: 1}
	r := &record{key: "k", kind: "x", times: Forever, interval: 10, grid: 1}
	for i := range int64(8) {
		r = r.after(failedFor(string(rune('a'+i))), of, 100+i, 0)
	}
	got := r.info(0)
	if len(got.Failed) != mostFailed || got.Failure != "h" || got.Attempts != 8 {
		t.Fatalf("after 8 attempts it is %+v", got)
	}
	for i, f := range got.Failed {
		if f.Text != string(rune('h'-i)) || !f.At.Equal(time.Unix(0, int64(107-i))) {
			t.Errorf("failure %d is %+v", i, f)
		}
	}
	if next := r.after(outcome{}, of, 200, 0).info(0); next.Failed != nil || next.Failure != "" {
		t.Errorf("the next run is %+v", next)
	}
}
