//go:build unix

package sim

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/session/attempt/runner"
)

// alive looks that no agent goes on.
func (a *audit) alive() error {
	dirs, err := a.runDirs()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if alive, err := runner.Alive(dir); err != nil || alive {
			a.history.fault("an agent goes on in %s (%v)", dir, err)
		}
	}
	return nil
}

// work looks that nothing is lost of what agents have written, that the main
// checkout is as it was, and that the repository is whole.
func (a *audit) work(ctx context.Context) error {
	kept := map[string]bool{}
	there, err := filepath.Glob(a.project(".deepwork", "worktrees", "*", "*", "work-*"))
	if err != nil {
		return err
	}
	for _, path := range there {
		kept[filepath.Base(path)] = true
	}
	refs, err := a.git(ctx, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return err
	}
	for ref := range strings.FieldsSeq(refs) {
		names, err := a.git(ctx, "ls-tree", "-r", "--name-only", ref)
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(names) {
			kept[name] = true
		}
		if strings.HasPrefix(ref, "refs/deepwork/rescue/") {
			a.result.Rescues++
		}
	}
	for _, token := range slices.Sorted(maps.Keys(a.did.wrote)) {
		if !kept[work(token)] {
			a.history.fault("what an agent has written for %s is lost: it is in no worktree, on no branch and in no rescue", token)
		}
	}
	if said, err := a.git(ctx, "status", "--porcelain"); err != nil || said != "" {
		a.history.fault("the main checkout is changed: %v\n%s", err, said)
	}
	if said, err := a.git(ctx, "fsck", "--no-dangling", "--no-progress"); err != nil || strings.Contains(said, "missing") {
		a.history.fault("git fsck: %v\n%s", err, said)
	}
	return nil
}

func (w *world) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=Sim", "-c", "user.email=sim@example.com"}, args...)...)
	cmd.Dir = w.project()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (w *world) agentLog() string { return filepath.Join(w.o.Dir, "agents") }

// runDirs are the folders of all runs of agents.
func (w *world) runDirs() ([]string, error) {
	return filepath.Glob(w.project(".deepwork", "logs", "attempts", "*", "runs", "*"))
}

// endAgents ends what agents an error of the simulation has left.
func (w *world) endAgents() {
	dirs, err := w.runDirs()
	if err != nil {
		return // the pattern is well formed
	}
	for _, dir := range dirs {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if p, err := new(runner.Runner).Find(ctx, dir); err == nil {
			if _, err := p.Stop(ctx, 0); err != nil {
				w.history.fault("an agent goes on: %v", err)
			}
		}
		cancel()
	}
}
