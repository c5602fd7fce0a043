package source

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/config"
)

// Whatever a source does instead of answering initialize, connecting ends with
// its context, and nothing is left.
func TestConnectingIsBounded(t *testing.T) {
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)
	trickle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(" ")); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(trickle.Close)
	for name, open := range map[string]func() (wire, error){
		"hung":    func() (wire, error) { return openURL(&config.WorkflowSource{URL: hung.URL}) },
		"trickle": func() (wire, error) { return openURL(&config.WorkflowSource{URL: trickle.URL}) },
		"mute": func() (wire, error) {
			return startCommand(&config.WorkflowSource{
				Command: []string{os.Args[0]}, Env: map[string]string{"DEEPWORK_TEST_SOURCE": "mute"},
			}, os.Args[0], t.TempDir(), slog.New(slog.DiscardHandler))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := open()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := bounded(t.Context(), 200*time.Millisecond, "its initialize")
			defer cancel()
			began := time.Now()
			_, err = connect(ctx, w, Options{Version: "test"}, handshake)
			if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "larger than") {
				t.Error(err)
			}
			if d := time.Since(began); d > 30*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

func TestTheSameErrorIsToldOnce(t *testing.T) {
	for _, c := range []struct {
		a, b error
		want bool
	}{
		{nil, nil, true}, {nil, io.EOF, false}, {io.EOF, nil, false}, {io.EOF, io.EOF, true},
		{errors.New("ended after 12ms"), errors.New("ended after 9ms"), true}, {errors.New("a"), errors.New("b"), false},
	} {
		if sameError(c.a, c.b) != c.want {
			t.Errorf("%v and %v", c.a, c.b)
		}
	}
}

// A redirect to another server would take the headers' secrets with it.
func TestRedirectsElsewhereAreRefused(t *testing.T) {
	got := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.Header.Get("Authorization"):
		default:
		}
	}))
	t.Cleanup(other.Close)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(web.Close)
	w, err := openURL(&config.WorkflowSource{URL: web.URL, Headers: map[string]string{"Authorization": "Bearer s3cret"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = connect(t.Context(), w, Options{Version: "test"}, handshake); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Error(err)
	}
	select {
	case h := <-got:
		t.Errorf("the other server was asked, with %q", h)
	default:
	}
}

// Millions of elements that are no workflows are not held at once.
func TestAPageOfZerosIsBounded(t *testing.T) {
	page := []byte("[" + strings.Repeat("0,", maxPage/2-2) + "0]")
	p, err := list(page)
	if err != nil || len(p.skipped) != maxSkipped || p.more != 2*maxWorkflows-maxSkipped {
		t.Errorf("%d skipped, %d more, %v", len(p.skipped), p.more, err)
	}
}

// A link that was closed after it was chosen for a call sends nothing: the call goes to the next one.
func TestACallOfAClosedLinkHadNoEffect(t *testing.T) {
	_, err := (&link{closed: true}).call(t.Context(), "execute", nil, nil)
	if _, lost := errors.AsType[transportError](err); !lost || !errors.Is(err, errUndone) {
		t.Errorf("%v", err)
	}
}
