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
	redraw   = 100 * time.Millisecond // time between two drawings of the bar
	widest   = 20                     // columns of the bar
	noWidth  = 80                     // columns of a terminal that does not report its width
	eraseAll = "\r\x1b[2K"            // moves to the first column and erases the line
)

// A status is the progress of the work.
type status struct {
	settled int64 // refused, paid or returned orders
	total   int64 // total orders, or -1 if unknown
	live    int   // live tasks
}

// A console is standard error: lines for a person, and below them a progress bar while there is work. Without a
// terminal there is no bar.
type console struct {
	mu    sync.Mutex // protects all below, and keeps lines and bar apart
	w     io.Writer
	drawn bool // there is a bar
}

// println writes a line above the bar.
func (c *console) println(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked() // the next drawing shows it again
	fmt.Fprintln(c.w, line)
}

// follow draws a bar of the status returned by now, until stop is closed. Then it removes the bar.
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

// line returns the bar, shorter than the width of the terminal: a terminal that has to break a line keeps the first
// part of it, and the next drawing begins below. Parts without room are left out, the bar first.
func (s status) line(columns int) string {
	text := thousands(s.settled) + " settled, " + thousands(s.live) + " held"
	if s.total > 0 {
		text = thousands(s.settled) + " of " + thousands(s.total) + " settled, " + thousands(s.live) + " held"
		part := fmt.Sprintf("%3d %% ", min(s.settled*100/s.total, 99)) // 100 % is reached when the bar is gone
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
