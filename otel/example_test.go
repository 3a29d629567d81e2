// SPDX-License-Identifier: MIT

package otel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/otel"
)

// The code that adds a task puts its trace context into it, and each call of a handler has a span.
func Example() {
	spans := tracetest.NewInMemoryExporter() // or an exporter that sends them to a collector
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))

	s, err := durable.New(context.Background(), memory.New().Engine(), otel.Option(provider))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan bool)
	err = s.Handle("recheck", func(ctx context.Context, run durable.Run) error {
		ran <- true
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}

	ctx, span := provider.Tracer("shop").Start(context.Background(), "order")
	task := durable.Task{Key: "order:42", Kind: "recheck", Delay: time.Millisecond}
	otel.Inject(ctx, &task)
	err = s.AddTask(ctx, task)
	span.End()
	if err != nil {
		log.Fatal(err)
	}

	<-ran
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, len(s.Links))
	}
	fmt.Println(otel.Extract(task.Trace).SpanID() == span.SpanContext().SpanID())
	// Output:
	// order 0
	// process recheck 1
	// true
}

// Only one kind is traced.
func ExampleMiddleware() {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	nothing := func(context.Context, durable.Run) error { return nil }
	for _, err := range []error{
		s.Handle("payment", nothing, durable.WithKindMiddleware(otel.Middleware(provider))),
		s.Handle("heartbeat", nothing),
		s.Start(),
		s.AddTask(ctx, durable.Task{Key: "a", Kind: "payment"}, durable.Task{Key: "b", Kind: "heartbeat"}),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	for s.Len() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name)
	}
	// Output: process payment
}
