package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newDemo lays out the demo's project in the test's directory.
func newDemo(t *testing.T) *demo {
	t.Helper()
	self, err := exec.LookPath("deepwork")
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{out: t.Output(), dir: t.TempDir(), self: self}
	if err := copyTree(demoFiles, "demo/jobs", filepath.Join(d.dir, ".deepwork", "jobs")); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDemoFails breaks what the demo is about to say: it must not go on.
func TestDemoFails(t *testing.T) {
	d := newDemo(t)
	if err := os.WriteFile(filepath.Join(d.dir, ".deepwork", "jobs", "fact_check", "job.yml"), []byte("name: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := d.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "this does not hold: no job is broken") {
		t.Errorf("run = %v, want a claim that does not hold", err)
	}
	if d.server.command.ProcessState == nil {
		t.Error("the server was left running")
	}
}

// TestDemoInterrupted interrupts the demo halfway: no server is left.
func TestDemoInterrupted(t *testing.T) {
	d := newDemo(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.out = writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("== 5.")) {
			cancel()
		}
		return len(p), nil
	})
	if err := d.run(ctx); err == nil {
		t.Error("run succeeded though it was interrupted")
	}
	if d.server.command.ProcessState == nil {
		t.Error("the server was left running")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
