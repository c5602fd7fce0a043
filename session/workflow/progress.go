package workflow

import "context"

// A ProgressFunc is called with how far a call has come, as done of total, and what it
// waits for. It must not block.
type ProgressFunc func(done, total int, message string)

type progressKey struct{}

// WithProgress has the calls made with the context report their progress.
func WithProgress(ctx context.Context, f ProgressFunc) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

func progressOf(ctx context.Context) ProgressFunc {
	f, _ := ctx.Value(progressKey{}).(ProgressFunc)
	return f
}
