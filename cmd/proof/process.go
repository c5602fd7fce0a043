package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A process is one that was started here, such as a server.
type process struct {
	where *server            // nil of those that are no deepwork servers
	url   string             // "" of one over stdio
	stdio *mcp.ClientSession // of one over stdio: all clients share it

	cmd    *exec.Cmd
	log    string // the file with its stderr
	offset int64  // where that begins in the file
	stdin  io.Closer
	ended  chan struct{} // closed when the process has ended
	err    error         // set before that
	full   bool          // as of its command
}

// A command is what to start.
type command struct {
	args  []string
	env   []string
	log   string // the file that its stderr is appended to
	full  bool   // its disk may be full at some time
	stdio bool   // it speaks MCP on its standard streams; otherwise it logs the URL that it listens at
}

// start starts a process and waits until it can be called. The caller ends it by stop or
// kill. A process that ended before it could be called is returned, too.
func start(ctx context.Context, c command) (p *process, err error) {
	p = &process{cmd: exec.Command(c.args[0], c.args[1:]...), log: c.log, full: c.full, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.env...)
	log, err := os.OpenFile(c.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s %s\n", strings.Join(c.args[1:], " "), strings.Join(c.env, " "))
	if p.offset, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	p.cmd.Stderr = log
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	p.cmd.Stdin, p.stdin = in, stdin
	// A pipe of our own: that of exec is closed when the process ends, and what is still
	// in it would be lost.
	var stdout *os.File
	if c.stdio {
		var out *os.File
		if stdout, out, err = os.Pipe(); err != nil {
			return nil, err
		}
		defer out.Close()
		p.cmd.Stdout = out
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.args[0], err)
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = p.stdin.Close()
		close(p.ended)
	}()
	within, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if c.stdio {
		if p.stdio, err = newClient().Connect(within, &mcp.IOTransport{Reader: stdout, Writer: stdin}, nil); err != nil {
			err = p.kill() // its plan has ended it before it answered
		}
		return p, err
	}
	for p.url == "" && p.alive() {
		text, err := p.logged()
		if err != nil {
			return nil, errors.Join(err, p.kill())
		}
		if m := listening.FindStringSubmatch(text); m != nil {
			p.url = m[1]
			return p, nil
		}
		if err := wait.For(within, 10*time.Millisecond); err != nil {
			return nil, errors.Join(fmt.Errorf("%s does not listen: %w\n%s", c.args[0], err, text), p.kill())
		}
	}
	return p, nil
}

// listening is how each process logs where it listens.
var listening = regexp.MustCompile(`msg=listening url=(\S+)\n`)

// logged returns what the process has logged so far.
func (p *process) logged() (string, error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return "", fmt.Errorf("reading a log: %w", err)
	}
	return string(data[min(p.offset, int64(len(data))):]), nil
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends a process as a crash does, and waits for its end.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop asks a process to end and waits for that. Its error says that it did not end; how
// it ended is in p.err.
func (p *process) stop() error {
	if runtime.GOOS == "windows" {
		return p.kill()
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping process %d: %w", p.cmd.Process.Pid, err)
	}
	timeout := time.NewTimer(stopWithin)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
		return errors.Join(fmt.Errorf("process %d was told to end, and did not within %v", p.cmd.Process.Pid, stopWithin), p.kill())
	}
	return nil
}
