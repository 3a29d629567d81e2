// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"slices"
)

// A Middleware wraps a handler: it returns a handler that usually calls next. It sees every attempt, on the worker and
// in the context of the run, and may change the context and the payload that it passes on. It returns the error of next,
// or another one that decides the outcome in its place. A Middleware is called once for each kind, by Handle, and the
// handler that it returns is called for each attempt. Both must be safe for concurrent use.
//
// A middleware sees the payload as it is stored, before [WithPayloadVersion] upgrades it. The time limit of
// [WithTimeout] includes the time that the middleware takes. A panic in a middleware is a panic of the handler.
type Middleware func(next Handler) Handler

// WithMiddleware wraps the handlers of all kinds. The first middleware is the outermost. It is within no other than
// those of earlier calls of WithMiddleware, and encloses those of [WithKindMiddleware].
func WithMiddleware(all ...Middleware) Option {
	return func(c *config) error {
		c.middleware = append(c.middleware, all...)
		return checkMiddleware(all)
	}
}

// WithKindMiddleware wraps the handler of one kind. The first middleware is the outermost.
func WithKindMiddleware(all ...Middleware) KindOption {
	return func(k *kind) error {
		k.within = append(k.within, all...)
		return checkMiddleware(all)
	}
}

func checkMiddleware(all []Middleware) error {
	if slices.ContainsFunc(all, func(m Middleware) bool { return m == nil }) {
		return errors.New("durable: middleware is nil")
	}
	return nil
}

// wrap sets the wrapped handler. The middleware of all kinds is the outer one.
func (k *kind) wrap(outer []Middleware) error {
	k.wrapped = k.call
	for _, m := range slices.Backward(slices.Concat(outer, k.within)) {
		if k.wrapped = m(k.wrapped); k.wrapped == nil {
			return errors.New("durable: middleware returned a nil handler")
		}
	}
	return nil
}
