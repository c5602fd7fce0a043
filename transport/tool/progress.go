package tool

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/session/workflow"
)

const (
	// signOfLife is how often a client is notified that its call still runs.
	signOfLife = 10 * time.Second
	// progressPause is the minimum time between two notifications of a call.
	progressPause = 100 * time.Millisecond
)

type progressKey struct{}

// Progress notifies the caller, if it asked for progress. It never blocks; only the newest unsent
// message is kept.
func Progress(ctx context.Context, message string) {
	if notify, ok := ctx.Value(progressKey{}).(func(string)); ok {
		notify(message)
	}
}

// withProgress notifies a client that asked for progress of a call: at each change, and from then
// on every 10 s, for clients that give up on silent calls. The value is the call's age in seconds,
// since it has to grow. The returned function stops the notifications and waits.
func (s *Set) withProgress(ctx context.Context, req *mcp.CallToolRequest) (context.Context, func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}
	began := time.Now()
	changed := wait.NewSignal()
	var newest atomic.Pointer[string]
	running, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(signOfLife)
		defer ticker.Stop()
		for {
			select {
			case <-changed:
			case <-ticker.C:
			case <-running.Done():
				return
			}
			message := newest.Load()
			if message == nil {
				continue
			}
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: time.Since(began).Seconds(), Message: *message,
			})
			if err != nil {
				s.Logger.LogAttrs(ctx, slog.LevelDebug, "a progress notification was not sent", slog.Any("error", err))
			}
			if wait.For(running, progressPause) != nil {
				return
			}
		}
	})
	notify := func(message string) {
		newest.Store(&message)
		changed.Wake()
	}
	notified := context.WithValue(ctx, progressKey{}, notify)
	return workflow.WithProgress(notified, func(_, _ int, message string) { notify(message) }), func() { end(); wg.Wait() }
}
