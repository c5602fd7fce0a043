package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// readyWithin is how long a server may take to start, even after a crash on a busy machine.
const readyWithin = time.Minute

// A Server is a PostgreSQL server. Only a server that was started here can be stopped. Its methods may not be
// called concurrently, except URL and At.
type Server struct {
	base    string // its URL
	dir     string
	bin     string
	options []string
	users   string  // a file that all processes have locked that use it; "" if only this one does
	process *daemon // nil if it does not run, or was not started here
	standby *Server // see Follow
}

// Start starts a server with fsync on, as an unprivileged user, that listens at a socket in a temporary
// folder. Options are settings such as "max_connections=20". The caller closes it; it also ends with the
// process. The error is ErrMissing if PostgreSQL is not installed.
func Start(options ...string) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}

	dir, err := newDir()
	if err != nil {
		return nil, err
	}
	s := newServer(dir, options...)
	s.bin = bin
	return s, s.first()
}

func newServer(dir string, options ...string) *Server {
	return &Server{dir: dir, options: options, base: "postgres://postgres@/postgres?host=" + dir}
}

// first creates the data of a server, and starts it. If that fails, it removes its folder.
func (s *Server) first() error {
	_, err := s.program("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync")
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		s.Close()
	}
	return err
}

// share returns the server that all tests of this user share, with fsync off. It outlives single processes,
// and ends with the last one that uses it. Each has a file locked meanwhile.
func share() (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}

	s := newServer(filepath.Join(os.TempDir(), fmt.Sprint("pgtest-", os.Getuid())), "fsync=off", "max_connections=400")
	s.bin, s.users = bin, s.dir+".users"
	if err := lock(s.users, false); err != nil {
		return nil, err
	}

	starting := s.dir + ".starting"
	if err := lock(starting, true); err != nil {
		return nil, err
	}
	defer unlock(starting)
	if c, err := net.Dial("unix", socketIn(s.dir)); err == nil {
		return s, c.Close()
	}

	err = errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700))
	if u := unprivileged(); err == nil && u != nil {
		err = chown(s.dir, u)
	}
	if err == nil {
		err = s.first()
	}

	s.process = nil // nobody stops it
	return s, err
}

// PID returns the id of the server's process, 0 if it does not run or was not started here.
func (s *Server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts a server that was stopped or killed, and waits until it accepts connections.
func (s *Server) Start() error {
	args := []string{"-D", s.data()}
	for _, o := range append([]string{"listen_addresses=", "unix_socket_directories=" + s.dir, "fsync=on",
		"shared_buffers=64MB"}, s.options...) {
		args = append(args, "-c", o)
	}

	began := time.Now()
	for time.Since(began) < readyWithin {
		d, err := start(s.dir, s.users, syscall.SIGQUIT, filepath.Join(s.bin, "postgres"), args...)
		if err != nil {
			return err
		}
		for s.process = d; time.Since(began) < readyWithin && d.alive(); time.Sleep(10 * time.Millisecond) {
			state, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
			lines := strings.Split(string(state), "\n")
			if lines[0] == fmt.Sprint(d.cmd.Process.Pid) && len(lines) > 7 &&
				(strings.HasPrefix(lines[7], "ready") || strings.HasPrefix(lines[7], "standby")) {
				return nil
			}
		}

		// It has ended: the remaining processes of a killed server are about to end.
		s.process = nil
		d.end(syscall.SIGKILL)
	}
	said, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Errorf("postgres does not start within %v:\n%s", readyWithin, said)
}

// Stop cuts all connections and stops the server.
func (s *Server) Stop() error { return s.stop(syscall.SIGINT) }

// Kill ends the server like a crash: the next Start recovers from its log.
func (s *Server) Kill() error { return s.stop(syscall.SIGKILL) }

func (s *Server) stop(by syscall.Signal) error {
	if s.process == nil {
		return errors.New("the server does not run, or was not started here")
	}
	s.process.end(by)
	s.process = nil
	return nil
}

// Close ends the server and removes its folder.
func (s *Server) Close() {
	_ = s.stop(syscall.SIGQUIT)
	if s.standby != nil {
		s.standby.Close()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// programs returns the folder with the server's programs.
func programs() (string, error) {
	if os.Getenv(urlVariable) == off {
		return "", fmt.Errorf("postgres and initdb are taken for %w", ErrMissing)
	}

	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "initdb")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}

	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", fmt.Errorf("postgres and initdb are %w", ErrMissing)
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int {
		return len(a) - len(b) + strings.Compare(a, b)
	})), nil
}

// newDir returns a new folder that only the server's user and root can enter.
func newDir() (string, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return "", err
	}
	if u := unprivileged(); u != nil {
		err = chown(dir, u)
	}
	return dir, err
}
