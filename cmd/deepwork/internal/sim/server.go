//go:build unix

package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A server is a place where a server process runs, one after the other.
type server struct {
	number int
	http   bool

	mu  sync.Mutex
	run *run
	up  chan struct{} // closed when run is set; made anew when it has ended
}

// A run is one server process.
type run struct {
	server *server
	plan   Plan
	cmd    *exec.Cmd
	url    string             // of http
	client *mcp.ClientSession // of stdio: all clients share it
	tie    io.Closer          // of http: the process ends when it is closed
	ended  chan struct{}      // closed when the process has ended
}

func newServer(n int, http bool) *server {
	return &server{number: n, http: http, up: make(chan struct{})}
}

// current is the process that runs, or nil, and what to wait for then.
func (s *server) current() (*run, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run, s.up
}

// wait returns the process that runs, as soon as one does.
func (s *server) wait(ctx context.Context) (*run, error) {
	for {
		r, up := s.current()
		if r != nil {
			return r, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

var listening = regexp.MustCompile(`msg=listening url=(\S+)`)

// start begins a process that is to suffer a plan. That the plan ends it before
// it is up is no error.
func (s *server) start(ctx context.Context, o Options, p Plan) (err error) {
	args := append(o.Server[1:len(o.Server):len(o.Server)], "serve", "--path", filepath.Join(o.Dir, "project"), "--no-quality-gate")
	if s.http {
		args = append(args, "--transport", "http", "--port", "0")
	}
	p.Tied = s.http
	r := &run{server: s, plan: p, ended: make(chan struct{})}
	r.cmd = exec.Command(o.Server[0], args...)
	r.cmd.Env = append(os.Environ(), p.env(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=")
	log, err := os.OpenFile(filepath.Join(o.Dir, fmt.Sprintf("server-%d.log", s.number)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// Pipes of our own: those of exec are closed when the process ends, and what
	// is still in them would be lost.
	var pipes [3][2]*os.File
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	in, out, said := pipes[0], pipes[1], pipes[2]
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = in[0], out[1], said[1]
	err = r.cmd.Start()
	err = errors.Join(err, in[0].Close(), out[1].Close(), said[1].Close())
	if err != nil {
		return errors.Join(err, log.Close())
	}
	fmt.Fprintf(log, "--- process %d %+v\n", r.cmd.Process.Pid, p)
	url := make(chan string, 1)
	go r.follow(said[0], log, url) // ends with the process, which r.ended tells
	if s.http {
		r.url = <-url
		r.tie, err = in[1], out[0].Close()
	} else {
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		r.client, err = client().Connect(bounded, &mcp.IOTransport{Reader: out[0], Writer: in[1]}, nil)
	}
	if err != nil || s.http && r.url == "" {
		return r.kill() // the plan has ended it before it answered
	}
	if r.tie != nil {
		go func() { <-r.ended; _ = r.tie.Close() }() // ends with the process
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-r.ended:
	default:
		s.run = r
		close(s.up)
	}
	return nil
}

// follow copies what a process logs, and waits for its end.
func (r *run) follow(said io.ReadCloser, log io.WriteCloser, url chan<- string) {
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			url <- m[1]
		}
	}
	close(url)
	_ = r.cmd.Wait() // it was killed, mostly
	_ = log.Close()
	_ = said.Close()
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	close(r.ended)
	if s.run == r {
		s.run, s.up = nil, make(chan struct{})
	}
}

func client() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "simulation", Version: "1"}, nil)
}

// kill ends a process as a crash does, and waits for its end.
func (r *run) kill() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.ended
	return nil
}

// stop ends a process in order, and waits for its end.
func (r *run) stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case <-r.ended:
		return nil
	case <-timeout.C:
		return errors.Join(errors.New("a server that was told to end does not"), r.kill())
	}
}
