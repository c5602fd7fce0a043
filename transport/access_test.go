package transport

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
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
				testkit.Equal(t, f.agents[i].identity, name, "the caller")
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
		m := testkit.Get(stream.Read(data[n:])).Must(t)
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
		testkit.ContainsAll(t, err.Error(), test.says, "%+v: %v", test.o, err)
	}
	h := testkit.Get(s.Listen(context.Background(), web.Options{})).Must(t)
	testkit.Works(t, h.Close(), "closing one that was not served")
}

// A workflow is reached from another connection by its session_id, and by its own
// caller alone; it outlives its connection. Stateless requests name it as soon as
// there is more than one.
func TestWorkflowsOfCallers(t *testing.T) {
	s, _ := project(t, nil)
	file, token := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	const start = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`
	first, second, bob := dial(t, h, stateful, token[0]), dial(t, h, stateful, token[0]), dial(t, h, stateful, token[1])
	id := into[machine.StartReply](t, first, "start_workflow", start).BeginStep.SessionID
	named := `{"session_id":"` + id + `"}`

	refusedWith(t, second, "get_step", `{}`, "StateError")
	if got := refusedWith(t, bob, "get_step", `{}`, "StateError"); strings.Contains(got, id) {
		t.Errorf("another caller is told of it: %s", got)
	}
	if res := callTool(t, bob, "get_step", named); !res.IsError {
		t.Errorf("another caller reached it: %s", text(res))
	}
	if res := callTool(t, dial(t, h, "", token[1]), "abort_workflow", `{"explanation":"e","session_id":"`+id+`"}`); !res.IsError {
		t.Errorf("another caller ended it: %s", text(res))
	}
	if got := into[machine.StepReply](t, second, "get_step", named); got.BeginStep.StepID != "idea" {
		t.Errorf("on its caller's other connection: %+v", got)
	}
	must(t, first.Close())
	must(t, second.Close())

	stateless := dial(t, h, "", token[0])
	if got := into[machine.StepReply](t, stateless, "get_step", `{}`); got.BeginStep.SessionID != id {
		t.Errorf("the only one: %+v", got)
	}
	other := into[machine.StartReply](t, stateless, "start_workflow", start).BeginStep.SessionID
	if got := refusedWith(t, stateless, "get_step", `{}`, "StateError"); !strings.Contains(got, id) || !strings.Contains(got, other) || !strings.Contains(got, "session_id") {
		t.Error(got)
	}
	if got := into[machine.StepReply](t, stateless, "get_step", named); got.BeginStep.SessionID != id {
		t.Errorf("named: %+v", got)
	}
}

// callerAgent makes agents whose calls of start_workflow send their caller.
func callerAgent(got chan<- session.Caller) func(*fakeAgent) {
	return func(a *fakeAgent) {
		a.start = func(ctx context.Context, _ workflow.StartArgs) (*machine.StartReply, error) {
			got <- session.CallerOf(ctx)
			return &machine.StartReply{BeginStep: fullStep("a"), Stack: a.stack}, nil
		}
	}
}

const anyStart = `{"goal":"g","job_name":"j","workflow_name":"w"}`

// The context of a call has its caller, over each transport.
func TestEachCallHasItsCaller(t *testing.T) {
	got := make(chan session.Caller, 1)
	s, _ := fakeServer(t, callerAgent(got), withHTTP(nil))
	file, token := tokens(t, "ann")
	check := func(name string, want session.Caller) {
		t.Helper()
		testkit.Equal(t, <-got, want, "%s: the caller", name)
	}
	cs, stop, served := onStdio(t, s)
	callTool(t, cs, "start_workflow", anyStart)
	check("stdio", session.LocalCaller(session.ChannelStdio))
	stop()
	<-served
	for name, o := range map[string]web.Options{"http": {}, "sse": {Transport: web.SSE}} {
		for _, version := range []string{stateful, ""} {
			callTool(t, dial(t, overHTTP(t, s, o), version, ""), "start_workflow", anyStart)
			check(name+version, session.LocalCaller(name))
			o := o
			o.TokenFile = file
			callTool(t, dial(t, overHTTP(t, s, o), version, token[0]), "start_workflow", anyStart)
			check(name+version+" with a token", session.Caller{Identity: "ann", Channel: name})
		}
	}
}

// A call of nobody knows whom is not one of the user: it is refused.
func TestACallWithoutACallerIsRefused(t *testing.T) {
	s, _ := fakeServer(t, nil)
	here, there := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.mcp.Run(ctx, here) }()
	_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), there, nil)
	testkit.Fails(t, err, "it is not known who makes this call")
	testkit.Equal(t, s.conns.Len(), 0, "connections")
	cancel()
	<-ran
}

// Where the system does not tell whose a connection is, the user has a token, which is made when the
// server starts and makes its bearer the user.
func TestTheUsersTokenWherePeersAreUnknown(t *testing.T) {
	got := make(chan session.Caller, 1)
	made := false
	s, _ := fakeServer(t, callerAgent(got), withHTTP(nil), func(e *engines) {
		e.token = func(make bool) (string, error) { made = made || make; return "made", nil }
	})
	for _, over := range []string{web.HTTP, web.SSE} {
		made = false
		h := overHTTP(t, s, web.Options{Transport: over, UnknownPeers: true})
		if !made {
			t.Error("no token was made at the start")
		}
		for _, url := range []string{h.URL(), at(h, "/metrics")} {
			for token, says := range map[string]string{"": "deepwork token show", "wrong": "not known here"} {
				if r := send(t, httpClient(t, token), "GET", url, ""); r.status != 401 || token == "" && !strings.Contains(r.body, says) {
					t.Errorf("%s with %q: %+v", url, token, r)
				}
			}
		}
		if r := send(t, httpClient(t, "made"), "GET", at(h, "/metrics"), ""); r.status != 200 {
			t.Errorf("%+v", r)
		}
		callTool(t, dial(t, h, stateful, "made"), "start_workflow", anyStart)
		testkit.Equal(t, <-got, session.LocalCaller(over), "the caller")
	}
}

// A page that was rebound to this server is refused, as is any page that is not
// allowed; a page that is, by the config or by a flag, may do what a client with a token does.
func TestGuard(t *testing.T) {
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			hosts, origins := []string{"deep.example.com"}, []string{"https://app.example.com"}
			file, token := tokens(t, "ann")
			o, byConfig := web.Options{Transport: over, TokenFile: file}, over == web.HTTP
			if !byConfig {
				o.AllowedHosts, o.AllowedOrigins = hosts, origins
			}
			s, _ := fakeServer(t, nil, withHTTP(func(c *config.HTTP) {
				if byConfig {
					c.AllowedHosts, c.AllowedOrigins = hosts, origins
				}
			}))
			h := overHTTP(t, s, o)
			c := httpClient(t, token[0])
			for _, url := range []string{h.URL(), at(h, "/metrics")} {
				for _, headers := range [][]string{{"Host: evil.example.com"}, {"Origin: https://evil.example.com"}, {"Origin: null"}, {"Origin: http://localhost:3000"}, {"Origin: http://localhost"}, {"Host: evil.example.com", "Origin: http://evil.example.com"}} {
					r := send(t, c, "GET", url, "", headers...)
					if r.status != 403 || r.header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(r.body, "http.allowed_") {
						t.Errorf("%s %v: %+v", url, headers, r)
					}
				}
			}
			if r := send(t, c, "GET", at(h, "/metrics"), "", "Origin: http://"+address(h)); r.status != 200 {
				t.Errorf("from its own page: %+v", r)
			}
			if r := send(t, c, "GET", at(h, "/metrics"), "", "Host: deep.example.com:80", "Origin: https://app.example.com"); r.status != 200 ||
				r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || r.header.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id" {
				t.Errorf("%+v", r)
			}
			r := send(t, c, "OPTIONS", h.URL(), "", "Origin: https://app.example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,mcp-session-id")
			if r.status != 204 || !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), "DELETE") || r.header.Get("Access-Control-Allow-Headers") != "authorization,mcp-session-id" {
				t.Errorf("preflight: %+v", r)
			}
			if r := send(t, c, "OPTIONS", h.URL(), "", "Origin: https://evil.example.com", "Access-Control-Request-Method: POST"); r.status != 403 {
				t.Errorf("preflight of another: %+v", r)
			}
			if r := send(t, c, "GET", at(h, "/nothing"), ""); r.status != 404 {
				t.Errorf("%+v", r)
			}
		})
	}
}
