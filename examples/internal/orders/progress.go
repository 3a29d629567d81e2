// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	redraw   = 100 * time.Millisecond // time between two drawings of the bar
	barSteps = 1000                   // from nothing to all
	textLeft = 46                     // columns for the text beside the bar; the whole line has fewer than 80
)

// A status is how far the work is.
type status struct {
	settled int64 // orders that were refused, paid or given back
	total   int64 // orders in all, or -1 if that is not known
	live    int   // tasks that are live
}

// A console is standard error: lines for a person, and below them a bar as long as there is work. Where there
// is no terminal there is no bar.
type console struct {
	mu    sync.Mutex // protects all below, and keeps lines and bar apart
	w     io.Writer
	bar   *progressbar.ProgressBar // nil if there is none
	total bool                     // the bar knows the total, and shows a part of it
}

// println writes a line above the bar.
func (c *console) println(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Clear() // the next drawing brings it back
	}
	fmt.Fprintln(c.w, line)
}

// follow draws a bar of what now returns, until stop is closed. Then the bar goes.
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
			c.draw(now())
		}
	}
}

func (c *console) draw(s status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	steps, done := int64(-1), s.settled
	text := thousands(s.settled) + " settled, " + thousands(s.live) + " held"
	if s.total > 0 {
		steps, done = barSteps, min(s.settled*barSteps/s.total, barSteps-1) // a bar that is full draws no more
		text = thousands(s.settled) + " of " + thousands(s.total) + " settled, " + thousands(s.live) + " held"
	}
	if c.bar == nil || c.total != (s.total > 0) {
		c.clearLocked()
		c.bar, c.total = c.newBar(steps), s.total > 0
	}
	c.bar.Describe(left(text, textLeft))
	_ = c.bar.Set64(done)
}

func (c *console) newBar(steps int64) *progressbar.ProgressBar {
	return progressbar.NewOptions64(steps,
		progressbar.OptionSetWriter(c.w),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionSetWidth(20),
		progressbar.OptionShowDescriptionAtLineEnd(),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0), // at each drawing, and by no goroutine of its own
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░"}),
	)
}

func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearLocked()
}

func (c *console) clearLocked() {
	if c.bar != nil {
		_ = c.bar.Clear()
	}
	c.bar = nil
}
