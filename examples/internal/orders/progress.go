// SPDX-License-Identifier: MIT

package orders

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	redraw   = 100 * time.Millisecond // interval between two drawings of the bar
	widest   = 20                     // maximum width of the bar, in columns
	noWidth  = 80                     // assumed width of a terminal that does not report its width, in columns
	eraseAll = "\r\x1b[2K"            // moves to the first column and erases the line
)

// A status is the progress of the work.
type status struct {
	settled int64 // number of refused, paid or returned orders
	total   int64 // total number of orders; -1 if unknown
	live    int   // number of live tasks
}

// A console writes to standard error: lines for people and, while work is in progress, a progress bar below them. It
// draws no bar if standard error is not a terminal.
type console struct {
	mu    sync.Mutex // protects the fields below, and keeps lines and bar from overlapping
	w     io.Writer
	drawn bool // the bar is visible
}

// println writes a line above the bar.
func (c *console) println(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked() // the next drawing restores the bar
	fmt.Fprintln(c.w, line)
}

// follow draws a bar for the status that now returns, until stop is closed. Then it removes the bar.
func (c *console) follow(stop <-chan struct{}, now func() status) {
	if !isTerminal(c.w) {
		return
	}
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			c.clear()
			return
		case <-ticker.C:
			c.draw(now(), columns(c.w))
		}
	}
}

func (c *console) draw(s status, columns int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drawn = true
	_, _ = io.WriteString(c.w, eraseAll+s.line(columns))
}

// line returns the line with the bar, which is shorter than the width of the terminal. If a terminal had to wrap the
// line, the first part would remain, and the next drawing would begin below it. Parts that do not fit are omitted, the
// bar first.
func (s status) line(columns int) string {
	text := thousands(s.settled) + " settled, " + thousands(s.live) + " held"
	if s.total > 0 {
		text = thousands(s.settled) + " of " + thousands(s.total) + " settled, " + thousands(s.live) + " held"
		part := fmt.Sprintf("%3d %% ", min(s.settled*100/s.total, 99)) // at 100 % the bar is already removed
		if room := min(widest, columns-1-len(part)-len(text)-1); room > 0 {
			full := int(min(s.settled*int64(room)/s.total, int64(room)))
			part += strings.Repeat("█", full) + strings.Repeat("░", room-full) + " "
		}
		text = part + text
	}
	return cut(text, columns-1)
}

func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
}

func (c *console) clearLocked() {
	if c.drawn {
		_, _ = io.WriteString(c.w, eraseAll)
	}
	c.drawn = false
}
