package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/tool"
)

// pagesOf serves pages with these options until the test ends or stop is called.
func pagesOf(t *testing.T, o Options, settings config.HTTP, pages func(*Login) http.Handler) (h *Server, stop func()) {
	t.Helper()
	h, err := Listen(t.Context(), Backend{Logger: slog.New(slog.DiscardHandler), Sessions: noSessions{}, InFlight: new(tool.InFlight), Local: session.LocalCaller(""),
		LastSettings: func() config.HTTP { return settings }, Settings: func(context.Context) config.HTTP { return settings },
		Pages: func(l *Login) (http.Handler, error) { return pages(l), nil }}, o)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	stop = func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		served <- nil
	}
	t.Cleanup(stop)
	return h, stop
}

// noSessions are the MCP sessions of a server that has none.
type noSessions struct{ Sessions }

func (noSessions) Stop()                     {}
func (noSessions) Close(context.Context) int { return 0 }

func ask(t *testing.T, method, url, body string, headers ...string) (status int, location, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	testkit.Must(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	over := &http.Transport{DisableKeepAlives: true}
	defer over.CloseIdleConnections()
	res, err := over.RoundTrip(r)
	testkit.Must(t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	testkit.Must(t, err)
	return res.StatusCode, res.Header.Get("Location"), string(all)
}

// A form is bounded as a call is.
func TestFormsOfPagesAreBounded(t *testing.T) {
	h, _ := pagesOf(t, Options{}, config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 1000}, func(*Login) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		})
	})
	base := strings.TrimSuffix(h.URL(), "/mcp")
	if status, _, text := ask(t, "POST", base+"/x", "a=b"); status != 200 || text != "a=b <nil>" {
		t.Errorf("%d %s", status, text)
	}
	if status, _, text := ask(t, "POST", base+"/x", strings.Repeat("a", 1001)); status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "http.max_body_bytes") {
		t.Errorf("%d %s", status, text)
	}
}

// Which hosts and origins pages are for, on loopback and off it.
func TestSitesOfPages(t *testing.T) {
	file := t.TempDir() + "/tokens"
	_, line, err := NewToken(config.Token{Name: "ann"})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(file, []byte(line), 0o600))
	settings := config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 1000, AllowedHosts: []string{"deep.example.com"}, AllowedOrigins: []string{"https://app.example.com"}}
	served := func(o Options) (base, port string) {
		h, _ := pagesOf(t, o, settings, func(*Login) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") })
		})
		port = h.sockets.Addr().String()
		port = port[strings.LastIndex(port, ":")+1:]
		return "http://127.0.0.1:" + port, port
	}
	base, port := served(Options{})
	_, free := served(Options{Host: "0.0.0.0", TokenFile: file})
	for _, c := range []struct {
		name, method, port, location string
		status                       int
		headers                      []string
	}{
		{"itself", "GET", port, "", 200, nil},
		{"its own form", "POST", port, "", 200, []string{"Origin: " + base}},
		{"localhost", "GET", port, base + "/x?a=b", 307, []string{"Host: localhost:" + port}},
		{"a form of localhost, which may be another user's", "POST", port, "", 403, []string{"Host: localhost:" + port, "Origin: http://localhost:" + port}},
		{"localhost, forwarded under another number", "GET", port, "", 200, []string{"Host: localhost:1"}},
		{"a proxy", "GET", port, "", 200, []string{"Host: deep.example.com"}},
		{"a form over a proxy", "POST", port, "", 200, []string{"Host: deep.example.com", "Origin: https://deep.example.com"}},
		{"another site over a proxy", "POST", port, "", 403, []string{"Host: deep.example.com", "Origin: https://evil.example.com"}},
		{"a rebound name", "GET", port, "", 403, []string{"Host: evil.example.com:" + port}},
		{"a rebound name with its origin", "POST", port, "", 403, []string{"Host: evil.example.com:" + port, "Origin: http://evil.example.com:" + port}},
		{"no origin that can be named", "POST", port, "", 403, []string{"Origin: null"}},
		{"off loopback", "POST", free, "", 200, []string{"Host: deep.example.com:" + free, "Origin: http://deep.example.com:" + free}},
		{"off loopback, another site", "POST", free, "", 403, []string{"Host: deep.example.com:" + free, "Origin: http://evil.example.com"}},
		{"off loopback, another port", "POST", free, "", 403, []string{"Host: deep.example.com:" + free, "Origin: http://deep.example.com:1"}},
	} {
		status, location, text := ask(t, c.method, "http://127.0.0.1:"+c.port+"/x?a=b", "", c.headers...)
		if status != c.status || location != c.location {
			t.Errorf("%s: %d to %q\n%s", c.name, status, location, text)
		}
	}
}

// Requests for pages are bounded as calls are, a caller with a token by its quota, and those that last end
// with the server.
func TestPagesAreAdmitted(t *testing.T) {
	who := session.Caller{Identity: "ann"}
	entered, leave := make(chan bool), make(chan bool)
	h, stop := pagesOf(t, Options{}, config.HTTP{MaxConnections: 10, MaxRequests: 2, MaxBodyBytes: 1000, Quotas: config.Quotas{Requests: 1}}, func(l *Login) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("token") {
				r = r.WithContext(session.WithCaller(r.Context(), who))
			} else {
				r = r.WithContext(session.WithCaller(r.Context(), session.LocalCaller("")))
			}
			release, ok := l.Admit(w, r, r.URL.Path == "/events")
			if !ok {
				return
			}
			defer release()
			entered <- true
			if r.URL.Path == "/events" {
				<-r.Context().Done()
			} else {
				<-leave
			}
		})
	})
	base := strings.TrimSuffix(h.URL(), "/mcp")
	begin := func(path string) chan int {
		done := make(chan int, 1)
		go func() {
			status, _, _ := ask(t, "GET", base+path, "")
			done <- status
		}()
		<-entered
		return done
	}
	refused := func(path, why string) {
		t.Helper()
		if status, _, text := ask(t, "GET", base+path, ""); status != http.StatusTooManyRequests || !strings.Contains(text, why) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	stream, page := begin("/events?token"), begin("/x?token")
	refused("/x?token", "ann has 1 requests in flight")
	own := begin("/x")
	refused("/x", "http.max_requests")
	close(leave)
	if a, b := <-own, <-page; a != 200 || b != 200 {
		t.Error(a, b)
	}
	began := time.Now()
	stop()
	<-stream
	if took := time.Since(began); took > grace {
		t.Errorf("an open stream delays the end by %v", took)
	}
	if s := h.Stats(); s.Requests != 0 || s.Streams != 0 {
		t.Errorf("%+v", s)
	}
}
