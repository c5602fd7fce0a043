package transport

import (
	"context"
	"fmt"
	"net/http"

	"deepwork/transport/page"
	"deepwork/transport/web"
)

// openPages returns the web UI of the project. It follows the changes of the project until the server
// is closed.
func (s *Server) openPages(l *web.Login, readOnly bool) (http.Handler, error) {
	o, err := s.pages()
	if err != nil {
		return nil, err
	}
	l.Key = o.Key
	o.Callers, o.ReadOnly, o.Sources = l, readOnly, s.remote
	site, err := page.New(o)
	if err != nil {
		return nil, fmt.Errorf("making the pages: %w", err)
	}
	following, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); site.Run(following) }()
	closing := s.close
	s.close = func(ctx context.Context) error {
		stop()
		<-ended
		return closing(ctx)
	}
	return site, nil
}
