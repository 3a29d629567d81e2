// SPDX-License-Identifier: MIT

// Package sample has a mistake that interleave must find. The race detector does not find it, because every access is
// atomic.
package sample

import "sync/atomic"

// Once calls a function once, unless two goroutines both load before either of them has stored.
type Once struct{ done atomic.Bool }

// Do calls f if no call of Do has called it before.
func (o *Once) Do(f func()) {
	if o.done.Load() {
		return
	}
	o.done.Store(true)
	f()
}

// forms has the constructs that may surround a statement. It must compile when every statement has a point.
func forms(c chan int, a, b bool) (n int) { // a comment
	const constant = true && true
	var variable = a || b && constant
	f := func() bool { return !a || a && (b || a) }
	//lint:ignore U1000 a directive
outer:
	for i := 0; i < 3 && f(); i++ {
		switch {
		case a && b, variable:
			n++
			fallthrough
		case b:
			break outer
		default:
		}
		select {
		case v := <-c:
			n += v
		case c <- n:
			continue outer
		default:
		}
	}
	if m := n; m > 1 || a {
		return m
	} else if k := m + 1; f() && k > 2 {
		goto end
	}
	for range c {
	}
	switch v := any(n).(type) {
	case int:
		{
			n = v
		}
	}
end:
	;
	return n
}

var _ = forms
