package contain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/hosts"
)

// A proxied program reaches the hosts that are allowed, by TLS and plainly, and nothing else; what was refused is said.
func TestProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Host, r.URL, r.Header.Get("Proxy-Authorization"))
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())

	var mu sync.Mutex
	var refused []Refusal
	r := newRelay(hosts.List{"good.example:" + port, "inside.example:" + port}, func(f Refusal) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, f)
	})
	r.lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
		switch name {
		case "good.example":
			return []netip.Addr{netip.MustParseAddr("9.9.9.9")}, nil
		case "inside.example":
			return []netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("10.0.0.7")}, nil
		}
		return nil, errors.New("no such host")
	}
	r.dial = func(ctx context.Context, address string) (net.Conn, error) {
		testkit.Equal(t, address, "9.9.9.9:"+port, "it connects to what it has looked at")
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	l := testkit.Get(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	r.serve(l, 0)
	defer r.close()

	proxy := testkit.Get(url.Parse("http://" + l.Addr().String())).Must(t)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	get := func(host string) string {
		r, err := client.Get("http://" + host + ":" + port + "/path?q=1")
		testkit.Must(t, err)
		defer r.Body.Close()
		return fmt.Sprint(r.StatusCode, " ", string(testkit.Get(io.ReadAll(r.Body)).Must(t)))
	}
	testkit.Equal(t, get("good.example"), "200 good.example:"+port+" /path?q=1 ")
	testkit.Contains(t, get("other.example"), `403 deepwork refused a connection to other.example:`+port+
		`: it is not among the hosts that are allowed. A person can allow it, with allow: ["other.example:`+port+`"]`)
	testkit.Contains(t, get("inside.example"), "403 deepwork refused a connection to inside.example:"+port+
		": its name leads to 10.0.0.7, which is not in the internet.")

	tunnel := testkit.Get(net.Dial("tcp", l.Addr().String())).Must(t)
	defer tunnel.Close()
	fmt.Fprintf(tunnel, "CONNECT good.example:%s HTTP/1.1\r\n\r\n"+
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", port)
	in := bufio.NewReader(tunnel)
	testkit.Equal(t, testkit.Get(in.ReadString('\n')).Must(t), "HTTP/1.1 200 Connection established\r\n")
	testkit.Contains(t, string(testkit.Get(io.ReadAll(in)).Must(t)), "x / ")
	testkit.Equal(t, len(refused), 2, "refusals")
}

// A contained program reaches a port of the host by the same number, and answers its own files.
func TestForward(t *testing.T) {
	needContain(t)
	s := newScene(t)
	p := s.plan(t)
	_, port, _ := net.SplitHostPort(s.Loopback)
	n := testkit.Get(strconv.Atoi(port)).Must(t)
	p.Reach(nil, n)
	p.Env = s.env(t, "tcp to the host's loopback")
	r, err := p.Run(t.Context(), process.Spec{Command: []string{ownSelf}}, func(Refusal) {})
	testkit.Contains(t, string(r.Stdout), "came through", err)
}

// What a program says, its exit code and its signal come out, and its files are those of the plan.
func TestAContainedProgram(t *testing.T) {
	needContain(t)
	s := newScene(t)
	p := s.plan(t)
	run := func(script string) (process.Result, error) {
		spec := process.Spec{Command: []string{"sh", "-c", script}, Stdin: []byte("in")}
		return p.Run(t.Context(), spec, func(Refusal) {})
	}
	r, err := run(`cat; echo $HOME; pwd; touch "$HOME/x" file; ls -A "$HOME"; echo "$HTTPS_PROXY"; exit 42`)
	testkit.Fails(t, err, "exit code 42")
	testkit.Equal(t, string(r.Stdout), "in"+s.Home+"\n"+s.Worktree+"\nrepo\nwork\nx\nhttp://127.0.0.1:3128\n")
	testkit.Equal(t, r.ExitCode, 42)
	testkit.Get(os.Stat(filepath.Join(s.Worktree, "file"))).Must(t)
	_, err = os.Stat(filepath.Join(s.Home, "x"))
	testkit.True(t, os.IsNotExist(err), "the home of the host was written to: %v", err)
	r, _ = run("kill -9 $$")
	testkit.Equal(t, r.ExitCode, 137)
	_, err = p.Run(t.Context(), process.Spec{Command: []string{"no-such-program"}}, func(Refusal) {})
	testkit.Fails(t, err, "starting it contained")
}

// A program that is asked to end may clean up and says how it ended; a killed one leaves nothing, not even what has
// left its session.
func TestAContainedProgramEnds(t *testing.T) {
	needContain(t)
	s := newScene(t)
	p := s.plan(t)
	for _, kill := range []bool{false, true} {
		beat := filepath.Join(s.Worktree, fmt.Sprint("beat", kill))
		script := `trap 'echo asked; exit 7' TERM
			setsid sh -c 'while :; do date +%s%N >"$0"; sleep 0.05; done' "$0" & echo up
			while :; do sleep 0.1; done`
		b := testkit.Get(p.Open([]string{"sh", "-c", script, beat}, func(Refusal) {})).Must(t)
		var out testkit.Log
		spec := process.Spec{Command: b.Command, Env: b.Env, Files: b.Files}
		c := testkit.Get(process.Spawn(spec, &out, &out)).Must(t)
		testkit.Until(t, "it runs", func() bool {
			_, err := os.Stat(beat)
			return err == nil && out.Count("up") > 0
		})
		if kill {
			c.Kill()
		} else {
			c.Terminate()
		}
		<-c.Exited()
		c.Close()
		b.Close()
		if code, _ := c.Exit(); !kill {
			testkit.Equal(t, code, 7)
			testkit.Contains(t, out.String(), "asked")
		}
		last := string(testkit.Get(os.ReadFile(beat)).Must(t))
		time.Sleep(200 * time.Millisecond)
		testkit.Equal(t, string(testkit.Get(os.ReadFile(beat)).Must(t)), last, "what it has started runs on")
	}
}

// A folder that an agent keeps has no mount point in it, where it could leave a link to the host.
func TestNoMountPointBehindALink(t *testing.T) {
	home := t.TempDir()
	testkit.WriteAll(t, home, map[string]string{"kept/file": "x", "other/.git/config": "x"})
	testkit.Must(t, os.Symlink(filepath.Join(home, "other"), filepath.Join(home, "kept", "repo")))
	p := &Plan{}
	p.Write(filepath.Join(home, "kept"))
	p.Mounts = append(p.Mounts, Mount{Path: home + "/kept/repo/.git", Source: home + "/other"})
	testkit.Fails(t, p.check(), "by a link")
	p.Mounts[1].Path = filepath.Join(home, "kept", "repo")
	testkit.Fails(t, p.check(), "not be a link")
	p.Mounts[1].Path = filepath.Join(home, "kept", "missing")
	testkit.Fails(t, p.check(), "must be there")
	p.Mounts[1].Path = filepath.Join(home, "kept", "file")
	testkit.Works(t, p.check())
}

// Each reason why bubblewrap fails has its own remedy.
func TestRemedies(t *testing.T) {
	for said, want := range map[string]string{
		"bwrap: Creating new namespace failed: No space left":           "user.max_user_namespaces",
		"bwrap: Can't mount proc on /newroot/proc: Operation":           "systempaths=unconfined",
		"bwrap: No permissions to create new namespace, likely because": "seccomp=unconfined",
		"bwrap: Unknown option --disable-userns":                        "0.8 or later",
	} {
		testkit.Contains(t, remedy(said).Error(), want, said)
	}
	before := bubblewraps
	defer func() { bubblewraps = before }()
	bubblewraps = []string{filepath.Join(t.TempDir(), "bwrap")}
	_, err := Check(t.Context())
	testkit.Fails(t, err, "sudo apt install bubblewrap")
	testkit.Must(t, os.WriteFile(bubblewraps[0], []byte("#!/bin/sh\necho bubblewrap 0.6.2\n"), 0o755))
	_, err = Check(t.Context())
	testkit.Fails(t, err, "has the version 0.6.2, and 0.8 or later is needed")
}

// The tools of a developer work inside; a test names those that this machine lacks.
func TestToolsWorkContained(t *testing.T) {
	needContain(t)
	for name, script := range map[string]string{
		"gcc": `printf '#include <stdio.h>\nint main(){puts("ok");}' >x.c && gcc -o x x.c && ./x`,
		"python": `/usr/bin/python3 -c 'from multiprocessing import Pool, Manager
print(Pool(2).map(abs, [1]), Manager().list())'`,
		"node": `node -e 'const http = require("http"), h = http.createServer((q, r) => r.end("ok")).listen(0, () =>
				http.get({port: h.address().port}, r => process.exit(r.statusCode == 200 ? 0 : 1)))'`,
		"strace": `strace -f -o /dev/null true`,
		"gdb":    `gdb -batch -ex run --args true | grep -q exited`,
		"script": `script -qc 'tty' /dev/null | grep -q pts`,
	} {
		t.Run(name, func(t *testing.T) {
			program := strings.TrimPrefix(strings.Fields(script)[0], "/usr/bin/")
			if name == "gcc" {
				program = "gcc"
			}
			if at, err := exec.LookPath("/usr/bin/" + program); err != nil {
				t.Skip(at, err)
			}
			s := newScene(t)
			r, err := s.plan(t).Run(t.Context(), process.Spec{Command: []string{"sh", "-ec", script}}, func(Refusal) {})
			testkit.True(t, err == nil, "%v\n%s%s", err, r.Stdout, r.Stderr)
		})
	}
}

// A plan says in words what its program gets.
func TestDescribe(t *testing.T) {
	p := &Plan{Version: "0.11.0", Env: []string{"HOME=/home/ann", "API_KEY=secret"}, Mounts: []Mount{
		{Path: "/usr", Source: "/usr"}, {Path: "/etc/hosts", Source: "/etc/hosts"}, {Path: "/tmp", Write: true},
		{Path: "/work", Source: "/work", Write: true}, {Path: ownSelf, Source: "/usr/bin/deepwork"},
	}}
	p.Reach(hosts.List{"api.example.com:443"}, 5432)
	testkit.Equal(t, p.String(), "contained (bubblewrap 0.11.0; 1 host, 1 port of this machine)")
	text := fmt.Sprint(p.Describe())
	testkit.ContainsAll(t, text, []string{"[reads /usr, 1 of the system's files in /etc]", "[writes /work]",
		"[starts with empty /tmp, /dev/shm]", "[connects to api.example.com:443]", "[ports of this machine 5432]",
		"API_KEY, HOME, HTTPS_PROXY"})
	testkit.Lacks(t, text, []string{"secret", ownSelf})
}
