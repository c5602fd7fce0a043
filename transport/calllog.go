package transport

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"deepwork/session/workflow"
)

// stackLogged is how many entries of a stack stand in a log line, the top ones.
const stackLogged = 20

// A callLog is the two log lines of a call: one as it enters, with the stack as
// it is then (seed 000, 001.1.12), one as it ends.
type callLog struct {
	logger   *slog.Logger
	metrics  *metrics
	identity string // the caller's
	tool     string
	counted  string // the tool's name in the metrics, where it is not tool
	session  *string
	began    time.Time
	outcome  string
}

func (l *callLog) begin(ctx context.Context, a agent) {
	if !l.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	l.logger.LogAttrs(ctx, slog.LevelInfo, "call", l.attrs(stackAttr(a.StackOf(ctx, l.session)))...)
}

func (l *callLog) end(ctx context.Context) {
	took := time.Since(l.began)
	l.metrics.ended(l.label(), l.outcome, took)
	if !l.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	l.logger.LogAttrs(ctx, slog.LevelInfo, "call ended",
		l.attrs(slog.String("outcome", l.outcome), slog.Duration("took", took))...)
}

// label is the tool's name in the metrics: what other systems name is counted
// together, since there is no end to it.
func (l *callLog) label() string { return cmp.Or(l.counted, l.tool) }

func (l *callLog) attrs(more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 5)
	attrs = append(attrs, slog.String("tool", l.tool), slog.String("caller", l.identity))
	if l.session != nil {
		attrs = append(attrs, slog.String("session", clip(*l.session, 200)))
	}
	return append(attrs, more...)
}

// stackAttr gives the workflows in progress, bottom first; of a deep stack how
// deep it is and the top of it.
func stackAttr(stack []workflow.StackEntry) slog.Attr {
	top := stack[max(0, len(stack)-stackLogged):]
	names := make([]string, len(top))
	for i, e := range top {
		names[i] = e.Workflow
	}
	if len(top) < len(stack) {
		return slog.Group("stack", slog.Int("depth", len(stack)), slog.Any("top", names))
	}
	return slog.Any("stack", names)
}
