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
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/state"
)

// demoPages are the steps of the almanac that run at the same time.
var demoPages = []string{"weather", "garden", "kitchen"}

// leadWriters has `deepwork run` lead agents through the almanac, in a project of its own with a user's config and
// a state folder of its own, since agents need an approval.
func (d *demo) leadWriters(ctx context.Context) error {
	project, own := filepath.Join(d.dir, "almanac"), filepath.Join(d.dir, "own")
	job := filepath.Join(project, ".deepwork", "jobs", "almanac")
	if err := copyTree(demoFiles, "demo/almanac", job); err != nil {
		return err
	}
	command, err := json.Marshal([]string{d.self, "demo", "writer"})
	if err != nil {
		return err
	}
	settings := fmt.Sprintf("executors: {WRITER: {command: %s}}\nquality_gate: {agent_review_command: %q}\n", command, "'"+d.self+"' demo reviewer")
	if err := os.WriteFile(filepath.Join(project, ".deepwork", "config.yml"), []byte(settings), 0o644); err != nil {
		return err
	}
	users := filepath.Join(own, "deepwork", "config.yml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(users), 0o700), os.WriteFile(users, fmt.Appendf(nil, "trusted_folders: [%q]\n", project), 0o600)); err != nil {
		return err
	}
	deepwork := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, d.self, append(append([]string{"run"}, args...), "--json", "--path", project)...)
		c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, 10*time.Second
		c.Env = append(os.Environ(), config.JobsFoldersEnv+"=", config.StoreEnv+"=", "XDG_CONFIG_HOME="+own, "APPDATA="+own, state.Env+"="+filepath.Join(own, "state"))
		return c
	}
	fmt.Fprint(d.out, "-> deepwork run almanac/month --goal \"The almanac of November\" --executor WRITER\n")
	if err := d.follow(deepwork("almanac/month", "--goal", "The almanac of November", "--executor", "WRITER")); err != nil {
		return err
	}
	data, err := deepwork("status", "latest").Output()
	if err != nil {
		return fmt.Errorf("deepwork run status: %w", err)
	}
	var r attempt.RunReply
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	return d.checkRun(project, &r)
}

// follow runs deepwork run, and prints its events as they come.
func (d *demo) follow(run *exec.Cmd) error {
	var said strings.Builder
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
		var e runEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue
		}
		text := e.State
		if e.StepID != nil && e.Event != "run_ended" {
			text = fmt.Sprintf("%-8s %s%s", *e.StepID, e.State, spent(e))
		}
		fmt.Fprintf(d.out, "<- %s: %s\n", e.Event, text)
		if e.Message != nil {
			fmt.Fprintf(d.out, "      %q\n", oneLine(*e.Message, replyWidth))
		}
	}
	if err := errors.Join(lines.Err(), run.Wait()); err != nil {
		return fmt.Errorf("deepwork run: %w: %s", err, said.String())
	}
	return nil
}

// checkRun checks what the run is said to do.
func (d *demo) checkRun(project string, r *attempt.RunReply) error {
	almanac, err := os.ReadFile(filepath.Join(project, "almanac.md"))
	if err != nil {
		return err
	}
	if len(r.Steps) != len(demoPages)+1 {
		return fmt.Errorf("this does not hold: each step has one agent: %d have worked", len(r.Steps))
	}
	began, ended, pages := "", "~", 0 // the last begin and the first end of a page
	corrected := false
	last := r.Steps[len(demoPages)]
	for _, x := range r.Steps[:len(demoPages)] {
		began, ended = max(began, sortable(x.StartedAt)), min(ended, sortable(x.EndedAt))
		corrected = corrected || x.StepID == "garden" && strings.Contains(optional(x.FinalMessage), "Add a tip")
		if strings.Contains(string(almanac), demoText(x.StepID)) && sortable(x.EndedAt) <= sortable(last.StartedAt) {
			pages++
		}
	}
	for _, c := range []struct {
		what  string
		holds bool
	}{
		{"three agents write at the same time", began < ended},
		{"the agent of the garden corrects its page", corrected},
		{"the pages are bound when all are done", last.StepID == "bind" && pages == len(demoPages)},
		{"the run is complete", r.State == string(attempt.RunComplete)},
	} {
		if !c.holds {
			return fmt.Errorf("this does not hold: %s: %+v", c.what, r)
		}
		d.claims++
	}
	fmt.Fprintf(d.out, "   (almanac.md has %d lines, of three pages)\n", strings.Count(string(almanac), "\n"))
	return nil
}

// sortable returns a time of a run so that the order of texts is that of the times.
func sortable(stamp *string) string {
	at, err := time.Parse(time.RFC3339Nano, optional(stamp))
	if err != nil {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000000")
}
