package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
)

// An aState is how a project gets an attempt or a run in a state, and the commands that are then offered for it.
type aState struct {
	run     bool
	orders  string // to the agent
	budget  []string
	then    func(p *runProject)
	state   string
	offered string // the commands, without ids
}

// sh runs a command line in the project, as a person who has copied it.
func (p *runProject) sh(line string) (out string, code int) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", line)
	cmd.Dir = p.root
	cmd.Env = append(os.Environ(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=", "GIT_CONFIG_NOSYSTEM=1", "EDITOR=true")
	said, _ := cmd.CombinedOutput() // its exit code says whether it failed
	return string(said), cmd.ProcessState.ExitCode()
}

// made is a project with an attempt or a run in a state.
func (s aState) made(t *testing.T) *runProject {
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	path := filepath.Join(p.root, ".deepwork", "config.yml")
	text := string(testkit.Get(os.ReadFile(path)).Must(t))
	testkit.Write(t, path, strings.Replace(text, "executors:\n", "executors:\n  CODER: {command: [coder, first], resume: [coder, resumed]}\n", 1))
	p.inGit()
	if s.run {
		p.plan(strings.Split(s.orders, "\n")...)
		r := p.begin(s.budget...)
		if s.state == "interrupted" {
			p.awaits("a", 1)
			must(t, r.cmd.Process.Kill())
		}
		_ = r.cmd.Wait()
		p.plan() // the next agent does what it should
	} else {
		p.sh(fmt.Sprintf("deepwork board add 'Add a basket' --description '%s'; deepwork board start latest --executor CODER", strings.ReplaceAll(s.orders, "DIR", p.dir)))
	}
	if s.then != nil {
		s.then(p)
	}
	return p
}

var (
	aCommand  = regexp.MustCompile(`deepwork (board|run) [^('\n]*`)
	anID      = regexp.MustCompile(` [0-9a-f]{8}\b`)
	onlyReads = regexp.MustCompile(`^deepwork board (diff|show|tail) `)
)

// offers are the commands that the program prints for the only attempt.
func (p *runProject) offers() (all []string) {
	for _, line := range []string{"deepwork board", "deepwork board show latest", "deepwork run status latest"} {
		out, _ := p.sh(line)
		for _, command := range aCommand.FindAllString(out, -1) {
			if command = strings.TrimSpace(command); !slices.Contains(all, command) && !strings.HasPrefix(out, "Nothing") {
				all = append(all, command)
			}
		}
	}
	return all
}

// Every command that is offered for an attempt or a run, in any state, works as it is printed, and the state is
// called the same in all places.
func TestField14_EveryNextWorks(t *testing.T) {
	t.Parallel()
	conflict := func(p *runProject) {
		testkit.Write(p.t, filepath.Join(p.root, "a.txt"), "of a person\n")
		testkit.Git(p.t, p.root, "add", "a.txt")
		testkit.Git(p.t, p.root, "commit", "-q", "-m", "a")
		p.sh("deepwork board merge latest")
	}
	merged := func(p *runProject) { p.sh("deepwork board merge latest") }
	for name, s := range map[string]aState{
		"completed, committed":       {false, "! write a.txt hello\n! commit a", nil, nil, "completed", "board diff,board merge,board send"},
		"completed, not committed":   {false, "! write a.txt hello", nil, nil, "completed", "board diff,board merge --commit,board send"},
		"completed, nothing changed": {false, "! say done", nil, nil, "completed", "board diff,board done,board send"},
		"failed":                     {false, "! script DIR/ok", nil, func(p *runProject) { testkit.Write(p.t, filepath.Join(p.dir, "ok"), "say fine") }, "failed", "board send,board start,board tail"},
		"conflicts":                  {false, "! write a.txt hello\n! commit a", nil, conflict, "conflicts", "board merge --abort,board send,board show"},
		"merged":                     {false, "! write a.txt hello\n! commit a", nil, merged, "merged", ""},
		"run completed":              {true, "a finish", nil, nil, "completed", "board diff,board merge --commit"},
		"run failed":                 {true, "a exit 3", nil, nil, "failed", "run resume"},
		"run interrupted":            {true, "a await never", nil, nil, "interrupted", "run resume"},
		"run paused":                 {true, "a finish", []string{"--max-unknown", "0"}, nil, "paused", "run resume"},
		"run stopped": {true, "a exit 3", nil, func(p *runProject) {
			p.plan("a await never")
			r := p.resume()
			p.awaits("a", 2)
			p.sh("deepwork run stop latest")
			_ = r.cmd.Wait()
			p.plan()
		}, "stopped", "run resume"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.made(t)
			offered := p.offers()
			for _, where := range []string{"deepwork board tasks", "deepwork board show latest"} {
				out, _ := p.sh(where)
				testkit.Contains(t, out, s.state, where)
			}
			var kinds []string
			for _, command := range offered {
				kind, _, _ := strings.Cut(anID.ReplaceAllString(command, "\x00"), "\x00")
				kinds = append(kinds, strings.TrimPrefix(kind, "deepwork "))
			}
			slices.Sort(kinds)
			testkit.Equal(t, strings.Join(slices.Compact(kinds), ","), s.offered, "what is offered")
			changed := false
			for i, command := range offered {
				if changed {
					p = s.made(t)
					if now := p.offers(); i < len(now) {
						command = now[i]
					}
				}
				changed = !onlyReads.MatchString(command)
				out, code := p.sh(command)
				testkit.True(t, code == 0, "%s: exit code %d\n%s", command, code, out)
			}
		})
	}
}

// The user is not told to ask the user.
func TestField18_TheUserIsAddressed(t *testing.T) {
	asked := []config.Asked{{Key: config.AgentsKey, Text: "CODER"}}
	for _, w := range []*config.Withheld{{Asked: asked}, {Asked: asked, Denied: true}, {Asked: asked, Fault: "it is a link"}} {
		refused := session.Untrusted("/p", &config.Approval{Withheld: w}, config.AgentsKey)
		if said := forPeople(fmt.Errorf("resuming it: %w", refused)).Error(); !regexp.MustCompile("[Yy]ou (have not approved|denied) .*[Rr]un|with `deepwork trust --path /p` in a terminal").MatchString(said) || strings.Contains(said, "the user") || strings.Contains(said, "The user") || strings.Contains(said, "call") {
			t.Error(said)
		}
	}
	testkit.Equal(t, forPeople(session.Changed("/p", errors.New("it is new"))).Error(),
		"This would run a program that has changed since you approved it: it is new. Nothing was run or changed. Review it and run `deepwork trust --path /p` in a terminal, then try again.")
}
