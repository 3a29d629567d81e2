// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"slices"
)

// A Middleware wraps a handler. It returns a handler that usually calls next, possibly with a different context or
// payload. The error that the outermost handler returns decides the outcome of the attempt. Handle calls each
// Middleware once per kind. The returned handlers are called for every attempt, and must be safe for concurrent use.
//
// The returned handler receives the payload as stored, before [WithPayloadVersion] upgrades it. [WithTimeout] also
// bounds the time that middleware takes. A panic in the handler passes through its middleware, which can detect it with
// defer. A panic in middleware counts as a panic in the handler. To record how attempts end, use [WithObserver].
//
// Middleware does not change the payloads of the tasks that a program adds. A program that stores encrypted payloads
// encrypts them before AddTask, for example in a [TaskOption] of [Kind.Add]: see the example of encryption. Stored payloads
// are not encrypted again, so a program must keep each key until no task needs it. A task may be added without a payload,
// so middleware that decrypts decides whether to pass an empty payload on. [KindOf] decodes it as the zero value.
type Middleware func(next Handler) Handler

// WithMiddleware wraps the handlers of all kinds. The first middleware is the outermost. Each call of WithMiddleware
// adds its middleware inside that of earlier calls. [WithKindMiddleware] adds middleware inside all of these.
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

// wrap sets the wrapped handler, with the middleware of all kinds outside that of this kind.
func (k *kind) wrap(outer []Middleware) error {
	k.wrapped = k.call
	for _, m := range slices.Backward(slices.Concat(outer, k.within)) {
		if k.wrapped = m(k.wrapped); k.wrapped == nil {
			return errors.New("durable: middleware returned a nil handler")
		}
	}
	return nil
}
