package tool

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow"
)

const (
	// signOfLife is how often a client is told that its call goes on.
	signOfLife = 10 * time.Second
	// breath is between two notifications of a call, however fast things change.
	breath = 100 * time.Millisecond
)

type progressKey struct{}

// Progress tells the caller what there is to say of its call, if it wants to
// know; it never blocks, and only the newest message is kept until it is sent.
func Progress(ctx context.Context, message string) {
	if tell, ok := ctx.Value(progressKey{}).(func(string)); ok {
		tell(message)
	}
}

// WantsProgress tells whether anybody listens to Progress.
func WantsProgress(ctx context.Context) bool { return ctx.Value(progressKey{}) != nil }

// withProgress has a call tell its progress to a client that asked for it: at
// each change, and from then on every 10 s, so that a client that gives up on
// silent calls does not. The value is the call's age in seconds, since it has to
// grow; what there is to tell is in the message. The returned function ends it
// and waits.
func (s *Set) withProgress(ctx context.Context, req *mcp.CallToolRequest) (context.Context, func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}
	began := time.Now()
	news := make(chan string, 1) // the newest message alone
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(signOfLife)
		defer ticker.Stop()
		message := ""
		for {
			select {
			case message = <-news:
			case <-ticker.C:
				if message == "" {
					continue
				}
			case <-over:
				return
			case <-ctx.Done():
				return
			}
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: time.Since(began).Seconds(), Message: message,
			})
			if err != nil {
				s.Logger.LogAttrs(ctx, slog.LevelDebug, "a progress notification was not sent", slog.Any("error", err))
			}
			select {
			case <-time.After(breath):
			case <-over:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	tell := func(message string) {
		for {
			select {
			case news <- message:
				return
			default:
			}
			select {
			case <-news: // an older one, not sent yet
			default:
			}
		}
	}
	told := context.WithValue(ctx, progressKey{}, tell)
	return workflow.WithProgress(told, func(_, _ int, message string) { tell(message) }), func() { close(over); wg.Wait() }
}
