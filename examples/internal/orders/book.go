// SPDX-License-Identifier: MIT

package orders

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A step is a change to an order, and one line of the book. Only an order's first step may have SKU, Quantity and At.
type step struct {
	Order    string    `json:"order"`
	Is       string    `json:"is"`
	SKU      string    `json:"sku,omitempty"`
	Quantity int       `json:"quantity,omitempty"`
	At       time.Time `json:"at,omitzero"` // on the orders' clock
}

// The states of an order. A held order becomes either paid or back, once. An order that is back may still be paid, but
// too late.
const (
	isOpened  = "opened" // not the state of an order: the book was opened
	isRefused = "refused"
	isHeld    = "held"
	isPaid    = "paid"
	isBack    = "back"
	isLate    = "late"
)

// A book is a file of steps. A step takes effect only once it is on disk. Steps that are written concurrently share one
// sync. A book is safe for concurrent use.
type book struct {
	file *os.File
	wake chan struct{}
	done chan struct{}

	mu     sync.Mutex // protects the fields below
	lines  bytes.Buffer
	synced chan struct{} // closed when lines is on disk or could not be written
	closed bool
	err    error
}

// openBook opens the book and calls read with each step in it. If a crash left the last line incomplete, openBook
// removes that line, because its step was never acknowledged.
func openBook(name string, read func(step) error) (_ *book, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the book: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	var whole int64
	for r, n := bufio.NewReader(file), 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var s step
		if err == nil {
			err = json.Unmarshal(line, &s)
		}
		if err == nil {
			err = read(s)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", n, name, err)
		}
		whole += int64(len(line))
	}
	if err := file.Truncate(whole); err != nil {
		return nil, fmt.Errorf("cutting %s: %w", name, err)
	}
	if _, err := file.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	if err := syncDir(filepath.Dir(name)); err != nil { // so that a new file survives a crash
		return nil, err
	}
	b := &book{file: file, wake: make(chan struct{}, 1), done: make(chan struct{}), synced: make(chan struct{})}
	go b.run()
	return b, nil
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// write writes the step and returns once the step is on disk.
func (b *book) write(s step) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	b.mu.Lock()
	if b.err != nil || b.closed {
		defer b.mu.Unlock()
		return cmp.Or(b.err, errors.New("the book is closed"))
	}
	b.lines.Write(append(line, '\n'))
	synced := b.synced
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	<-synced
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// run repeatedly writes all waiting steps with one sync. After an error, it writes no further steps, because steps
// after a torn line could not be read back.
func (b *book) run() {
	defer close(b.done)
	for range b.wake {
		b.mu.Lock()
		lines, synced, closed, failed := bytes.Clone(b.lines.Bytes()), b.synced, b.closed, b.err != nil
		b.lines.Reset()
		b.synced = make(chan struct{})
		b.mu.Unlock()
		if !failed {
			_, err := b.file.Write(lines)
			if err == nil {
				err = b.file.Sync()
			}
			if err != nil {
				b.mu.Lock()
				b.err = fmt.Errorf("writing the book: %w", err)
				b.mu.Unlock()
			}
		}
		close(synced)
		if closed {
			return
		}
	}
}

// close writes the waiting steps and closes the file.
func (b *book) close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	<-b.done
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.err, b.file.Close())
}
