package notify

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// Each way makes a request that its receiver understands, in which words of the work are only words.
func TestRequests(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body := testkit.Get(io.ReadAll(r.Body)).Must(t)
		got = fmt.Sprintf("%s %s %s %s:%s title=%s click=%s\n%s", r.Method, r.URL, r.Header.Get("Content-Type"), user,
			password, r.Header.Get("Title"), r.Header.Get("Click"), body)
	}))
	defer server.Close()
	withLogin := strings.Replace(server.URL, "http://", "http://:token@", 1)
	m := &Message{Title: "deepwork: Büro", Text: "Step a waits\n<!channel> @everyone", Link: "http://127.0.0.1:20000/"}
	for _, c := range []struct {
		config config.Notify
		want   string
	}{
		{config.Notify{Webhook: server.URL + "/hook?key=1"}, "POST /hook?key=1 application/json : title= click=\n" +
			`{"allowed_mentions":{"parse":[]},` +
			`"content":"deepwork: Büro\nStep a waits\n\u003c!channel\u003e @everyone\nhttp://127.0.0.1:20000/",` +
			`"text":"deepwork: Büro\nStep a waits\n\u0026lt;!channel\u0026gt; @everyone\nhttp://127.0.0.1:20000/"}`},
		{config.Notify{Ntfy: withLogin + "/topic"}, "POST /topic  :token title==?utf-8?q?deepwork:_B=C3=BCro?= " +
			"click=http://127.0.0.1:20000/\nStep a waits\n<!channel> @everyone"},
	} {
		ways := Ways(c.config)
		testkit.Equal(t, len(ways), 1)
		testkit.True(t, ways[0].Send(t.Context(), m) == nil, "%s was not sent", ways[0].Name)
		testkit.Equal(t, got, c.want)
	}
	testkit.Equal(t, len(Ways(config.Notify{Content: true})), 0)
}

// Whatever goes wrong, the error names the host and has nothing else of the URL, and a redirect leads nowhere.
func TestFailures(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a message went to where a redirect leads")
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "moved"):
			http.Redirect(w, r, elsewhere.URL+"/secret", http.StatusTemporaryRedirect)
		case strings.Contains(r.URL.Path, "hangs"):
			_, _ = io.ReadAll(r.Body) // else the server does not notice that the sender is gone
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()

	for address, want := range map[string]string{
		server.URL + "/secret":       " answered 404 Not Found",
		server.URL + "/secret/moved": " answered 307 Temporary Redirect",
		server.URL + "/secret/hangs": ": context deadline exceeded",
		gone.URL + "/secret":         "refused",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		ways := Ways(config.Notify{Ntfy: strings.Replace(address, "http://", "http://me:secret@", 1)})
		err := ways[0].Send(ctx, &Message{})
		cancel()
		testkit.Fails(t, err, want)
		testkit.True(t, !strings.Contains(fmt.Sprint(err), "secret"), "the error has the URL: %v", err)
		testkit.Contains(t, fmt.Sprint(err), "127.0.0.1:")
	}
}
