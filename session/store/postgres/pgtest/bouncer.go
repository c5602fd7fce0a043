package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Bouncer starts a PgBouncer in transaction mode with 20 connections, which ends with the test, and returns
// the URL of the same schema through it. It skips the test if PgBouncer is not installed.
func Bouncer(t testing.TB, raw string) string {
	t.Helper()
	b, err := StartBouncer(raw)
	Need(t, err)
	t.Cleanup(b.Close)
	return b.URL
}

// A Pooler is a PgBouncer in transaction mode.
type Pooler struct {
	URL     string // of the same schema through the PgBouncer
	dir     string
	process *daemon
}

// StartBouncer starts a PgBouncer for the server of a URL. The caller closes it; it also ends with this
// process. The error is ErrMissing if PgBouncer is not installed.
func StartBouncer(raw string) (*Pooler, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("pgbouncer is %w", ErrMissing)
	}

	dir, err := newDir()
	if err != nil {
		return nil, err
	}
	b := &Pooler{URL: through(raw, dir), dir: dir}
	u, err := url.Parse(raw)
	if err != nil {
		b.Close()
		return nil, errors.New("not a URL of a server")
	}
	host, port := u.Query().Get("host"), "5432"
	if network, addr := address(raw); network != "unix" {
		host, port, _ = net.SplitHostPort(addr)
	}
	login := "user=" + u.User.Username()
	if password, ok := u.User.Password(); ok {
		login += " password=" + password
	}

	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s %s\n[pgbouncer]\nlisten_addr =\nlisten_port = "+
		"5432\nunix_socket_dir = %s\nauth_type = any\npool_mode = transaction\ndefault_pool_size = "+
		"20\nmax_client_conn = 500\nserver_login_retry = 1\n",
		host, port, login, dir)
	if err = os.WriteFile(config, []byte(text), 0o644); err == nil {
		b.process, err = start(dir, "", syscall.SIGKILL, program, config)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("starting PgBouncer: %w", err)
	}

	for began := time.Now(); time.Since(began) < readyWithin && b.process.alive(); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("unix", socketIn(dir)); err == nil {
			c.Close()
			return b, nil
		}
	}

	said, _ := os.ReadFile(filepath.Join(dir, "log"))
	b.Close()
	return nil, fmt.Errorf("pgbouncer does not start:\n%s", said)
}

// Close ends the PgBouncer.
func (b *Pooler) Close() {
	if b.process != nil {
		b.process.end(syscall.SIGKILL)
		b.process = nil
	}
	_ = os.RemoveAll(b.dir)
}
