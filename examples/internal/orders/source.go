// SPDX-License-Identifier: MIT

package orders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"
)

// A source provides orders.
type source struct {
	name   string
	orders iter.Seq2[order, error] // as returned by readOrders
	stock  func(sku string) int    // number of units of the SKU at the start

	keepsIDs bool // the source keeps the IDs of all orders to detect duplicates

	expected int64        // expected number of orders, or 0 if unknown
	size     int64        // size of the input in bytes, or 0 if unknown
	read     atomic.Int64 // number of input bytes read
}

// openSource returns the source named by c, and a function that closes it.
func openSource(c config, stdin io.Reader) (*source, func(), error) {
	if c.generate > 0 {
		return generated(c), func() {}, nil
	}
	s := &source{name: "standard input", keepsIDs: true, stock: func(string) int { return c.stock }}
	if c.in == "-" {
		s.orders = readOrders(stdin, s.name)
		return s, func() {}, nil
	}
	file, err := os.Open(c.in)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the orders: %w", err)
	}
	s.name = filepath.Base(c.in)
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		s.size = info.Size()
	}
	s.orders = readOrders(&countingReader{file, &s.read}, c.in)
	return s, func() { _ = file.Close() }, nil
}

// generated returns a source for the sale that c describes.
func generated(c config) *source {
	g := newGenerator(c.generate, c.seed)
	s := &source{
		name:     fmt.Sprintf("a sale (seed %d)", c.seed),
		orders:   g.orders(),
		stock:    func(sku string) int { return g.stock[sku] },
		expected: int64(c.generate),
	}
	if c.stock >= 0 {
		s.stock = func(string) int { return c.stock }
	}
	return s
}

// total estimates the total number of orders, given that good of them have been read. It returns -1 if the total is
// unknown.
func (s *source) total(good int64) int64 {
	read := s.read.Load()
	switch {
	case s.expected > 0:
		return s.expected
	case s.size > 0 && read > 0:
		return int64(float64(good) * float64(s.size) / float64(read))
	}
	return -1
}

// writeOut writes the generated orders as JSON lines until ctx is done. It returns the number of orders written.
func writeOut(ctx context.Context, c config, stdout io.Writer) (n int, err error) {
	w := stdout
	if c.out != "-" {
		file, createErr := os.Create(c.out)
		if createErr != nil {
			return 0, fmt.Errorf("creating the file for the orders: %w", createErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		w = file
	}
	buffer := bufio.NewWriter(w)
	var line []byte
	for o := range generated(c).orders {
		if ctx.Err() != nil {
			break
		}
		if line, err = o.appendLine(line[:0]); err != nil {
			return n, err
		}
		if _, err := buffer.Write(line); err != nil {
			return n, fmt.Errorf("writing the orders: %w", err)
		}
		n++
	}
	if err := buffer.Flush(); err != nil {
		return n, fmt.Errorf("writing the orders: %w", err)
	}
	return n, nil
}

// A countingReader counts the bytes read through it.
type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
