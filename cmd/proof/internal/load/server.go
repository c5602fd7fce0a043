package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	// startWithin is how long a child may take until it says where it listens.
	startWithin = 30 * time.Second
	// stopWithin is how long one may take to end when it was asked to.
	stopWithin = 30 * time.Second
)

// A server is one that the clients of a run connect to.
type server struct {
	index int
	url   string
	token string
	child *child // nil: it is somebody else's
	log   string // of a child: the file with its log
}

// A child is a process that this one started.
type child struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when err is set
	err    error
	stderr bytes.Buffer // read when it has ended
}

// startChild starts the binary; its end is waited for by a goroutine of its own,
// until which the child is ended by stop or by ctx.
func startChild(ctx context.Context, o Options, program string, stdout *os.File, args ...string) (*child, error) {
	c := &child{ended: make(chan struct{})}
	c.cmd = exec.CommandContext(ctx, program, args...)
	c.cmd.Env = append(os.Environ(), o.Env...)
	c.cmd.Stderr = &c.stderr
	if stdout != nil {
		c.cmd.Stdout = stdout
	}
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s %s: %w", program, args[0], err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// stop asks a child to end, and kills it where it does not.
func (c *child) stop() error {
	ask := c.cmd.Process.Signal
	if runtime.GOOS == "windows" {
		ask = func(os.Signal) error { return c.cmd.Process.Kill() }
	}
	if err := ask(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping process %d: %w", c.cmd.Process.Pid, err)
	}
	timeout := time.NewTimer(stopWithin)
	defer timeout.Stop()
	select {
	case <-c.ended:
	case <-timeout.C:
		_ = c.cmd.Process.Kill()
		<-c.ended
		return fmt.Errorf("process %d did not end within %v and was killed", c.cmd.Process.Pid, stopWithin)
	}
	if c.err != nil && runtime.GOOS != "windows" {
		return fmt.Errorf("process %d ended with %w\n%s", c.cmd.Process.Pid, c.err, c.stderr.String())
	}
	return nil
}

// startServer starts a server on the project and waits until it listens. Its log
// goes to a file of the folder.
func startServer(ctx context.Context, o Options, root, logs string, index int) (*server, error) {
	s := &server{index: index, log: filepath.Join(logs, fmt.Sprintf("server%d.log", index+1))}
	var err error
	s.child, err = startChild(ctx, o, o.Program, nil, "serve", "--path", root, "--transport", "http", "--port", "0",
		"--no-quality-gate", "--toolsets", "workflows", "--log-format", "json", "--log-file", s.log)
	if err != nil {
		return nil, err
	}
	s.url, err = s.child.waitFor(ctx, func() (string, error) { return listeningURL(s.log) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// waitFor waits until find finds something, looking again and again.
func (c *child) waitFor(ctx context.Context, find func() (string, error)) (string, error) {
	within, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		switch found, err := find(); {
		case err != nil:
			return "", errors.Join(err, c.stop())
		case found != "":
			return found, nil
		}
		select {
		case <-look.C:
		case <-c.ended:
			return "", fmt.Errorf("%s has ended at once: %w\n%s", c.cmd, c.err, c.stderr.String())
		case <-within.Done():
			return "", errors.Join(fmt.Errorf("%s does not listen: %w", c.cmd, within.Err()), c.stop())
		}
	}
}

// listeningURL finds in a log where its server listens, or "".
func listeningURL(path string) (string, error) {
	url := ""
	err := eachLine(path, func(line logLine) {
		if line.Msg == "listening" {
			url = line.URL
		}
	})
	return url, err
}

// A logLine is what matters of a line of a server's log.
type logLine struct {
	Level string `json:"level"`
	Msg   string `json:"msg"`
	URL   string `json:"url"`
	text  string
}

// eachLine reads the lines of a log that are whole; a log that is not there has none.
func eachLine(path string, do func(logLine)) (err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a server's log: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// Most lines tell of a call, and are not taken apart.
		if data := lines.Bytes(); !bytes.Contains(data, []byte(`"level":"INFO","msg":"call`)) {
			line := logLine{text: string(data)}
			if json.Unmarshal(data, &line) == nil {
				do(line)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading a server's log: %w", err)
	}
	return nil
}

// complaints notes the errors that stand in a server's log, panics among them.
func (s *server) complaints(w wrong) error {
	return eachLine(s.log, func(line logLine) {
		if line.Level == "ERROR" {
			w.add("an error in a server's log", fmt.Sprintf("%.500s", line.text))
		}
	})
}
