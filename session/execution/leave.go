package execution

import "context"

type leavingKey struct{}

// WithLeaving returns a context for Call. Once leaving ends, Call waits no longer for
// the end of its run: it returns an error that wraps leaving's cause, and the run goes
// on as when ctx ends. What it does before it waits is not cut short, nor is anything
// else that is done with the context: for a client that sent its last request and
// still reads, whose other calls have longer to end than a run may take.
func WithLeaving(ctx, leaving context.Context) context.Context {
	return context.WithValue(ctx, leavingKey{}, leaving)
}

// untilLeaving returns a context that ends with ctx and with what WithLeaving gave it.
func untilLeaving(ctx context.Context) (context.Context, func()) {
	leaving, ok := ctx.Value(leavingKey{}).(context.Context)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(leaving, func() { cancel(context.Cause(leaving)) })
	return ctx, func() { stop(); cancel(nil) }
}
