package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/session/state"
)

// prepare lays out the newsletter's project.
func (d *demo) prepare() error {
	project, err := d.layOut("newsletter", "")
	if err != nil {
		return err
	}
	return copyTree(demoFiles, "demo/jobs", filepath.Join(project, ".deepwork", "jobs"))
}

// layOut makes a project whose agents and reviewers are this program, which the demo's own user approves. executor
// names its agent; "" means none.
func (d *demo) layOut(name, executor string) (project string, err error) {
	project = filepath.Join(d.dir, name)
	settings := fmt.Sprintf("quality_gate: {agent_review_command: %q}\n", "'"+d.self+"' demo reviewer")
	if executor != "" {
		command, err := json.Marshal([]string{d.self, "demo", strings.ToLower(executor)})
		if err != nil {
			return "", err
		}
		settings += fmt.Sprintf("executors: {%s: {command: %s}}\nattempts: {done_when_merged: true}\n", executor, command)
	}
	var trusted []string
	for _, p := range []string{"newsletter", "website", "almanac"} {
		trusted = append(trusted, filepath.Join(d.dir, p))
	}
	folders, err := json.Marshal(trusted)
	return project, errors.Join(err,
		writeAll(filepath.Join(project, ".deepwork", "config.yml"), settings),
		writeAll(filepath.Join(d.own(), "deepwork", "config.yml"), fmt.Sprintf("trusted_folders: %s\n", folders)),
		writeAll(filepath.Join(d.own(), "gitconfig"), "[user]\n\tname = Demo\n\temail = demo@example.com\n"),
	)
}

// writeAll writes a file in a folder that may not exist.
func writeAll(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

// own is the folder of the demo's user.
func (d *demo) own() string { return filepath.Join(d.dir, "own") }

// environ is the environment of the demo's processes: nothing of the real user's settings and state changes what it
// shows, and it changes none of them.
func (d *demo) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "DEEPWORK_") || strings.HasPrefix(entry, "GIT_")
	})
	env = append(env, "XDG_CONFIG_HOME="+d.own(), "APPDATA="+d.own(), state.Env+"="+filepath.Join(d.own(), "state"),
		"GIT_CONFIG_GLOBAL="+filepath.Join(d.own(), "gitconfig"), "GIT_CONFIG_NOSYSTEM=1")
	if width := d.out.Width(); width > 0 {
		env = append(env, "COLUMNS="+strconv.Itoa(max(width-len(commandIndent)-1, 1)))
	}
	return env
}

// commandIndent precedes what a command prints.
const commandIndent = "   "

// deepwork returns a command of this program in a project. It is interrupted when the context ends.
func (d *demo) deepwork(ctx context.Context, project string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, d.self, args...)
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, 10*time.Second
	c.Dir, c.Env = project, d.environ()
	apart(c) // Ctrl-C interrupts it through the context alone: a second signal would kill it before its agents have ended
	return c
}

// command runs a command of this program as a person does, and prints it with those of its lines that show matches.
func (d *demo) command(ctx context.Context, project string, show *regexp.Regexp, args ...string) error {
	line := "$ deepwork"
	for _, arg := range args {
		if strings.Contains(arg, " ") {
			arg = strconv.Quote(arg)
		}
		line += " " + arg
	}
	typed(d.out, line)
	var said strings.Builder
	run := d.deepwork(ctx, project, args...)
	run.Stderr = &said
	out, err := run.StdoutPipe()
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if show.Match(lines.Bytes()) {
			d.out.Text(commandIndent, lines.Text())
		}
	}
	if err := errors.Join(lines.Err(), run.Wait()); err != nil {
		return fmt.Errorf("deepwork %s: %w: %s", args[0], err, said.String())
	}
	return nil
}
