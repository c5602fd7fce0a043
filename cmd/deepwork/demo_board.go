package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The task of the demo's board, and its file before and after.
const (
	demoTask    = "Make the greeting friendlier"
	demoHello   = "Hello.\n"
	demoWelcome = "Hello, and welcome!\n"
)

// The lines that are printed of the board's commands: of start how the agent worked, of diff the changed lines.
var (
	shownOfAll   = regexp.MustCompile(``)
	shownOfStart = regexp.MustCompile(`^(branch|output|state)`)
	shownOfDiff  = regexp.MustCompile(`^[-+]`)
)

// workOnTask puts a task on the board of a git repository, has an agent do it in a worktree, and merges its work.
func (d *demo) workOnTask(ctx context.Context) (err error) {
	if _, err := exec.LookPath("git"); err != nil {
		d.say("git is not installed here, so this part is left out.")
		return nil
	}
	project, err := d.layOut("website", "CODER")
	if err != nil {
		return err
	}
	file := filepath.Join(project, "greeting.txt")
	if err := os.WriteFile(file, []byte(demoHello), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "A website"}} {
		if _, err := d.git(ctx, project, args...); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil { // its agent may go on after the command
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_ = d.deepwork(bounded, project, "board", "stop", "latest").Run() // fails if none was started
		}
	}()
	if err := d.command(ctx, project, shownOfAll, "board", "add", demoTask); err != nil {
		return err
	}
	if err := d.command(ctx, project, shownOfStart, "board", "start", "latest", "--executor", "CODER"); err != nil {
		return err
	}
	if err := d.holds("the agent leaves the files of the user as they are", file, demoHello); err != nil {
		return err
	}
	d.say("You read what it changed, and merge it.")
	if err := d.command(ctx, project, shownOfDiff, "board", "diff", "latest"); err != nil {
		return err
	}
	if err := d.command(ctx, project, shownOfAll, "board", "merge", "latest"); err != nil {
		return err
	}
	return errors.Join(d.holds("the merge changes the file of the user", file, demoWelcome), d.checkTask(ctx, project))
}

// holds checks the content of a file.
func (d *demo) holds(what, file, want string) error {
	got, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if strings.ReplaceAll(string(got), "\r\n", "\n") != want { // git may have checked it out for Windows
		return fmt.Errorf("this does not hold: %s: it has %q", what, got)
	}
	d.claims++
	return nil
}

// checkTask checks the task, and that git has its branch merged and the project's files unchanged.
func (d *demo) checkTask(ctx context.Context, project string) error {
	task, err := d.deepwork(ctx, project, "board", "show", "latest", "--json").Output()
	if err != nil {
		return fmt.Errorf("deepwork board show: %w", err)
	}
	branch := strings.Trim(string(lookup(task, "attempts.*.workspace_branch")), `[]"`)
	_, unmerged := d.git(ctx, project, "merge-base", "--is-ancestor", branch, "main")
	changes, err := d.git(ctx, project, "status", "--porcelain")
	if err = errors.Join(unmerged, err); err != nil || changes != "" {
		return fmt.Errorf("this does not hold: the branch is merged, and nothing else is changed: %q: %w", changes, err)
	}
	d.claims++
	return errors.Join(
		d.check(task, claim{"the task is done", "status", `"done"`}),
		d.check(task, claim{"its one agent completed", "attempts.*.state", `["completed"]`}),
		d.check(task, claim{"it worked in a worktree", "attempts.*.repos.*.worktree_path", "~worktrees"}),
	)
}

// git runs git as the demo's user.
func (d *demo) git(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir, c.Env = dir, d.environ()
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// demoCoder does the demo's task in the current folder, which is a worktree, and commits.
func (a *app) demoCoder(ctx context.Context, prompt io.Reader) error {
	told, err := io.ReadAll(prompt)
	if err != nil {
		return err
	}
	if !strings.Contains(string(told), demoTask) {
		return fmt.Errorf("the prompt is not the task %q: %s", demoTask, told)
	}
	if err := os.WriteFile("greeting.txt", []byte(demoWelcome), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "git", "commit", "-q", "-a", "-m", demoTask).CombinedOutput(); err != nil {
		return fmt.Errorf("git commit: %w: %s", err, out)
	}
	fmt.Fprintln(a.out, "I have made the greeting friendlier, and committed it.")
	return nil
}
