// SPDX-License-Identifier: MIT

package orders

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// longest is the maximum length of a line in bytes. A longer line is malformed, and uses no more memory than this.
const longest = 64 << 10

var errTooLong = fmt.Errorf("the line is longer than %d bytes", longest)

// A lineError is the error for a malformed line, with the position of the line.
type lineError struct {
	name string // name of the file
	line int    // line number, starting at 1
	err  error
}

func (e *lineError) Error() string {
	return fmt.Sprintf("%s:%d: %s", printable(e.name), e.line, printable(e.err.Error()))
}

func (e *lineError) Unwrap() error { return e.err }

// readOrders reads orders from r lazily, one JSON object per line. For a malformed line, it yields a *lineError and
// continues with the next line. Any other error is the last element of the sequence. Empty lines are skipped.
//
// An order ID may occur only once. To detect duplicates, readOrders stores all IDs, which take about a hundred bytes
// each.
func readOrders(r io.Reader, name string) iter.Seq2[order, error] {
	return func(yield func(order, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, longest), name: name, first: make(map[string]int)}
		for {
			o, err := lines.next()
			if errors.Is(err, io.EOF) {
				return
			}
			var malformed *lineError
			last := err != nil && !errors.As(err, &malformed)
			if !yield(o, err) || last {
				return
			}
		}
	}
}

// A lineReader parses lines into orders.
type lineReader struct {
	r     *bufio.Reader
	name  string
	line  int            // number of the last line read
	first map[string]int // line number of each order ID
}

// next returns the next order. Its error is a *lineError for a malformed line, io.EOF at the end, or another read
// error.
func (l *lineReader) next() (order, error) {
	text, err := l.read()
	for err == nil && len(text) == 0 {
		text, err = l.read()
	}
	switch {
	case errors.Is(err, errTooLong):
		return order{}, &lineError{l.name, l.line, err}
	case errors.Is(err, io.EOF):
		return order{}, io.EOF
	case err != nil:
		return order{}, fmt.Errorf("reading %s at line %d: %w", l.name, l.line, err)
	}
	o, err := parseOrder(text)
	if err != nil {
		return order{}, &lineError{l.name, l.line, err}
	}
	if line, seen := l.first[o.id]; seen {
		return order{}, &lineError{l.name, l.line, fmt.Errorf("order %s is on line %d already", o.id, line)}
	}
	l.first[o.id] = l.line
	return o, nil
}

// read returns the next line without surrounding spaces. The line is valid until the next call.
func (l *lineReader) read() ([]byte, error) {
	l.line++
	text, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, l.passOver()
	}
	if errors.Is(err, io.EOF) && len(text) > 0 {
		err = nil // the last line has no newline
	}
	if l.line == 1 {
		text = bytes.TrimPrefix(text, []byte("\ufeff")) // the byte order mark that some editors write first
	}
	return bytes.TrimSpace(text), err
}

// passOver skips the rest of a line that is too long.
func (l *lineReader) passOver() error {
	for {
		switch _, err := l.r.ReadSlice('\n'); {
		case err == nil, errors.Is(err, io.EOF):
			return errTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
