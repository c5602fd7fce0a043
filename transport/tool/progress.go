package tool

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/session/workflow"
)

const (
	// signOfLife is how often a client is told that its call goes on.
	signOfLife = 10 * time.Second
	// breath is between two notifications of a call, however fast things change.
	breath = 100 * time.Millisecond
)

type progressKey struct{}

// Progress notifies the caller, if it asked for progress. It never blocks, and only the
// newest message is kept until it is sent.
func Progress(ctx context.Context, message string) {
	if tell, ok := ctx.Value(progressKey{}).(func(string)); ok {
		tell(message)
	}
}

// WantsProgress reports whether the caller asked for progress.
func WantsProgress(ctx context.Context) bool { return ctx.Value(progressKey{}) != nil }

// withProgress has a call notify a client that asked for progress: at each change, and
// from then on every 10 s, so that a client that gives up on silent calls does not. The
// value is the call's age in seconds, since it has to grow. The returned function ends
// it and waits.
func (s *Set) withProgress(ctx context.Context, req *mcp.CallToolRequest) (context.Context, func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}
	began := time.Now()
	news := wait.NewSignal()
	var mu sync.Mutex
	var newest string
	running, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(signOfLife)
		defer ticker.Stop()
		for {
			select {
			case <-news:
			case <-ticker.C:
			case <-running.Done():
				return
			}
			mu.Lock()
			message := newest
			mu.Unlock()
			if message == "" {
				continue
			}
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: time.Since(began).Seconds(), Message: message,
			})
			if err != nil {
				s.Logger.LogAttrs(ctx, slog.LevelDebug, "a progress notification was not sent", slog.Any("error", err))
			}
			if wait.For(running, breath) != nil {
				return
			}
		}
	})
	tell := func(message string) {
		mu.Lock()
		newest = message
		mu.Unlock()
		news.Wake()
	}
	told := context.WithValue(ctx, progressKey{}, tell)
	return workflow.WithProgress(told, func(_, _ int, message string) { tell(message) }), func() { end(); wg.Wait() }
}
