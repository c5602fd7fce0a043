package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// A Ref names a span, its trace, and whether the trace is sampled. The zero Ref names nothing; a Ref without
// a span names only the trace.
type Ref = trace.SpanContext

// Parse reads a traceparent. If that is malformed, it returns a Ref without a trace.
func Parse(text string) Ref {
	// version-trace-span-flags: versions after 00 may have more fields
	if len(text) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' || text[:2] == "ff" ||
		len(text) > 55 && (text[:2] == "00" || text[55] != '-') {
		return Ref{}
	}

	all, err := hex.DecodeString(text[:2] + text[3:35] + text[36:52] + text[53:55])
	if err != nil || text[:55] != strings.ToLower(text[:55]) {
		return Ref{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID(all[1:17]),
		SpanID:     trace.SpanID(all[17:25]),
		TraceFlags: trace.TraceFlags(all[25]) & trace.FlagsSampled,
	})
}

// Derive returns a span in the trace of another one, with an id derived from identity. It returns the zero
// Ref if the other one is in no trace.
func Derive(of Ref, identity ...string) Ref {
	if !of.HasTraceID() {
		return Ref{}
	}
	h := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	return of.WithSpanID(trace.SpanID(h[:8])).WithRemote(true)
}

// newTrace returns a trace without a span.
func newTrace() Ref {
	return Ref{}.WithTraceID(trace.TraceID(uuid.New())).WithTraceFlags(trace.FlagsSampled)
}

// newID returns the id of a new span.
func newID() (id trace.SpanID) {
	rand.Read(id[:]) // never fails
	return id
}

// Under returns a context whose spans belong to parent.
func Under(ctx context.Context, parent Ref) context.Context {
	if !On() || !parent.HasTraceID() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, parent)
}

// Parent returns the span to which something that begins now, and may outlive this process, belongs: the
// caller's span, or a new trace. It is zero if nothing is exported.
func Parent(ctx context.Context) Ref {
	s := current.Load()
	if s == nil {
		return Ref{}
	}

	in := trace.SpanFromContext(ctx)
	if c, ok := in.(*Call); ok {
		return c.outer()
	}
	if in.SpanContext().HasTraceID() {
		return in.SpanContext()
	}

	if s.parent.HasTraceID() {
		return s.parent
	}

	return newTrace()
}

// Own returns the span that started this process, according to its environment, or zero.
func Own() Ref {
	if s := current.Load(); s != nil {
		return s.parent
	}
	return Ref{}
}

// A Call is a call in progress. Its span may contain only what ends in the same process.
type Call struct {
	noop.Span // everything except SpanContext

	began time.Time
	id    trace.SpanID

	mu     sync.Mutex
	parent Ref  // zero until known
	fixed  bool // keep the parent: the caller gave it, or something already belongs to the call
	parts  bool // something may belong to the call's span
	about  Ref
}

// Begin returns a context for a call that comes from a span, which may be zero. c is nil if nothing is
// exported.
func Begin(ctx context.Context, from Ref) (of context.Context, c *Call) {
	if !On() {
		return ctx, nil
	}

	if !from.IsValid() {
		from = trace.SpanContextFromContext(ctx)
	}
	c = &Call{began: time.Now(), id: newID(), parent: from, fixed: from.HasTraceID()}
	return trace.ContextWithSpan(ctx, c), c
}

// SpanContext implements trace.Span, for logs: it has the trace of the call, once known.
func (c *Call) SpanContext() Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parent
}

// outer returns the parent of what the call begins.
func (c *Call) outer() Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.parent.HasTraceID() {
		c.parent = newTrace()
	}
	return c.parent
}

// span returns the span of the call.
func (c *Call) span() Ref {
	c.mu.Lock()
	c.fixed, c.parts = true, true
	c.mu.Unlock()
	return c.outer().WithSpanID(c.id)
}

// HasParts reports whether something that belongs to the call's span may have been exported.
func (c *Call) HasParts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts
}

// About returns a context whose log records and spans refer to a span. If ctx belongs to a call whose caller
// gave no parent, that span becomes its parent.
func About(ctx context.Context, what Ref) context.Context {
	c, ok := trace.SpanFromContext(ctx).(*Call)
	if !ok {
		return Under(ctx, what)
	}
	if !what.IsValid() {
		return ctx
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fixed {
		c.parent, c.fixed = what, true
	}
	c.about = what
	return ctx
}

// Finish exports the span of the call, with a link to what the call is about if that is in another trace. c
// may be nil.
func (c *Call) Finish(name, fault string, attributes ...attribute.KeyValue) {
	if c == nil || !Taken() {
		return
	}

	own, with := c.span(), []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	c.mu.Lock() // work that the call began may still go on
	defer c.mu.Unlock()
	if c.about.IsValid() && c.about.TraceID() != own.TraceID() {
		with = append(with, trace.WithLinks(trace.Link{SpanContext: c.about}))
	}
	Export(Span{
		Name:       name,
		Ref:        own,
		Parent:     c.parent,
		Start:      c.began,
		End:        time.Now(),
		Error:      fault,
		Attributes: attributes,
	}, with...)
}

// Current returns the span that encloses work only within this process, or zero.
func Current(ctx context.Context) Ref {
	if !On() {
		return Ref{}
	}
	if c, ok := trace.SpanFromContext(ctx).(*Call); ok {
		return c.span()
	}
	return trace.SpanContextFromContext(ctx)
}

// Within exports a span that began at a time, ends now, and lies within this process only, in the context's
// span.
func Within(ctx context.Context, name, fault string, began time.Time, attributes ...attribute.KeyValue) {
	if in := Current(ctx); in.HasTraceID() {
		Export(Span{
			Name:       name,
			Ref:        in.WithSpanID(newID()),
			Parent:     in,
			Start:      began,
			End:        time.Now(),
			Error:      fault,
			Attributes: attributes,
		})
	}
}
