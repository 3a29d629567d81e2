// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"errors"
	"sync/atomic"
)

const (
	readAhead  = 1024 // orders read before their time
	complaints = 20   // malformed lines that are printed; the others are counted
)

// An intake reads orders on a separate goroutine, slightly ahead of the feeder.
type intake struct {
	orders chan order // closed at the end

	good, malformed atomic.Int64
	done            atomic.Bool // everything was read
	err             error       // the read error; valid when orders is closed
}

func newIntake() *intake { return &intake{orders: make(chan order, readAhead)} }

// run reads all orders of src, until ctx is done, and calls complain for malformed lines.
func (in *intake) run(ctx context.Context, src *source, complain func(string)) {
	defer close(in.orders)
	for o, err := range src.orders {
		var malformed *lineError
		switch {
		case errors.As(err, &malformed):
			if in.malformed.Add(1) <= complaints {
				complain(malformed.Error())
			}
			continue
		case err != nil:
			in.err = err
			return
		}
		in.good.Add(1)
		select {
		case in.orders <- o:
		case <-ctx.Done():
			return
		}
	}
	in.done.Store(true)
}
