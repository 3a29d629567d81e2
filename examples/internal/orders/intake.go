// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"errors"
	"sync/atomic"
)

const (
	readAhead  = 1024 // maximum number of orders read ahead of their time
	complaints = 20   // maximum number of malformed lines printed; further ones are only counted
)

// An intake reads orders on a separate goroutine, slightly ahead of the feeder.
type intake struct {
	orders chan order // closed after the last order

	good, malformed atomic.Int64
	done            atomic.Bool // all orders were read
	err             error       // the read error; valid once orders is closed
}

func newIntake() *intake { return &intake{orders: make(chan order, readAhead)} }

// run reads orders from src until the last one, or until ctx is done, and calls complain for malformed lines.
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
