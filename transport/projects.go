package transport

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/transport/page"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// ListenProjects opens the address of a page with what needs a person in all projects, with the pages of each below a
// path; see web.Listen.
// o.Secret is required: it lets one browser in.
func ListenProjects(ctx context.Context, logger *slog.Logger, c page.Chooser, o web.Options) (*web.Server, error) {
	settings := config.Default().HTTP
	return web.Listen(ctx, web.Backend{
		Logger: logger, Local: session.LocalCaller(""), Sessions: &connections{}, InFlight: &tool.InFlight{},
		Token:        func(bool) (string, error) { return "", state.ErrMissing },
		Settings:     func(context.Context) config.HTTP { return settings },
		LastSettings: func() config.HTTP { return settings },
		Check:        func(context.Context) error { return nil },
		Pages: func(l *web.Login) (http.Handler, error) {
			l.Key = []byte(rand.Text()) // a login ends with the process
			site, err := page.New(page.Options{
				Chooser:  &c,
				ReadOnly: o.ReadOnly,
				Help:     c.Help,
				Version:  c.Version,
				Callers:  l,
				Key:      l.Key,
				Logger:   logger,
			})
			if err != nil {
				return nil, fmt.Errorf("making the page: %w", err)
			}
			return site, nil
		},
	}, o)
}
