// SPDX-License-Identifier: MIT

// This program is built with the traces of runs, installed as by a user.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/otel"
)

func main() {
	s, err := durable.New(context.Background(), memory.New().Engine(), otel.Option(noop.NewTracerProvider()))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan durable.Run)
	err = s.Handle("kind", func(_ context.Context, run durable.Run) error {
		ran <- run
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	task := durable.Task{Key: "k", Kind: "kind", Delay: time.Millisecond}
	otel.Inject(ctx, &task)
	if err := s.AddTask(ctx, task); err != nil {
		log.Fatal(err)
	}
	run := <-ran
	fmt.Println("the run is linked to the span", otel.Extract(run.Trace).SpanID())
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
}
