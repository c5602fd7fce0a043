package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deepwork/transport/web"
)

// strangerEnv has the requests of a test that runs as another user: its address and a token.
const strangerEnv = "TRANSPORT_TEST_STRANGER"

// stranger is what a process of another user does.
func stranger(t *testing.T, address, token string) {
	c := httpClient(t, token)
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/healthz", ""}, {"GET", "/readyz", ""}, {"GET", "/metrics", ""}, {"POST", "/mcp", initialize}, {"GET", "/sse", ""},
	} {
		req, err := http.NewRequest(r.method, "http://"+address+r.path, strings.NewReader(r.body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := c.Do(req)
		must(t, err)
		line := []byte{}
		if res.StatusCode != 200 { // a stream lasts
			line, _ = io.ReadAll(res.Body)
		}
		res.Body.Close()
		fmt.Printf("stranger %s %d %s\n", r.path, res.StatusCode, bytes.TrimSpace(line))
	}
}

// Without a token, a process of another user reaches nothing but what says that the server lives.
func TestAnotherUserNeedsAToken(t *testing.T) {
	if given := os.Getenv(strangerEnv); given != "" {
		address, token, _ := strings.Cut(given, " ")
		stranger(t, address, token)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	dir, err := os.MkdirTemp("", "transport-nobody-*")
	must(t, err)
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	must(t, err)
	program := filepath.Join(dir, "test")
	data, err := os.ReadFile(self)
	must(t, errors.Join(err, os.WriteFile(program, data, 0o755), os.Chmod(program, 0o755), os.Chmod(dir, 0o755)))
	visit := func(h *web.Server, token string) string {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), strangerEnv+"="+address(h)+" "+token)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for _, over := range []string{web.HTTP, web.SSE} {
		s, _ := fakeServer(t, nil, withHTTP(nil))
		h := overHTTP(t, s, web.Options{Transport: over})
		out := visit(h, "")
		for _, want := range []string{"/healthz 200", "/readyz 200", "/metrics 401 this connection is of another user of this machine, with the id 65534, who needs a token: ", "/mcp 401 this", "/sse 401 this"} {
			if over == web.HTTP && strings.HasPrefix(want, "/sse") || over == web.SSE && strings.HasPrefix(want, "/mcp") {
				continue
			}
			if !strings.Contains(out, "stranger "+want) {
				t.Errorf("over %s, want %q:\n%s", over, want, out)
			}
		}
		if r := send(t, httpClient(t, ""), "GET", at(h, "/metrics"), ""); r.status != 200 || !strings.Contains(r.body, `deepwork_refused_total{reason="peer"} 2`) {
			t.Errorf("the user's own: %d", r.status)
		}
		file, token := tokens(t, "ann")
		if out := visit(overHTTP(t, s, web.Options{Transport: over, TokenFile: file}), token[0]); !strings.Contains(out, "/metrics 200") || !strings.Contains(out, "/"+map[string]string{"http": "mcp", "sse": "sse"}[over]+" 200") {
			t.Errorf("with a token:\n%s", out)
		}
	}
}
