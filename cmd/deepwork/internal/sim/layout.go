//go:build unix

package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// layOut makes the project, and says which servers there are.
func (w *world) layOut(ctx context.Context) error {
	job := w.project(".deepwork", "jobs", "sim")
	if err := os.MkdirAll(job, 0o755); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(job, "job.yml"), []byte(jobText("first")), 0o644)
	if err == nil {
		err = os.WriteFile(filepath.Join(job, "do.md"), []byte("Do it.\n"), 0o644)
	}
	if err == nil {
		err = w.startSource()
	}
	if err == nil {
		err = w.layOutBoard(ctx)
	}
	// Up to three servers, the first over stdio, so that each kind is there.
	for n := range 1 + w.random.IntN(3) {
		w.servers = append(w.servers, newServer(n, n > 0 && w.random.IntN(3) > 0 || n == 0 && w.random.IntN(4) == 0))
	}
	return err
}

// layOutBoard makes the project a repository, with agents and a source of
// workflows in its config.
func (w *world) layOutBoard(ctx context.Context) error {
	script := filepath.Join(w.o.Dir, "agent.sh")
	config := boardConfig(script, w.agentLog()) + runsConfig(w.sourceAddress)
	for path, text := range map[string]string{script: agentScript, w.project("README"): "A project.\n", w.project(".deepwork", "config.yml"): config} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "README"}, {"commit", "-q", "-m", "first"}} {
		if _, err := w.git(ctx, args...); err != nil {
			return err
		}
	}
	// It is not the repository's.
	return os.WriteFile(w.project(".git", "info", "exclude"), []byte("/.deepwork/\n"), 0o644)
}

// jobText is the job of all workflows; edits of it change nothing but its summary.
func jobText(summary string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: sim\nversion: \"1.0.0\"\nsummary: %s\ncommon_job_info_provided_to_all_steps_at_runtime: Info\nworkflows:\n", summary)
	for _, name := range []string{"chain", "groups", "fork", "short"} {
		var entries []string
		for _, e := range workflows[name] {
			entries = append(entries, "["+strings.Join(e, ", ")+"]")
		}
		fmt.Fprintf(&b, "  - {name: %s, summary: W, steps: [%s]}\n", name, strings.Join(entries, ", "))
	}
	b.WriteString("steps:\n")
	for _, id := range stepNames {
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: do.md, outputs: {}, reviews: []}\n", id)
	}
	return b.String()
}
