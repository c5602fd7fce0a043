package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"deepwork/session/board"
)

// The task of the demo's board, and its file before and after.
const (
	demoTask    = "Make the greeting friendlier"
	demoHello   = "Hello.\n"
	demoWelcome = "Hello, and welcome!\n"
)

// The lines that are printed of commands: of board start how the agent worked, of board diff the changed lines,
// of run those about steps and how it ended.
var (
	shownOfAll   = regexp.MustCompile(``)
	shownOfStart = regexp.MustCompile(`^(branch|output|state)`)
	shownOfDiff  = regexp.MustCompile(`^[-+]`)
	shownOfRun   = regexp.MustCompile(`WRITER|^state:`)
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
	if err := os.WriteFile(filepath.Join(project, "greeting.txt"), []byte(demoHello), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "A website"}} {
		c := exec.CommandContext(ctx, "git", args...)
		c.Dir, c.Env = project, d.environ()
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
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
	d.say("You read what it changed, and merge it.")
	if err := d.command(ctx, project, shownOfDiff, "board", "diff", "latest"); err != nil {
		return err
	}
	return d.command(ctx, project, shownOfAll, "board", "merge", "latest")
}

// leadWriters has `deepwork run` lead agents through the almanac.
func (d *demo) leadWriters(ctx context.Context) error {
	project, err := d.layOut("almanac", "WRITER")
	if err != nil {
		return err
	}
	if err := copyTree(demoFiles, "demo/almanac", filepath.Join(project, ".deepwork", "jobs", "almanac")); err != nil {
		return err
	}
	if err := d.command(ctx, project, shownOfRun, "run", "almanac/month", "--goal", "November", "--executor", "WRITER"); err != nil {
		return err
	}
	data, err := d.deepwork(ctx, project, "run", "status", "latest", "--json").Output()
	if err != nil {
		return fmt.Errorf("deepwork run status: %w", err)
	}
	var r board.RunReply
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	if i := slices.IndexFunc(r.Steps, func(x board.RunStep) bool { return x.StepID == "garden" }); i >= 0 {
		d.out.Text("", fmt.Sprintf("   (garden: %q)", optional(r.Steps[i].FinalMessage)))
	}
	return nil
}
