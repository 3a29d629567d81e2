// SPDX-License-Identifier: MIT

package otel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
)

var ctx = context.Background()

// newProvider returns a tracer provider and the exporter that receives its spans.
func newProvider(t *testing.T) (*trace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	return provider, spans
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// schedulers are a scheduler on an own engine, and a node.
var schedulers = map[string]func(opts ...durable.Option) (*durable.Scheduler, error){
	"own": func(opts ...durable.Option) (*durable.Scheduler, error) {
		return durable.New(ctx, memory.New().Engine(), opts...)
	},
	"node": func(opts ...durable.Option) (*durable.Scheduler, error) {
		return durable.New(ctx, memory.New().Shared(), opts...)
	},
}

// Each run is the root of a separate trace, and is linked to the span that added its task.
func TestMiddleware_eachRun_isASpanWithALink(t *testing.T) {
	for name, open := range schedulers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, spans := newProvider(t)
				s, err := open(durable.WithLogger(testkit.Quiet()), otel.Option(provider))
				must(t, err)
				tracer := provider.Tracer("test")
				fails := errors.New("on purpose")
				must(t, s.Handle("recheck", func(ctx context.Context, run durable.Run) error {
					_, inside := tracer.Start(ctx, "inside")
					inside.End()
					if run.Attempt == 1 && run.Times == 1 {
						return fails
					}
					return nil
				}, durable.WithRetry(3, time.Second, time.Second)))
				must(t, s.Start())

				state, err := api.ParseTraceState("vendor=a value,other=1")
				must(t, err)
				adding, adder := tracer.Start(api.ContextWithSpanContext(ctx, api.NewSpanContext(api.SpanContextConfig{
					TraceID: api.TraceID{1}, SpanID: api.SpanID{2}, TraceFlags: api.FlagsSampled, TraceState: state,
				})), "add")
				task := durable.Task{Key: "k\xff", Kind: "recheck", Interval: time.Minute, Times: 2}
				otel.Inject(adding, &task)
				must(t, s.AddTask(adding, task))
				adder.End()
				info, _, err := s.Get(ctx, task.Key)
				if must(t, err); info.Trace != task.Trace || info.Trace == "" {
					t.Errorf("the task has the trace %q, want %q", info.Trace, task.Trace)
				}
				time.Sleep(time.Hour)
				must(t, s.Shutdown(ctx))

				var runs []tracetest.SpanStub
				inside := map[api.SpanID]int{}
				for _, span := range spans.GetSpans() {
					switch span.Name {
					case "process recheck":
						runs = append(runs, span)
					case "inside":
						inside[span.Parent.SpanID()]++
					}
				}
				if len(runs) != 3 {
					t.Fatalf("%d runs have a span, want 3: %+v", len(runs), runs)
				}
				traces := map[api.TraceID]bool{adder.SpanContext().TraceID(): true}
				for i, span := range runs {
					if id := span.SpanContext.TraceID(); traces[id] || span.Parent.IsValid() {
						t.Errorf("run %d is not the root of a trace of its own", i)
					}
					traces[span.SpanContext.TraceID()] = true
					if span.SpanKind != api.SpanKindConsumer {
						t.Errorf("run %d is a span of the kind %v", i, span.SpanKind)
					}
					if len(span.Links) != 1 {
						t.Fatalf("run %d has the links %v", i, span.Links)
					}
					link, want := span.Links[0].SpanContext, adder.SpanContext()
					if link.TraceID() != want.TraceID() || link.SpanID() != want.SpanID() || !link.IsSampled() ||
						link.TraceState().String() != want.TraceState().String() {
						t.Errorf("run %d is linked to %v, want %v", i, link, want)
					}
					if inside[span.SpanContext.SpanID()] != 1 {
						t.Errorf("the span inside run %d has another parent", i)
					}
				}
				first, second, third := attributes(runs[0]), attributes(runs[1]), attributes(runs[2])
				for key, want := range map[attribute.Key]string{
					"messaging.system": "timewheel", "messaging.operation.name": "process",
					"messaging.operation.type": "process", "messaging.destination.name": "recheck",
					"timewheel.task.key": "k\uFFFD", "timewheel.run.attempt": "1", "error.type": "*errors.errorString",
				} {
					if got := first[key].String(); got != want {
						t.Errorf("%s is %q, want %q", key, got, want)
					}
				}
				if id := first["messaging.message.id"]; id != second["messaging.message.id"] ||
					id == third["messaging.message.id"] || !strings.HasSuffix(id.AsString(), ".k\uFFFD") {
					t.Errorf("the ids are %v, %v and %v", id, second["messaging.message.id"], third["messaging.message.id"])
				}
				if second["timewheel.run.attempt"].AsInt64() != 2 || second["error.type"].AsString() != "" {
					t.Errorf("the second attempt has the attributes %v", second)
				}
				if late := first["timewheel.run.lateness"].AsFloat64(); late < 0 || late > 0.2 {
					t.Errorf("the first run is %v s late", late)
				}
				if got := runs[0].Status; got.Code != codes.Error || got.Description != "on purpose" {
					t.Errorf("the first attempt has the status %+v", got)
				}
				if got := runs[1].Status.Code; got != codes.Unset {
					t.Errorf("the second attempt has the status %v", got)
				}
			})
		})
	}
}

func attributes(span tracetest.SpanStub) map[attribute.Key]attribute.Value {
	all := make(map[attribute.Key]attribute.Value)
	for _, a := range span.Attributes {
		all[a.Key] = a.Value
	}
	return all
}

// A handler that panics or ends its goroutine also has a span, and the scheduler notices it as it would without one.
func TestMiddleware_panicAndGoexit_areErrors(t *testing.T) {
	for name, h := range map[string]durable.Handler{
		"handler panicked: on purpose":  func(context.Context, durable.Run) error { panic("on purpose") },
		"handler called runtime.Goexit": func(context.Context, durable.Run) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, spans := newProvider(t)
				s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
				must(t, err)
				must(t, s.Handle("kind", h, durable.WithKindMiddleware(otel.Middleware(provider)), durable.WithRetry(1, time.Second, time.Second)))
				must(t, s.Start())
				must(t, s.AddTask(ctx, durable.Task{Key: "k", Kind: "kind", Delay: time.Second}))
				time.Sleep(time.Minute)
				info, _, err := s.Get(ctx, "k")
				if must(t, err); info.Failure != name {
					t.Errorf("the failure is %q", info.Failure)
				}
				must(t, s.Shutdown(ctx))
				got := spans.GetSpans()
				if len(got) != 1 || got[0].Status.Code != codes.Error || got[0].EndTime.IsZero() ||
					attributes(got[0])["error.type"].AsString() == "" {
					t.Errorf("the spans are %+v", got)
				}
			})
		})
	}
}

// A task that was added without a span runs in a span without a link, and so does a task with a foreign trace text.
func TestMiddleware_withoutATrace_hasNoLink(t *testing.T) {
	provider, spans := newProvider(t)
	h := otel.Middleware(provider)(func(context.Context, durable.Run) error { return nil })
	for _, trace := range []string{"", " ", "x", "00-0-0-01", strings.Repeat("y", durable.MaxTrace)} {
		must(t, h(ctx, durable.Run{Trace: trace}))
	}
	for _, span := range spans.GetSpans() {
		if len(span.Links) > 0 {
			t.Errorf("a span has the links %v", span.Links)
		}
	}
}

// A postponed run has not failed, and neither has its span.
func TestMiddleware_snooze_isNoError(t *testing.T) {
	provider, spans := newProvider(t)
	h := otel.Middleware(provider)(func(context.Context, durable.Run) error { return fmt.Errorf("not yet: %w", durable.Snooze(1)) })
	if err := h(ctx, durable.Run{}); !durable.IsSnooze(err) {
		t.Errorf("the error is %v", err)
	}
	if got := spans.GetSpans(); len(got) != 1 || got[0].Status.Code != codes.Unset {
		t.Errorf("the spans are %+v", got)
	}
}

func TestInject(t *testing.T) {
	at := func(state string) context.Context {
		parsed, err := api.ParseTraceState(state)
		must(t, err)
		return api.ContextWithSpanContext(ctx, api.NewSpanContext(api.SpanContextConfig{
			TraceID: api.TraceID{15: 1}, SpanID: api.SpanID{7: 2}, TraceState: parsed,
		}))
	}
	const parent = "00-00000000000000000000000000000001-0000000000000002-00"
	long := "v=" + strings.Repeat("x", 255) + ",w=" + strings.Repeat("y", 255)
	for name, c := range map[string]struct {
		in   context.Context
		want string
	}{
		"no span":                  {ctx, "before"},
		"a span":                   {at(""), parent},
		"a span and its state":     {at("v=1,w=2"), parent + " v=1,w=2"},
		"a state that is too long": {at(long), parent},
	} {
		task := durable.Task{Key: "k", Kind: "kind", Delay: time.Second, Trace: "before"}
		otel.Inject(c.in, &task)
		if task.Trace != c.want {
			t.Errorf("%s: the trace is %q, want %q", name, task.Trace, c.want)
		}
		if c.want != "before" && otel.Extract(task.Trace).TraceID() != (api.TraceID{15: 1}) {
			t.Errorf("%s: %q is not read again", name, task.Trace)
		}
	}
}

func TestMiddleware_ofNothing_panics(t *testing.T) {
	for _, f := range []func(){func() { otel.Option(nil) }, func() { otel.Middleware(nil) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it does not panic")
				}
			}()
			f()
		}()
	}
}
