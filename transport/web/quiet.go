package web

import (
	"context"
	"log/slog"
)

// Quiet returns the logger of the SDK: what it logs is of interest for debugging, and
// its errors are mostly mistakes of clients.
func Quiet(logger *slog.Logger) *slog.Logger { return slog.New(quietHandler{logger.Handler()}) }

type quietHandler struct{ slog.Handler }

func quietLevel(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (h quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, quietLevel(l))
}

func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quietLevel(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h quietHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(as)}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}
