// SPDX-License-Identifier: MIT

// Package otel traces the runs of durable schedulers with OpenTelemetry. Each call of a handler gets a span, which is
// linked to the span that added the task.
//
//	s, err := durable.New(ctx, engine, otel.Option(provider))
//	...
//	task := durable.Task{Key: "order:42", Kind: "recheck", Delay: 30 * time.Minute}
//	otel.Inject(ctx, &task)
//	err = s.AddTask(ctx, task)
//
// The task carries the trace context, so the link works in whichever process runs the task, and at any later time.
//
// # Links instead of parents
//
// Each span is the root of its own trace, with a link to the span that added the task. The semantic conventions for
// messaging require such a link for a span that processes a message; a parent is optional. For durable tasks, a parent
// would usually be wrong. A run may start minutes or even months after the span that added the task has ended. A trace
// that contained both would last that long, and its sampling decision would be just as old. A repeating task would
// extend the trace forever. The attempts of a run are separate traces that share the same messaging.message.id.
//
// # Attributes
//
//	messaging.system                 timewheel
//	messaging.operation.name, .type  process
//	messaging.destination.name       the kind of the task
//	messaging.message.id             the token of the run, which all of its attempts share
//	timewheel.task.key               the key of the task
//	timewheel.run.attempt            1 for the first attempt
//	timewheel.run.lateness           seconds from the due time of the run until the call
//	error.type                       the type of the error, if the call failed
//
// The name of a span is "process" followed by the kind. If a call returns an error, panics or ends its goroutine, its
// span has the status Error, unless the error is from [durable.Snooze].
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

// Option returns a scheduler option that creates a span for each call of a handler. It panics if the provider is nil.
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
		failure, message := "ended", "the handler panicked or ended its goroutine" // cleared if h returns
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
			attribute.Float64("timewheel.run.lateness", run.Lateness().Seconds()),
		),
	}
	if added := Extract(run.Trace); added.IsValid() {
		all = append(all, trace.WithLinks(trace.Link{SpanContext: added}))
	}
	return all
}

// text returns s as valid UTF-8, as attribute values require.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// These are the headers of W3C Trace Context. Task.Trace contains their values, separated by a space.
const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

// Inject sets task.Trace to the trace context of the span in ctx, which should be the span that adds the task. If ctx
// contains no valid span, Inject does nothing. Inject omits a tracestate that would make task.Trace longer than
// [durable.MaxTrace].
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

// Extract returns the span context that Inject has stored in the Trace field of a [durable.Task]. The result is not
// valid if there is no trace context in from.
func Extract(from string) trace.SpanContext {
	parent, state, _ := strings.Cut(from, " ")
	carrier := propagation.MapCarrier{traceparent: parent, tracestate: state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
