// Package telemetry exports spans by OTLP over HTTP, if that is set up. Otherwise everything here does
// nothing and allocates nothing.
//
// A span is exported once, when it has ended, by the process that ends it. A span that outlives a process has
// an id derived from what it describes (Derive), and stores only the place in a trace where it began, as a
// traceparent. So any process can end it, and a process that exports again what a killed one may have
// exported repeats the same span.
//
// To use it, know these: Ref, Span, Call; Parent and Current of a context.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"deepwork/actor/wait"
)

// Options are the parameters of Start and OpenMetrics.
type Options struct {
	Endpoint string // the URL of a receiver, without /v1/traces and /v1/metrics; "" means that of the environment
	Content  bool   // see Content
	Service  string // the process's name, unless the environment has one
	Version  string
	Logger   *slog.Logger // gets at most one warning per minute while the receiver does not accept data
}

// names reports whether a receiver is named for a signal, TRACES or METRICS, and not turned off.
func (o Options) names(signal string) bool {
	named := cmp.Or(o.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv(secret+signal+"_ENDPOINT"))
	return named != "" && os.Getenv("OTEL_"+signal+"_EXPORTER") != "none" &&
		!strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")
}

// report makes the library report to the logger, without the values that it was given, since some are keys.
func (o Options) report() {
	f := &faults{logger: o.Logger}
	otel.SetErrorHandler(f)
	otel.SetLogger(funcr.New(func(_, text string) {
		f.Handle(errors.New(text))
	}, funcr.Options{Verbosity: 1, RenderArgsHook: func([]any) []any { return nil }}))
}

// resource describes this process to a receiver. The environment comes last and takes precedence; its
// unreadable values are ignored.
func (o Options) resource(more ...attribute.KeyValue) *resource.Resource {
	own := resource.NewSchemaless(
		append(more, attribute.String("service.name", o.Service), attribute.String("service.version", o.Version))...)
	all, _ := resource.Merge(own, resource.Environment()) // fails only for two schemas, and ours has none
	return all
}

// A service is the result of Start.
type service struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	content  bool
	endpoint string       // from Options
	parent   Ref          // parent of what this process begins on its own behalf
	waiting  atomic.Int64 // number of spans
}

var current atomic.Pointer[service] // nil means off

const (
	// batchDelay is how long a span waits at most before it is sent: a kill loses waiting spans.
	batchDelay = 200 * time.Millisecond
	// sending limits one request, including its repetitions.
	sending = 10 * time.Second
	// retryPause is the pause before a request is repeated.
	retryPause = time.Second
	// queued is the maximum number of spans that wait or are being sent; others are dropped.
	queued = 2048 // the library's queue is longer, since several callers may count at once
	// flushing limits the wait for the receiver when the process ends.
	flushing = time.Second
)

// Start makes this process export its spans, if the options or the environment name a receiver. The returned
// function sends waiting spans, for at most a second. It is nil if nothing has changed: no receiver is named,
// or spans are exported already.
func Start(o Options) (stop func()) {
	if On() || !o.names("TRACES") {
		return nil
	}
	o.report()

	with := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled:         true,
		InitialInterval: retryPause,
		MaxInterval:     sending / 2,
		MaxElapsedTime:  sending,
	})}
	if o.Endpoint != "" {
		with = append(with, otlptracehttp.WithEndpointURL(strings.TrimSuffix(o.Endpoint, "/")+"/v1/traces"))
	}
	exporter, err := otlptracehttp.New(context.Background(), with...)
	if err != nil {
		otel.Handle(err)
		return nil
	}

	end := make(chan struct{})
	s := &service{content: o.Content, endpoint: o.Endpoint, parent: Parse(os.Getenv("TRACEPARENT"))}
	s.provider = sdk.NewTracerProvider(sdk.WithResource(o.resource()), sdk.WithIDGenerator(contextIDs{}),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())),
		sdk.WithBatcher(retryingExporter{exporter, &s.waiting, end}, sdk.WithBatchTimeout(batchDelay),
			sdk.WithExportTimeout(sending), sdk.WithMaxQueueSize(2*queued), sdk.WithMaxExportBatchSize(queued/4)))
	s.tracer = s.provider.Tracer(o.Service, trace.WithInstrumentationVersion(o.Version))

	current.Store(s)
	return func() {
		current.Store(nil)
		close(end)
		ctx, cancel := context.WithTimeout(context.Background(), flushing)
		defer cancel()
		_ = s.provider.Shutdown(ctx) // what could not be sent is lost
	}
}

// On reports whether spans are exported.
func On() bool { return current.Load() != nil }

// Taken reports whether a span that ends now would be kept until it is sent. It would not be if nothing is
// exported, or while the queue is full because the receiver is away or slow.
func Taken() bool {
	s := current.Load()
	return s != nil && s.waiting.Load() < queued
}

// A retryingExporter retries while the receiver is away, so that spans that end meanwhile wait, and counts
// down the waiting ones.
type retryingExporter struct {
	sdk.SpanExporter
	waiting *atomic.Int64
	end     <-chan struct{} // closed when the process ends: then there is one last try
}

// ExportSpans implements sdk.SpanExporter.
func (p retryingExporter) ExportSpans(ctx context.Context, all []sdk.ReadOnlySpan) error {
	defer p.waiting.Add(-int64(len(all)))
	for {
		err := p.SpanExporter.ExportSpans(ctx, all)
		if err == nil || ctx.Err() != nil || !On() {
			return err
		}

		otel.Handle(err)
		if wait.Until(ctx, retryPause, p.end) != nil {
			return nil // already reported
		}
	}
}

// Content reports whether texts that people and agents write may be exported.
func Content() bool {
	s := current.Load()
	return s != nil && s.content
}

// faults logs errors of the exporters of this process, at most one per minute.
type faults struct {
	logger *slog.Logger
	next   atomic.Int64 // when the next error may be logged, in nanoseconds since 1970
}

// Handle implements otel.ErrorHandler.
func (f *faults) Handle(err error) {
	now, next := time.Now(), f.next.Load()
	if now.UnixNano() >= next && f.next.CompareAndSwap(next, now.Add(time.Minute).UnixNano()) && f.logger != nil {
		f.logger.Warn("traces or metrics have a problem; work goes on without them", "error", err)
	}
}

// contextIDs gives spans the ids in their context.
type contextIDs struct{}

type spanRefKey struct{}

// NewIDs implements sdk.IDGenerator.
func (contextIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	of, _ := ctx.Value(spanRefKey{}).(Ref)
	return of.TraceID(), of.SpanID()
}

// NewSpanID implements sdk.IDGenerator.
func (w contextIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := w.NewIDs(ctx)
	return id
}

// A Span is a span that has ended.
type Span struct {
	Name       string
	Ref        Ref // its own
	Parent     Ref // in the same trace; without a span it means that this is the root
	Start, End time.Time
	Error      string // a code, never a text; "" means that it ended well
	Attributes []attribute.KeyValue
}

// Export queues a span for sending if it is Taken. It never blocks. It sends nothing if the trace is not
// sampled.
func Export(span Span, more ...trace.SpanStartOption) {
	s := current.Load()
	if s == nil || !Taken() || !span.Ref.IsValid() || !span.Ref.IsSampled() {
		return
	}

	ctx := context.WithValue(context.Background(), spanRefKey{}, span.Ref)
	if span.Parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, span.Parent)
	}
	_, open := s.tracer.Start(ctx, span.Name,
		append(more, trace.WithTimestamp(span.Start), trace.WithAttributes(span.Attributes...))...)
	if span.Error != "" {
		open.SetStatus(codes.Error, span.Error)
		open.SetAttributes(attribute.String("error.type", span.Error))
	}
	if span.End.Before(span.Start) {
		span.End = span.Start // the start is by another machine's clock
	}
	if open.IsRecording() {
		s.waiting.Add(1)
	}
	open.End(trace.WithTimestamp(span.End))
}

// Environment returns the variables with which a process that does the work of a span continues its trace.
func Environment(of Ref) []string {
	if !On() || !of.IsValid() {
		return nil
	}
	return []string{"TRACEPARENT=" + Text(of)}
}

// secret is the prefix of the names of variables that may contain a key of the receiver.
const secret = "OTEL_EXPORTER_OTLP_"

// Secrets returns the names of the variables that may contain a key of the receiver, as they were when this
// process started.
var Secrets = sync.OnceValue(func() (names []string) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, secret) {
			names = append(names, name)
		}
	}
	return slices.Clip(names)
})

// WithReceiver returns changes of an environment, in the form of process.With, that keep the receiver's
// variables.
func WithReceiver(changes []string) []string {
	kept := slices.DeleteFunc(slices.Clone(changes), func(c string) bool { return strings.HasPrefix(c, secret) })
	if s := current.Load(); s != nil && s.endpoint != "" {
		kept = append(kept, secret+"ENDPOINT="+s.endpoint)
	}
	return kept
}

// Received returns the place in a trace from which a request comes, according to its own field or else the
// HTTP header.
func Received(meta map[string]any, header http.Header) Ref {
	text, _ := meta["traceparent"].(string)
	return Parse(cmp.Or(text, header.Get("Traceparent")))
}

// Text returns a Ref as a traceparent, "" if it is zero.
func Text(r Ref) string {
	if !r.TraceID().IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%s", r.TraceID(), r.SpanID(), r.TraceFlags())
}
