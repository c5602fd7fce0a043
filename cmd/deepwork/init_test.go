package main

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
)

// TestConfigTemplate takes the comment signs off every key of the config that
// init writes: what people uncomment must be legal.
func TestConfigTemplate(t *testing.T) {
	template, err := templates.ReadFile("template/config.yml")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`^( *)(?:- )?\{?([A-Za-z_]+):\s`)
	var text strings.Builder
	found := map[string]bool{}
	for line := range strings.Lines(string(template)) {
		if bare, ok := strings.CutPrefix(line, "# "); ok && key.MatchString(bare) {
			line = bare
		}
		if m := key.FindStringSubmatch(line); m != nil {
			found[m[2]] = true
		}
		text.WriteString(line)
	}
	if _, faults := config.Parse("config.yml", []byte(text.String())); len(faults) > 0 {
		t.Errorf("%v\nin\n%s", faults, text.String())
	}
	for _, name := range []string{
		"version", "platforms", "quality_gate", "agent_review_command", "default_timeout", "default_max_attempts",
		"max_concurrent_reviews", "reply_within", "max_inline_files", "override", "pin", "git", "branch", "toolsets",
		"workflow_tools", "enabled", "include", "exclude", "prefix", "refresh_interval", "execution_timeout", "status_interval",
		"max_concurrent_executions", "keep_tools_for", "retry_attempts", "expose_jobs", "sources", "url", "headers",
		"projects", "repos", "executors", "command", "prompt", "resume", "env", "variants", "attempts", "max_concurrent", "max_cost_usd", "max_unknown", "auto_start", "worktrees", "copy", "setup",
	} {
		if !found[name] {
			t.Errorf("the template has no key %s", name)
		}
	}
	c, faults := config.Parse("config.yml", template)
	if len(faults) > 0 || c.QualityGate.AgentReviewCommand != nil || c.Git.Branch != config.BranchName || c.Toolsets != nil {
		t.Errorf("as it is laid out it is not the defaults: %+v, %v", c, faults)
	}
}

// TestLaidOutJobs checks every job that this package lays out, with the files it
// names, and newsletter also as the demo edits it.
func TestLaidOutJobs(t *testing.T) {
	root := t.TempDir()
	jobs := filepath.Join(root, ".deepwork", "jobs")
	for dir, fsys := range map[string]fs.FS{"template/jobs": templates, "demo/jobs": demoFiles} {
		if err := copyTree(fsys, dir, jobs); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string) *job.Job {
		t.Helper()
		j, faults := job.Load(filepath.Join(jobs, name))
		if j == nil {
			t.Fatal(faults)
		}
		for _, d := range append(job.CheckFiles(j), j.Warnings...) {
			t.Errorf("%s: %v", name, d)
		}
		return j
	}
	check("release_notes")
	check("fact_check")
	if check("newsletter").Step("proofread") != nil {
		t.Error("newsletter has the step that the demo adds")
	}
	if err := (&demo{dir: root}).editJob(t.Context()); err != nil {
		t.Fatal(err)
	}
	if check("newsletter").Step("proofread") == nil {
		t.Error("the edited newsletter lacks the step that the demo adds")
	}
}

// A name is shown on one line.
func TestInitInAFolderWithALineBreakInItsName(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such names there")
	}
	root := filepath.Join(t.TempDir(), "a\ncreated  b\x1b")
	writeFiles(t, root, map[string]string{".mcp.json": "[]"})
	out, err := exec.Command("deepwork", "init", "--path", root).CombinedOutput()
	if err != nil || strings.Contains(string(out), "\ncreated  b") || strings.Count(string(out), `/a\ncreated  b\u001b/`) != 6 {
		t.Errorf("%v: %s", err, out)
	}
}
