// SPDX-License-Identifier: MIT

package orders

import (
	"bytes"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(123456), "123,456"},
		{thousands(1234567), "1,234,567"},
		{thousands(-999), "-999"},
		{thousands(-1234), "-1,234"},

		{percent(0, 0), "–"},
		{percent(0, 7), "0.0 %"},
		{percent(7, 7), "100.0 %"},
		{percent(1, 3), "33.3 %"},
		{percent(1, 1_000_000), "< 0.1 %"},

		{bar(0, 10, 10), ""},
		{bar(10, 0, 10), ""},
		{bar(10, 10, 10), "██████████"},
		{bar(5, 10, 10), "█████"},
		{bar(1, 16, 10), "▋"},
		{bar(1, 1_000_000, 10), "▏"},

		{printable("TEA-250 µ 茶"), "TEA-250 µ 茶"},
		{printable("a\x1b[2Jb\r\n\tc\x00\u202e\u200b"), `a\x1b[2Jb\r\n\tc\x00\u202e\u200b`},
		{printable("\xff"), "\ufffd"},
		{cut("short", 5), "short"},
		{cut("longer", 5), "long…"},
		{cut("µµµµ", 3), "µµ…"},
		{cut("x", 0), "…"},

		{left("µs", 4), "µs  "},
		{right("µs", 4), "  µs"},
		{right("too long", 4), "too long"},

		{short(0), "0 µs"},
		{short(999 * time.Microsecond), "999 µs"},
		{short(1500 * time.Microsecond), "1.5 ms"},
		{short(999 * time.Millisecond), "999 ms"},
		{short(20123 * time.Millisecond), "20.1 s"},
		{short(90 * time.Second), "1m30s"},
		{short(2*time.Hour + time.Millisecond), "2h"},

		{exact(30 * time.Minute), "30m"},
		{exact(2 * time.Hour), "2h"},
		{exact(90 * time.Minute), "1h30m"},
		{exact(time.Hour + time.Second), "1h0m1s"},
		{exact(10 * time.Second), "10s"},
		{exact(time.Millisecond), "1ms"},

		{size(0), "0 B"},
		{size(1023), "1023 B"},
		{size(1536), "1.5 KiB"},
		{size(3 << 20), "3.0 MiB"},
		{size(5 << 29), "2.5 GiB"},

		{times(225.4), "225"},
		{times(3600), "3,600"},
		{times(1), "1"},
		{times(1.2345), "1.23"},

		{style{}.bad("text"), "text"},
		{style{true}.bad("text"), "\x1b[1;31mtext\x1b[0m"},
		{style{true}.bad(""), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestStyleFor_whatIsNoTerminal_isPlain(t *testing.T) {
	if (styleFor(new(bytes.Buffer)) != style{}) {
		t.Error("a buffer is given colours")
	}
}
