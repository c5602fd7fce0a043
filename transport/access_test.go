package transport

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/transport/web"
)

// Who has no token, or a wrong one, is told to get one; who has one is who it says.
func TestTokens(t *testing.T) {
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			s, f := fakeServer(t, nil, withHTTP(nil))
			file, token := tokens(t, "ann", "bob")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file})
			for _, header := range []string{"", "Authorization: Bearer ", "Authorization: Bearer " + token[0] + "x", "Authorization: Basic " + token[0],
				"Authorization: " + token[0], "Authorization: Bearer " + strings.Repeat("x", 10_000)} {
				for _, url := range []string{h.URL(), at(h, "/metrics")} {
					r := send(t, httpClient(t, ""), "GET", url, "", header)
					if r.status != 401 || !strings.HasPrefix(r.header.Get("WWW-Authenticate"), `Bearer realm="deepwork"`) || strings.Contains(r.body, token[0]) {
						t.Errorf("%s with %q: %+v", url, jsontext.Clip(header, 60), r)
					}
				}
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				if r := send(t, httpClient(t, ""), "GET", at(h, path), ""); r.status != 200 {
					t.Errorf("%s: %+v", path, r)
				}
			}
			if r := send(t, httpClient(t, token[1]), "GET", at(h, "/metrics"), ""); r.status != 200 || !strings.Contains(r.body, `deepwork_refused_total{reason="token"} 12`) {
				t.Errorf("metrics: %d", r.status)
			}
			for i, name := range []string{"ann", "bob"} {
				callTool(t, dial(t, h, stateful, token[i]), "get_workflows", `{}`)
				if got := f.agents[i].identity; got != name {
					t.Errorf("the caller is %q, want %q", got, name)
				}
			}
		})
	}
}

// Another caller's session is as unknown as one that never was.
func TestSessionOfAnotherCaller(t *testing.T) {
	s, f := fakeServer(t, nil, withHTTP(nil))
	file, token := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	id := open(t, httpClient(t, token[0]), h)
	for _, method := range []string{"GET", "POST", "DELETE"} {
		mine := send(t, httpClient(t, token[1]), method, h.URL(), finishCall(1), id)
		none := send(t, httpClient(t, token[1]), method, h.URL(), finishCall(1), "Mcp-Session-Id: NONE")
		if mine.status != 404 || none.status != 404 || mine.body != none.body {
			t.Errorf("%s: %+v and %+v", method, mine, none)
		}
	}
	if r := send(t, httpClient(t, token[0]), "POST", h.URL(), finishCall(1), id); r.status != 200 || isClosed(f.agents[0]) {
		t.Errorf("its own: %+v", r)
	}

	sse := overHTTP(t, s, web.Options{Transport: web.SSE, TokenFile: file})
	stream := raw(t, sse, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token[0]+"\r\n\r\n")
	data := make([]byte, 4096)
	n := 0
	for !strings.Contains(string(data[:n]), "\n\n") {
		m, err := stream.Read(data[n:])
		must(t, err)
		n += m
	}
	_, endpoint, _ := strings.Cut(string(data[:n]), "data: ")
	endpoint, _, _ = strings.Cut(endpoint, "\n")
	url := "http://" + address(sse) + endpoint
	if r := send(t, httpClient(t, token[1]), "POST", url, initialize); r.status != 404 {
		t.Errorf("another's: %+v", r)
	}
	if r := send(t, httpClient(t, token[0]), "POST", url, initialize); r.status != 202 {
		t.Errorf("its own: %+v", r)
	}
}

// Tokens of the user's config count as those of the file do, also on loopback, as long
// as they are there.
func TestTokensOfTheConfig(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	s, _ := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	old := dial(t, h, stateful, "")
	callTool(t, old, "get_workflows", `{}`)
	token, line, err := web.NewToken(config.Token{Name: "ann"})
	must(t, err)
	hash := line[len("ann:"):]
	write(t, os.Getenv("XDG_CONFIG_HOME"), map[string]string{"deepwork/config.yml": "http: {tokens: [{name: ann, sha256: " + hash + "}]}\n"})
	if r := send(t, httpClient(t, ""), "POST", h.URL(), initialize); r.status != 401 {
		t.Errorf("without a token: %+v", r)
	}
	c := httpClient(t, token)
	open(t, c, h)
	// The session that was there before is nobody's any more.
	if r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+old.ID()); r.status != 404 {
		t.Errorf("another's session: %+v", r)
	}
}

// Off loopback the server does not start without a token, and says what to do.
func TestOffLoopbackNeedsAToken(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	for _, host := range []string{"0.0.0.0", "::"} {
		_, err := s.Listen(context.Background(), web.Options{Host: host})
		if err == nil || !strings.Contains(err.Error(), "deepwork token new") || !strings.Contains(err.Error(), "other machines") {
			t.Errorf("%s: %v", host, err)
		}
	}
	file, token := tokens(t, "ann")
	h := overHTTP(t, s, web.Options{Host: "0.0.0.0", TokenFile: file})
	_, port, _ := strings.Cut(address(h)[strings.LastIndex(address(h), "]")+1:], ":")
	url := "http://127.0.0.1:" + port + "/mcp"
	if r := send(t, httpClient(t, ""), "POST", url, initialize); r.status != 401 {
		t.Errorf("without: %+v", r)
	}
	if r := send(t, httpClient(t, token[0]), "POST", url, initialize, "Host: any.example.com"); r.status != 200 {
		t.Errorf("with: %+v", r)
	}
	if r := send(t, httpClient(t, token[0]), "POST", url, initialize, "Origin: http://localhost"); r.status != 403 {
		t.Errorf("from a page of this machine: %+v", r)
	}
	configured := withHTTP(func(c *config.HTTP) { c.Tokens = []config.Token{{Name: "ann", SHA256: strings.Repeat("0", 64)}} })
	s, _ = fakeServer(t, nil, configured)
	overHTTP(t, s, web.Options{Host: "0.0.0.0"})
}

// What is wrong with the options is said, with what to do.
func TestListenErrors(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	taken := overHTTP(t, s, web.Options{})
	port, _ := strconv.Atoi(address(taken)[strings.LastIndex(address(taken), ":")+1:])
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, []byte("# nobody\n"), 0o600))
	bad := filepath.Join(t.TempDir(), "bad")
	must(t, os.WriteFile(bad, []byte("x\n"), 0o600))
	for _, test := range []struct {
		o    web.Options
		says []string
	}{
		{web.Options{Port: port}, []string{"listening on 127.0.0.1:", "choose another --port"}},
		{web.Options{Host: "no.such.host.invalid"}, []string{"listening on no.such.host.invalid:0"}},
		{web.Options{TokenFile: filepath.Join(t.TempDir(), "none")}, []string{"reading the token file"}},
		{web.Options{TokenFile: t.TempDir()}, []string{"reading the token file", "not a regular file"}},
		{web.Options{TokenFile: empty}, []string{"has no token", "deepwork token new"}},
		{web.Options{TokenFile: bad}, []string{"line 1 is not name:sha256"}},
		{web.Options{TLSCert: bad, TLSKey: bad}, []string{"loading the TLS certificate"}},
	} {
		h, err := s.Listen(context.Background(), test.o)
		if err == nil {
			h.Close()
			t.Errorf("%+v: accepted", test.o)
			continue
		}
		for _, want := range test.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", test.o, err, want)
			}
		}
	}
	h, err := s.Listen(context.Background(), web.Options{})
	must(t, err)
	if err := h.Close(); err != nil {
		t.Errorf("closing one that was not served: %v", err)
	}
}
