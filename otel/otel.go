// SPDX-License-Identifier: MIT

// Package otel traces the runs of durable schedulers with OpenTelemetry: a span for each call of a handler, with a link
// to the span in which the task was added.
//
//	s, err := durable.New(store, otel.Option(provider))
//	...
//	task := durable.Task{Key: "order:42", Kind: "recheck", Delay: 30 * time.Minute}
//	otel.Inject(ctx, &task)
//	err = s.AddTask(ctx, task)
//
// The task carries the trace context, so it does not matter which process runs it, or when.
//
// # A link, and not a parent
//
// A span is the root of a trace of its own, and linked to the span that added the task. That is what the semantic
// conventions for messaging require of a span that processes a message; a parent is optional there. Here it would
// usually be wrong. A run begins minutes or months after the span that added it has ended. One trace of both would last
// as long, and be sampled by a decision that is as old. A repeating task would add to that trace for ever. Attempts of
// one run are different traces; they have the same messaging.message.id.
//
// # Attributes
//
//	messaging.system                 timewheel
//	messaging.operation.name, .type  process
//	messaging.destination.name       the kind
//	messaging.message.id             the token of the run, the same for all of its attempts
//	timewheel.task.key               the key
//	timewheel.run.attempt            1 for the first
//	timewheel.run.lateness           seconds from when the run was due until the call
//	error.type                       of a call that failed
//
// The name of a span is "process" and the kind. A call that returns an error, panics or ends its goroutine has the status
// Error, unless the error is that of [durable.Snooze].
package otel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the tracer.
const scope = "github.com/seed581295f1/timewheel/otel"

// Option returns the option of a scheduler with which each call of its handlers has a span. It panics if the provider is
// nil.
func Option(provider trace.TracerProvider) durable.Option {
	return durable.WithMiddleware(Middleware(provider))
}

// Middleware returns the middleware of Option, for one kind: see [durable.WithKindMiddleware]. It panics if the provider
// is nil.
func Middleware(provider trace.TracerProvider) durable.Middleware {
	if provider == nil {
		panic("otel: the tracer provider is nil")
	}
	tracer := provider.Tracer(scope)
	return func(next durable.Handler) durable.Handler { return traced(tracer, next) }
}

// traced returns a handler that calls next within a span.
func traced(tracer trace.Tracer, next durable.Handler) durable.Handler {
	return func(ctx context.Context, run durable.Run) error {
		ctx, span := tracer.Start(ctx, "process "+text(run.Kind), options(run)...)
		failure, message := "ended", "the handler panicked or ended its goroutine" // unless it returns
		defer func() {
			if failure != "" {
				span.SetAttributes(attribute.String("error.type", failure))
				span.SetStatus(codes.Error, message)
			}
			span.End()
		}()
		err := next(ctx, run)
		if failure = ""; err != nil && !durable.IsSnooze(err) {
			failure, message = fmt.Sprintf("%T", err), text(err.Error())
		}
		return err
	}
}

func options(run durable.Run) []trace.SpanStartOption {
	now := time.Now()
	all := []trace.SpanStartOption{
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(now),
		trace.WithAttributes(
			attribute.String("messaging.system", "timewheel"),
			attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", text(run.Kind)),
			attribute.String("messaging.message.id", text(run.Token.String())),
			attribute.String("timewheel.task.key", text(run.Key)),
			attribute.Int("timewheel.run.attempt", run.Attempt),
			attribute.Float64("timewheel.run.lateness", now.Sub(run.Due).Seconds()),
		),
	}
	if added := Extract(run.Trace); added.IsValid() {
		all = append(all, trace.WithLinks(trace.Link{SpanContext: added}))
	}
	return all
}

// text returns s as an attribute may have it.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// The headers of W3C Trace Context, which Task.Trace has with a space between them.
const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

// Inject sets task.Trace to the trace context of the span in ctx, which is to be the one that adds the task. Without a
// valid span in ctx it does nothing. A tracestate that is too long for durable.MaxTrace is left out.
func Inject(ctx context.Context, task *durable.Task) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if carrier[traceparent] == "" {
		return
	}
	task.Trace = carrier[traceparent]
	if state := carrier[tracestate]; state != "" && len(task.Trace)+1+len(state) <= durable.MaxTrace {
		task.Trace += " " + state
	}
}

// Extract returns the span context that Inject has put into [durable.Task].Trace. It is not valid if there is none.
func Extract(from string) trace.SpanContext {
	parent, state, _ := strings.Cut(from, " ")
	carrier := propagation.MapCarrier{traceparent: parent, tracestate: state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
