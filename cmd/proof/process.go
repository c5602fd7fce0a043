package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
)

const (
	startWithin = 30 * time.Second // how long a process may take until it listens
	stopWithin  = 30 * time.Second // and to end once it is asked to
)

// A process is one that this program started, such as a server.
type process struct {
	where *server            // nil if it is not a deepwork server
	url   string             // "" of one over stdio
	stdio *mcp.ClientSession // of one over stdio: all clients share it

	cmd   *exec.Cmd
	log   string        // the file with its stderr
	ended chan struct{} // closed when the process has ended
	err   error         // set before that
	full  bool          // its disk may become full
}

// start starts a process and waits until it can be called. Unless it is over stdio, it logs the URL that it listens at.
// The caller ends it by stop or kill. A process that ended before it could be called is returned, too.
func (w *world) start(ctx context.Context, stdio bool, env []string, args ...string) (p *process, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	log, err := os.CreateTemp(w.dir, time.Now().Format("150405.000-*.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s %s\n", strings.Join(args[1:], " "), strings.Join(env, " "))
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe() // closed when the process ends
	if err != nil {
		return nil, err
	}

	var stdout io.ReadCloser
	if stdio {
		if stdout, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}

	p = &process{cmd: cmd, log: log.Name(), ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()

	within, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if stdio {
		p.stdio, err = newClient().Connect(within, &mcp.IOTransport{Reader: stdout, Writer: stdin}, nil)
		if err != nil {
			err = p.kill() // its plan ended it before it answered
		}
		return p, err
	}
	for p.alive() {
		text, err := os.ReadFile(p.log)
		if m := listening.FindSubmatch(text); m != nil {
			p.url = string(m[1])
			return p, nil
		}
		if err = errors.Join(err, wait.For(within, 10*time.Millisecond)); err != nil {
			return nil, errors.Join(fmt.Errorf("%s does not listen: %w\n%s", args[0], err, text), p.kill())
		}
	}
	return p, nil
}

// listening is the log message with a process's URL.
var listening = regexp.MustCompile(`msg=listening url=(\S+)\n`)

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends a process like a crash, and waits for its end.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// stop asks a process to end and waits for that. The error says that it did not end; p.err says how
// it ended.
func (p *process) stop() error {
	if runtime.GOOS == "windows" {
		return p.kill()
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping process %d: %w", p.cmd.Process.Pid, err)
	}

	select {
	case <-p.ended:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("process %d was told to end, and did not within %v", p.cmd.Process.Pid,
			stopWithin), p.kill())
	}
}

// withSessions is the newest protocol version that has MCP sessions.
const withSessions = "2025-11-25"

// A conn is a connection of a real MCP client to a process.
type conn struct {
	session *mcp.ClientSession
	over    *http.Transport // nil means stdio, whose one connection is shared
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "deepwork-proof", Version: "1"}, nil)
}

// connect connects a client to a process. Protocol version "" means the newest. mortal processes may be killed: a
// client does not wait for them to come back.
func connect(ctx context.Context, p *process, version string, mortal bool) (*conn, error) {
	if p.stdio != nil {
		return &conn{session: p.stdio}, nil
	}

	over := &http.Transport{MaxIdleConnsPerHost: 32}
	client := &http.Client{Transport: over}
	if p.where != nil && p.where.token != "" {
		client.Transport = bearer{over, p.where.token}
	}
	transport := &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: client}
	if mortal {
		transport.MaxRetries, transport.DisableStandaloneSSE = -1, true
	}
	session, err := newClient().Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		over.CloseIdleConnections()
		return nil, fmt.Errorf("connecting to %s: %w", p.url, err)
	}
	return &conn{session: session, over: over}, nil
}

// bearer sends a token with each request.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// leave closes the connection, which may be nil, gracefully. It blocks until the server has ended it.
func (c *conn) leave() error {
	if c == nil || c.over == nil {
		return nil
	}
	defer c.over.CloseIdleConnections()
	return c.session.Close()
}

// call makes one tool call, and returns the text of the result.
func (c *conn) call(ctx context.Context, tool string, args any) (text string, result *mcp.CallToolResult, err error) {
	result, err = c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", tool, err)
	}
	for _, block := range result.Content {
		if t, ok := block.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	return text, result, nil
}
