package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Follow starts a synchronous standby of the server: from then on a commit is confirmed only once both have
// it on disk.
func (s *Server) Follow() error {
	dir, err := newDir()
	if err != nil {
		return err
	}
	s.standby = &Server{dir: dir, bin: s.bin, options: s.options}

	if _, err := s.program("pg_basebackup", "-h", s.dir, "-U", "postgres", "-D", s.standby.data(), "-R", "-c", "fast",
		"--no-sync"); err != nil {
		return err
	}

	if err := s.standby.Start(); err != nil {
		return err
	}
	sql := func(statement string) (string, error) {
		return s.program("psql", "-h", s.dir, "-U", "postgres", "-qXAtc", statement)
	}
	_, err = sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
	if err == nil {
		_, err = sql("SELECT pg_reload_conf()")
	}
	for began, state := time.Now(), ""; err == nil && !strings.Contains(state, "sync"); {
		state, err = sql("SELECT sync_state FROM pg_stat_replication WHERE sync_state = 'sync'")
		if time.Since(began) > readyWithin {
			return fmt.Errorf("the standby does not follow within %v", readyWithin)
		}
	}

	return err
}

// FailOver ends the server like a crash and promotes its standby, which then answers at its URLs. Afterwards
// the server can only be closed.
func (s *Server) FailOver() error {
	if err := s.Kill(); err != nil {
		return err
	}

	if _, err := s.program("pg_ctl", "promote", "-D", s.standby.data(), "-w", "-t",
		fmt.Sprint(int(readyWithin/time.Second))); err != nil {
		return err
	}

	if err := os.Remove(socketIn(s.dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(socketIn(s.standby.dir), socketIn(s.dir))
}

// program runs one of PostgreSQL's programs as the server's user, and returns its output.
func (s *Server) program(name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = unprivileged(), s.dir
	said, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return string(said), err
}
