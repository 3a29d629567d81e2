// SPDX-License-Identifier: MIT

package task

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// The bytes of a record: the header, the optional fields, their end, and the payload.
func TestRecord_bytes(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		r    Record
	}{
		"without optional fields": {"01" + "05" + "00" + "02" + "00" + "c801" + "00" + "00" + "046b696e64" + "00" + "7061796c6f6164",
			Record{Token: Token{Generation: 5}, Kind: "kind", Times: 1, Grid: 100, Payload: []byte("payload")}},
		"failed": {"01" + "05" + "07" + "06" + "14" + "c801" + "02" + "04" + "046b696e64" +
			"01" + "0a" + "9003" + "03776879" + "00" + "02736f" + "00" + "70",
			Record{Token: Token{Generation: 5, Seq: 7}, Kind: "kind", Times: 3, Interval: 10, Grid: 100, Attempts: 2, Missed: 4,
				Failed: []Failure{{200, "why"}, {0, "so"}}, Payload: []byte("p")}},
	} {
		c.r.Key, c.r.Due = "k", 9
		if got := hex.EncodeToString(c.r.Encode()); got != c.data {
			t.Errorf("%s: got  %s\nwant %s", name, got, c.data)
		}
		again, err := Decode(engine.Record{Key: "k", Due: 9, Data: c.r.Encode()})
		if err != nil || !reflect.DeepEqual(*again, c.r) {
			t.Errorf("%s: %+v becomes %+v, %v", name, c.r, again, err)
		}
	}
}

func TestRecord_fields_thatMakeNoSense(t *testing.T) {
	head := "01" + "05" + "00" + "02" + "00" + "c801" + "01" + "00" + "046b696e64"
	for fields, want := range map[string]error{
		"00":                                     nil,
		"0100" + "00":                            nil,
		"0102" + "0000" + "00":                   nil,
		"0102" + "0000":                          engine.ErrCorrupt, // no end
		"0103" + "0000" + "00":                   engine.ErrCorrupt, // too short
		"0101" + "00" + "00":                     engine.ErrCorrupt, // a truncated attempt
		"0102" + "0000" + "0102" + "0000" + "00": engine.ErrCorrupt, // twice
		"010c" + "000000000000000000000000" + "00": engine.ErrCorrupt, // too many
		"0801" + "05" + "00":                       engine.ErrCorrupt, // a shift without a calendar
		"0901" + "00" + "00":                       engine.ErrCorrupt, // a deadline without a burst
		"0902" + "0a0a" + "00":                     engine.ErrCorrupt, // one and a half
		"0a00" + "00":                              engine.ErrCorrupt, // an empty note
		"7f00" + "00":                              engine.ErrVersion,
		"ff":                                       engine.ErrCorrupt,
	} {
		data, err := hex.DecodeString(head + fields)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(engine.Record{Key: "k", Data: data}); !errors.Is(err, want) {
			t.Errorf("the fields %s: %v, want %v", fields, err, want)
		}
	}
}

// A record of a repeating task without a grid is corrupt.
func TestRecord_repeatsWithoutAGrid_isCorrupt(t *testing.T) {
	for _, times := range []int64{Forever, 2, 1} {
		r := Record{Token: Token{Key: "k"}, Kind: "kind", Times: times, Grid: 100, Due: 100}
		want := engine.ErrCorrupt
		if times == 1 {
			want = nil
		}
		if got, err := Decode(engine.Record{Key: "k", Due: 100, Data: r.Encode()}); !errors.Is(err, want) {
			t.Errorf("%d times: %+v, %v", times, got, err)
		}
	}
}

func FuzzRecord_decode(f *testing.F) {
	f.Add((&Record{Token: Token{Key: "k", Generation: math.MaxUint64}, Kind: "kind", Times: Forever, Interval: 1}).Encode())
	f.Add((&Record{Token: Token{Key: "k"}, Kind: "x", Times: 1, Payload: []byte("p"), Failed: []Failure{{Text: "f"}}, Grid: Latest}).Encode())
	f.Add((&Record{Token: Token{Key: "k"}, Kind: "x", Times: 1, Payload: []byte("p"), Trace: "trace"}).Encode())
	f.Add((&Record{Token: Token{Key: "k"}, Kind: "x", Times: 1, Payload: []byte("p"), Version: 2, Cron: "@daily",
		Paused: 9, Group: "g"}).Encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(engine.Record{Key: "k", Due: 1, Data: data})
		if err != nil {
			return
		}
		again, err := Decode(engine.Record{Key: "k", Due: 1, Data: r.Encode()})
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v becomes %+v, %v", r, again, err)
		}
	})
}

func TestRecord_everyPrefix_isCorrupt(t *testing.T) {
	r := &Record{Token: Token{Key: "k", Generation: 1 << 60, Seq: 300}, Kind: "kind", Times: 3, Interval: time.Hour, Grid: 1 << 61,
		Attempts: 7, Missed: 1 << 20, Failed: []Failure{{5, "why"}, {Text: "before"}}, Trace: "trace"}
	data := r.Encode()
	for n := range data {
		if got, err := Decode(engine.Record{Key: "k", Due: 1, Data: data[:n]}); err == nil {
			t.Errorf("%d of %d bytes are read as %+v", n, len(data), got)
		}
	}
	_, err := Decode(engine.Record{Key: "k", Due: 1, Data: []byte("\x01secret")})
	want := `durable: the store is corrupt: malformed record of 7 bytes for key "k"` // without the bytes, because they may be a payload
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	r.Due = 1
	if got, err := Decode(engine.Record{Key: "k", Due: 1, Data: data}); err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
		t.Errorf("%+v is read as %+v, %v", r, got, err)
	}
}

func TestRecord_optionalFields(t *testing.T) {
	plain := Record{Token: Token{Key: "k"}, Kind: "kind", Times: Forever, Interval: 5, Due: 7, Payload: []byte("p")}
	all := plain
	all.Version, all.Cron, all.Interval, all.Paused, all.Group = 2, "@daily", 0, 9, "g"
	all.Shift, all.Deadline, all.Note, all.Snoozes, all.GivenUp = 1<<63-1, Latest, "a note", 4, 2
	all.Until, all.Meta = Latest, "m"
	for _, r := range []Record{plain, all} {
		if got, err := Decode(engine.Record{Key: "k", Due: 7, Data: r.Encode()}); err != nil || !reflect.DeepEqual(*got, r) {
			t.Errorf("%+v is read as %+v, %v", r, got, err)
		}
	}
	expires := Record{Token: Token{Key: "k"}, Kind: "kind", Times: 1, Due: 7, Payload: []byte("p"), Expires: 1}
	if got, err := Decode(engine.Record{Key: "k", Due: 7, Data: expires.Encode()}); err != nil || !reflect.DeepEqual(*got, expires) {
		t.Errorf("%+v is read as %+v, %v", expires, got, err)
	}
	expires.Times, expires.Interval = 2, 5
	if got, err := Decode(engine.Record{Key: "k", Due: 7, Data: expires.Encode()}); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("a task that repeats and expires is read as %+v, %v", got, err)
	}
	once := Record{Token: Token{Key: "k"}, Kind: "kind", Times: 1, Due: 7, Payload: []byte("p"), Until: 9}
	for _, times := range []int64{1, 2} {
		once.Times = times
		if got, err := Decode(engine.Record{Key: "k", Due: 7, Data: once.Encode()}); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("a task with an end and no interval is read as %+v, %v", got, err)
		}
	}
	data := plain.Encode()
	unknown := append(data[:len(data)-len("\x00p")], 99, 1, 'x', 0, 'p')
	if got, err := Decode(engine.Record{Key: "k", Due: 7, Data: unknown}); !errors.Is(err, engine.ErrVersion) {
		t.Errorf("a field of a later version is read as %+v, %v", got, err)
	}
	later := append([]byte{RecordVersion + 1}, plain.Encode()[1:]...)
	if got, err := Decode(engine.Record{Key: "k", Due: 7, Data: later}); !errors.Is(err, engine.ErrVersion) {
		t.Errorf("a record of a later version is read as %+v, %v", got, err)
	}
}

func TestRecord_intervalAndCalendar_isCorrupt(t *testing.T) {
	r := Record{Token: Token{Key: "k"}, Kind: "kind", Times: Forever, Interval: 10, Cron: "@daily", Grid: 100, Due: 100}
	if got, err := Decode(engine.Record{Key: "k", Due: 100, Data: r.Encode()}); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("it is read as %+v, %v", got, err)
	}
}

// A record keeps the latest failed attempts of a run, newest first, with their times.
func TestRecord_failed_areTheLast(t *testing.T) {
	of := &Policy{Attempts: 100, Least: 1, Most: 1}
	r := &Record{Token: Token{Key: "k"}, Kind: "x", Times: Forever, Interval: 10, Grid: 1}
	for i := range int64(8) {
		r = r.After(FailedFor(string(rune('a'+i))), of, 100+i, 0)
	}
	if len(r.Failed) != mostFailed || r.Failure() != "h" || r.Attempts != 8 {
		t.Fatalf("after 8 attempts it is %+v", r)
	}
	for i, f := range r.Failed {
		if f.Text != string(rune('h'-i)) || f.At != int64(107-i) {
			t.Errorf("failure %d is %+v", i, f)
		}
	}
	if next := r.After(Outcome{}, of, 200, 0); next.Failed != nil || next.Failure() != "" {
		t.Errorf("the next run is %+v", next)
	}
}
