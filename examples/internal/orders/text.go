// SPDX-License-Identifier: MIT

package orders

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal that can move its cursor.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// columns returns the width of the terminal, which may change at any time.
func columns(w io.Writer) int {
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return noWidth
}

// printable returns untrusted text, such as an order's ID, in a form that is safe to print. Unprintable characters are
// escaped as in Go, so the text can neither control the terminal nor break the line.
func printable(text string) string {
	var out strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// cut returns the text shortened to at most width characters. A shortened text ends with an ellipsis.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// A style adds terminal colours to text, or leaves the text plain.
type style struct{ colour bool }

// styleFor returns the style for w: colours for a terminal, unless the user has disabled them.
func styleFor(w io.Writer) style {
	return style{isTerminal(w) && os.Getenv("NO_COLOR") == ""}
}

func (s style) title(text string) string { return s.mark("1", text) }
func (s style) good(text string) string  { return s.mark("32", text) }
func (s style) bad(text string) string   { return s.mark("1;31", text) }
func (s style) faint(text string) string { return s.mark("2", text) }
func (s style) bar(text string) string   { return s.mark("36", text) }

func (s style) mark(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// right pads text with spaces on the left up to the width; left pads it on the right.
func right(text string, width int) string { return spaces(width-utf8.RuneCountInString(text)) + text }
func left(text string, width int) string  { return text + spaces(width-utf8.RuneCountInString(text)) }

func spaces(n int) string { return strings.Repeat(" ", max(n, 0)) }

// thousands formats n with a comma before every third digit from the right.
func thousands[N ~int | ~int64 | ~uint64](n N) string {
	digits, sign := strconv.FormatInt(int64(n), 10), ""
	if n < 0 {
		digits, sign = digits[1:], "-"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// percent formats part as a percentage of all.
func percent(part, all int64) string {
	switch {
	case all == 0:
		return "–"
	case part > 0 && part*2000 < all:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(all))
}

// bar draws part as a bar that is width characters long if part equals all. A nonzero part is always visible.
func bar(part, all int64, width int) string {
	if part <= 0 || all <= 0 {
		return ""
	}
	eighths := max(int(float64(part)/float64(all)*float64(width)*8+0.5), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// short formats a measured duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return exact(d.Round(time.Second))
}

// exact formats a configured duration, such as "30m" instead of "30m0s".
func exact(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// size formats a number of bytes.
func size(bytes uint64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	case bytes < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// times formats a factor, without decimals if it is at least 100.
func times(x float64) string {
	if x >= 100 {
		return thousands(int64(x + 0.5))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
