package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"deepwork/catalog/config"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A urlWire is a source that is reached over streamable HTTP.
type urlWire struct {
	endpoint string
	headers  http.Header // from the config, for each request
	client   *http.Client
	base     *http.Transport
	cutting  context.Context // ended by cut: every request ends with it
	cut      context.CancelFunc
	ready    atomic.Bool  // the session has started
	refusal  atomic.Int32 // status with which the last message before that was refused, or 0
}

// openURL prepares a connection; headers take their variables from the current environment.
func openURL(s *config.WorkflowSource) (*urlWire, error) {
	headers := make(http.Header, len(s.Headers))
	for name, value := range s.Headers {
		expanded, err := expand(value, os.LookupEnv)
		if err != nil {
			return nil, fmt.Errorf("the header %s: %w", name, err)
		}
		headers.Set(name, expanded)
	}
	endpoint, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("the url: %w", err)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 16
	w := &urlWire{endpoint: s.URL, headers: headers, base: base}
	w.cutting, w.cut = context.WithCancel(context.Background())
	w.client = &http.Client{
		Transport: w,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != endpoint.Host || r.URL.Scheme != endpoint.Scheme {
				return fmt.Errorf("it redirects to another server, %s; put that server's address in the config if that is intended", r.URL.Host)
			}
			if len(via) >= 5 {
				return errors.New("it redirects too often")
			}
			return nil
		},
	}
	return w, nil
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand expands the variables of a header's value. Its errors do not contain values.
func expand(value string, lookup func(string) (string, bool)) (string, error) {
	var err error
	out := variable.ReplaceAllStringFunc(value, func(m string) string {
		name := m[2 : len(m)-1]
		v, ok := lookup(name)
		if !ok || v == "" {
			err = fmt.Errorf("the environment variable %q is not set; set it where this server is started", name)
		}
		if strings.ContainsAny(v, "\x00\r\n") {
			err = fmt.Errorf("the environment variable %q has a line break or NUL byte in it", name)
		}
		return v
	})
	return out, err
}

func (w *urlWire) transport() mcp.Transport {
	return &mcp.StreamableClientTransport{
		Endpoint: w.endpoint, HTTPClient: w.client, MaxRetries: 2, MaxEventSize: maxMessage,
	}
}

func (w *urlWire) end() { w.cut() }

func (w *urlWire) begun() {
	w.ready.Store(true)
	w.refusal.Store(0)
}

func (w *urlWire) leave(ctx context.Context, close func()) {
	// Do not wait long for a hanging server to end the session.
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	stop := context.AfterFunc(ctx, w.cut)
	close()
	stop()
	cancel()
	w.cut()
	w.base.CloseIdleConnections()
}

// reason adds the address, and the status with which the source refused to start a session; the
// SDK's errors only have its name.
func (w *urlWire) reason(err error) error {
	status := int(w.refusal.Load())
	if status == 0 {
		return err
	}
	hint := ""
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		hint = "; see headers of the source in config.yml"
	}
	return fmt.Errorf("%s answers %d %s%s: %w", shownURL(w.endpoint), status, http.StatusText(status), hint, err)
}

// shownURL returns an address without its secret parts.
func shownURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "its url"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
