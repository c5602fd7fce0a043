package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/transport/web"
)

func needSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be signalled there")
	}
}

// TestServeSignal asks a server to end while its client is still connected:
// it ends by itself, with exit code 0.
func TestServeSignal(t *testing.T) {
	needSignals(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(sig.String(), func(t *testing.T) {
			server, log := startServe(t)
			must(t, server.Process.Signal(sig))
			rest, err := io.ReadAll(log)
			must(t, err)
			if err := server.Wait(); err != nil {
				t.Errorf("ended with %v, want exit 0; it logged\n%s", err, rest)
			}
			if !strings.Contains(string(rest), "server stopped") {
				t.Errorf("it did not say that it stopped:\n%s", rest)
			}
		})
	}
}

// TestServeOutlivesItsClient writes to a client that is gone: that ends the
// server, but not at once, as the signal for it would.
func TestServeOutlivesItsClient(t *testing.T) {
	needSignals(t)
	server := exec.CommandContext(t.Context(), "deepwork", "serve", "--path", t.TempDir())
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	stdin, err := server.StdinPipe()
	must(t, err)
	defer stdin.Close()
	var log strings.Builder
	server.Stdout, server.Stderr = w, &log
	must(t, server.Start())
	must(t, r.Close())
	if _, err := io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	err = server.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit code 1", err)
	}
	if !strings.Contains(log.String(), "server stopped") || !strings.Contains(log.String(), "broken pipe") {
		t.Errorf("it logged\n%s", log.String())
	}
}

// TestInterruptiblePatience runs a process that is told to stop several times at
// once, as by a terminal and a wrapper: it is left the time to stop.
func TestInterruptiblePatience(t *testing.T) {
	needSignals(t)
	if os.Getenv("DEEPWORK_TEST_PATIENCE") != "" {
		ctx, stop := interruptible(context.Background(), time.Hour)
		defer stop()
		os.Stdout.WriteString("ready\n")
		<-ctx.Done()
		os.Stdout.WriteString("asked to stop\n")
		io.ReadAll(os.Stdin)
		os.Stdout.WriteString("stopped\n")
		os.Exit(0)
	}
	self, err := os.Executable()
	must(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.run=^TestInterruptiblePatience$")
	child.Env = append(os.Environ(), "DEEPWORK_TEST_PATIENCE=1")
	in, err := child.StdinPipe()
	must(t, err)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "asked to stop"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("read %q, want %q", lines.Text(), want)
		}
		for range 3 {
			must(t, child.Process.Signal(syscall.SIGTERM))
		}
	}
	in.Close()
	if !lines.Scan() || lines.Text() != "stopped" {
		t.Errorf("read %q, want %q", lines.Text(), "stopped")
	}
	if err := child.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// startServe starts a server on an empty project, with a client that says
// nothing, and returns once it is up.
func startServe(t *testing.T) (*exec.Cmd, io.Reader) {
	t.Helper()
	server := exec.CommandContext(t.Context(), "deepwork", "serve", "--path", t.TempDir())
	stdin, err := server.StdinPipe()
	must(t, err)
	t.Cleanup(func() { stdin.Close() })
	_, log := startServer(t, server)
	return server, log
}

// However much hangs, a server that a signal asked to end is gone before a client that
// sent it loses patience: containers are killed after 10 s.
func TestReq005_AStopIsOverInTime(t *testing.T) {
	if worst := web.StopTime + stopTimeout; worst >= 10*time.Second {
		t.Errorf("an HTTP server takes up to %v to stop", worst)
	}
}
