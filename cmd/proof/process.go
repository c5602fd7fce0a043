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

// start starts a process and waits until it can be called. One that is not over stdio logs
// the URL that it listens at. The caller ends it by stop or kill. A process that ended
// before it could be called is returned, too.
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
		if p.stdio, err = newClient().Connect(within, &mcp.IOTransport{Reader: stdout, Writer: stdin}, nil); err != nil {
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
		return errors.Join(fmt.Errorf("process %d was told to end, and did not within %v", p.cmd.Process.Pid, stopWithin), p.kill())
	}
}
