package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// A logHandler adds trace_id to records.
type logHandler struct{ slog.Handler }

// LogHandler returns a handler that adds trace_id, the context's trace, to each record whose context has one.
func LogHandler(h slog.Handler) slog.Handler { return logHandler{h} }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if of := trace.SpanContextFromContext(ctx); of.HasTraceID() {
		r.AddAttrs(slog.String("trace_id", of.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(all []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(all)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
