// SPDX-License-Identifier: MIT

package orders

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// orderLineOf returns a good line with the order id.
func orderLineOf(id string) string { return strings.Replace(goodLine, "A-1", id, 1) }

// read reads all of r, and returns the results: the id of each order, or the error instead of it.
func read(t *testing.T, r io.Reader) []string {
	t.Helper()
	var got []string
	for o, err := range readOrders(r, "in.jsonl") {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, o.id)
	}
	return got
}

func TestReadOrders_malformedLines_areToldWithTheirNumber(t *testing.T) {
	for _, bad := range badLines {
		text := orderLineOf("A-1") + "\n" + orderLineOf("A-2") + "\n" + bad.line + "\n" + orderLineOf("A-3")
		got := read(t, strings.NewReader(text))
		if len(got) != 4 || got[0] != "A-1" || got[1] != "A-2" || got[3] != "A-3" {
			t.Errorf("%s: the good lines are not all there: %q", bad.name, got)
			continue
		}
		if !strings.HasPrefix(got[2], "in.jsonl:3: ") || !strings.Contains(got[2], bad.want) {
			t.Errorf("%s: got %q, want line 3 and %q", bad.name, got[2], bad.want)
		}
	}
}

func TestReadOrders_textAround(t *testing.T) {
	long := orderLineOf(strings.Repeat("A", longest))
	duplicate := "in.jsonl:3: order A-1 is on line 1 already"
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", nil},
		{"empty lines", "\n \n\n", nil},
		{"an empty line counts", "\n\n{}", []string{"in.jsonl:3: order is missing"}},
		{"no newline at the end", orderLineOf("A-1"), []string{"A-1"}},
		{"carriage returns", orderLineOf("A-1") + "\r\n" + orderLineOf("A-2") + "\r\n", []string{"A-1", "A-2"}},
		{"a byte order mark", "\ufeff" + orderLineOf("A-1"), []string{"A-1"}},
		{"a duplicate", orderLineOf("A-1") + "\n" + orderLineOf("A-2") + "\n" + orderLineOf("A-1"),
			[]string{"A-1", "A-2", duplicate}},
		{"a line too long", orderLineOf("A-1") + "\n" + long + "\n" + orderLineOf("A-2"),
			[]string{"A-1", "in.jsonl:2: the line is longer than 65536 bytes", "A-2"}},
		{"a line much too long", strings.Repeat(long, 3) + "\n" + orderLineOf("A-2"),
			[]string{"in.jsonl:1: the line is longer than 65536 bytes", "A-2"}},
		{"the last line too long", orderLineOf("A-1") + "\n" + long,
			[]string{"A-1", "in.jsonl:2: the line is longer than 65536 bytes"}},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text))} {
			if got := read(t, r); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
		}
	}
}

func TestReadOrders_unreadable_isTheLast(t *testing.T) {
	broken := errors.New("the disk is on fire")
	want := []string{"A-1", "reading in.jsonl at line 2: " + broken.Error()}
	for _, rest := range []string{"", goodLine[:40], strings.Repeat("x", 2*longest)} {
		text := strings.NewReader(orderLineOf("A-1") + "\n" + rest)
		got := read(t, io.MultiReader(text, iotest.ErrReader(broken)))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestReadOrders_isLazy(t *testing.T) {
	var asked int
	r := iotest.OneByteReader(readerFunc(func(p []byte) (int, error) {
		asked++
		return copy(p, (orderLineOf("A-1") + "\n")[(asked-1)%(len(goodLine)+1):][:1]), nil
	}))
	for range readOrders(r, "endless") {
		break
	}
	if asked > len(goodLine)+1 {
		t.Errorf("%d bytes were read for one order of %d", asked, len(goodLine)+1)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
