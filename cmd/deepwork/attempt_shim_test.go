package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/session/attempt/runner"
)

// The command that servers start is the one that runs an agent.
func TestAttemptShim(t *testing.T) {
	self, err := exec.LookPath("deepwork")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	r := runner.Runner{Shim: []string{self, runner.ShimCommand}}
	p, err := r.Start(ctx, runner.Spec{
		Dir: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log"), Work: dir,
		Command: []string{self, "version"},
	})
	must(t, err)
	e, err := p.Wait(ctx)
	if err != nil || e.Code != 0 || e.NotStarted != "" || !strings.HasPrefix(e.FinalMessage, "deepwork ") {
		t.Errorf("%+v, %v", e, err)
	}
}
