package workflow

import "context"

// A ProgressFunc receives the progress of a call, as done of total, and what it waits for. It must
// not block.
type ProgressFunc func(done, total int, message string)

type progressKey struct{}

// WithProgress returns a context whose calls report their progress.
func WithProgress(ctx context.Context, f ProgressFunc) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

func progressOf(ctx context.Context) ProgressFunc {
	f, _ := ctx.Value(progressKey{}).(ProgressFunc)
	return f
}
