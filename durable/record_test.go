// SPDX-License-Identifier: MIT

package durable

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
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
		"0102" + "0000":                          engine.ErrCorrupt, // no end
		"0103" + "0000" + "00":                   engine.ErrCorrupt, // too short
		"0101" + "00" + "00":                     engine.ErrCorrupt, // half an attempt
		"0102" + "0000" + "0102" + "0000" + "00": engine.ErrCorrupt, // twice
		"010c" + "000000000000000000000000" + "00": engine.ErrCorrupt, // too many
		"0801" + "05" + "00":                       engine.ErrCorrupt, // a calendar shifted that is not there
		"0901" + "00" + "00":                       engine.ErrCorrupt, // a deadline of none
		"0902" + "0a0a" + "00":                     engine.ErrCorrupt, // one and a half
		"0a00" + "00":                              engine.ErrCorrupt, // an empty note
		"7f00" + "00":                              engine.ErrVersion,
		"ff":                                       engine.ErrCorrupt,
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
	for _, times := range []int64{timesForever, 2, 1} {
		r := record{key: "k", kind: "kind", times: times, grid: 100, due: 100}
		want := engine.ErrCorrupt
		if times == 1 {
			want = nil
		}
		if got, err := decode(engine.Record{Key: "k", Due: 100, Data: r.encode()}); !errors.Is(err, want) {
			t.Errorf("%d times: %+v, %v", times, got, err)
		}
	}
}

func FuzzRecord_decode(f *testing.F) {
	f.Add((&record{key: "k", kind: "kind", times: timesForever, interval: 1, generation: math.MaxUint64}).encode())
	f.Add((&record{key: "k", kind: "x", times: 1, payload: []byte("p"), failed: []failed{{text: "f"}}, grid: latest}).encode())
	f.Add((&record{key: "k", kind: "x", times: 1, payload: []byte("p"), trace: "trace"}).encode())
	f.Add((&record{key: "k", kind: "x", times: 1, payload: []byte("p"), version: 2, starts: 3, cron: "@daily",
		paused: 9, group: "g"}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(engine.Record{Key: "k", Due: 1, Data: data})
		if err != nil {
			return
		}
		again, err := decode(engine.Record{Key: "k", Due: 1, Data: r.encode()})
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v becomes %+v, %v", r, again, err)
		}
	})
}

func TestRecord_everyPrefix_isCorrupt(t *testing.T) {
	r := &record{key: "k", kind: "kind", times: 3, interval: time.Hour, generation: 1 << 60, seq: 300, grid: 1 << 61,
		attempts: 7, missed: 1 << 20, failed: []failed{{5, "why"}, {text: "before"}}, trace: "trace"}
	data := r.encode()
	for n := range data {
		if got, err := decode(engine.Record{Key: "k", Due: 1, Data: data[:n]}); err == nil {
			t.Errorf("%d of %d bytes are read as %+v", n, len(data), got)
		}
	}
	r.due = 1
	if got, err := decode(engine.Record{Key: "k", Due: 1, Data: data}); err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
		t.Errorf("%+v is read as %+v, %v", r, got, err)
	}
}

// A record without an optional field is one of version 1, which earlier programs read.
func TestRecord_optionalFields(t *testing.T) {
	plain := record{key: "k", kind: "kind", times: timesForever, interval: 5, due: 7, payload: []byte("p")}
	all := plain
	all.version, all.starts, all.cron, all.interval, all.paused, all.group = 2, 3, "@daily", 0, 9, "g"
	all.shift, all.deadline, all.note = 1<<63-1, latest, "a note"
	for version, r := range map[byte]record{recordVersion: plain, fieldsVersion: all} {
		data := r.encode()
		got, err := decode(engine.Record{Key: "k", Due: 7, Data: data})
		if err != nil || !reflect.DeepEqual(*got, r) || data[0] != version {
			t.Errorf("version %d: %+v is read as %+v, %v", data[0], r, got, err)
		}
	}
	unknown := append([]byte{fieldsVersion}, plain.encode()[1:]...)
	unknown = append(unknown[:len(unknown)-1], 99, 1, 'x', 0, 'p')
	if got, err := decode(engine.Record{Key: "k", Due: 7, Data: unknown}); !errors.Is(err, engine.ErrVersion) {
		t.Errorf("a field of a later version is read as %+v, %v", got, err)
	}
}

// A record keeps the last failed attempts of a run, the newest first, with their times.
func TestRecord_failed_areTheLast(t *testing.T) {
	of := &policy{attempts: 100, least: 1, most: 1}
	r := &record{key: "k", kind: "x", times: timesForever, interval: 10, grid: 1}
	for i := range int64(8) {
		r = r.after(failedFor(string(rune('a'+i))), of, 100+i, 0)
	}
	if len(r.failed) != mostFailed || r.failure() != "h" || r.attempts != 8 {
		t.Fatalf("after 8 attempts it is %+v", r)
	}
	for i, f := range r.failed {
		if f.text != string(rune('h'-i)) || f.at != int64(107-i) {
			t.Errorf("failure %d is %+v", i, f)
		}
	}
	if next := r.after(outcome{}, of, 200, 0); next.failed != nil || next.failure() != "" {
		t.Errorf("the next run is %+v", next)
	}
}
