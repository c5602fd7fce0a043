package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestBoardExample is an example of executors with every key that
// there is.
func TestBoardExample(t *testing.T) {
	c := parsed(t, `
executors:
  SCRIPTED:
    command: [./agent.sh, --work]
    prompt: stdin
    resume: [./agent.sh, --resume]
    env: {MODE: quick, RETRIES: 3, EMPTY: "", LOUD: true}
    variants:
      PLAN: {command: [./agent.sh, --plan]}
      FAST: {prompt: argument, resume: "./agent.sh --again 'in one'", env: {MODE: fast}}
  A2_: {command: agent --print}
  CODEX:
  OPENCODE: {variants: {MAX: {env: {X: y}}}}
projects:
  - name: shop
    repos:
      - {name: web, path: ../web, copy: [.env, config/local.yml], setup: [make, deps]}
      - {path: ../../api/}
      - {path: 'C:\src\tools', setup: "npm ci"}
  - {name: Läden und mehr, repos: [{name: Web, path: /srv/web}]}
attempts:
  max_concurrent: 9
  machine_lost_after: 15m
  done_when_merged: true
  push_to: origin
  worktrees: ../trees
  copy: [.env]
  setup: make deps
`)
	wantExecutors := []Executor{
		{
			Name: "SCRIPTED", Command: []string{"./agent.sh", "--work"}, Prompt: PromptStdin,
			Resume: []string{"./agent.sh", "--resume"},
			Env:    map[string]string{"MODE": "quick", "RETRIES": "3", "EMPTY": "", "LOUD": "true"},
			Variants: []Variant{
				{Name: "PLAN", Command: []string{"./agent.sh", "--plan"}},
				{Name: "FAST", Prompt: PromptArgument, Resume: []string{"./agent.sh", "--again", "in one"}, Env: map[string]string{"MODE": "fast"}},
			},
		},
		{Name: "A2_", Command: []string{"agent", "--print"}},
		{Name: "CODEX"},
		{Name: "OPENCODE", Variants: []Variant{{Name: "MAX", Env: map[string]string{"X": "y"}}}},
	}
	if !reflect.DeepEqual(c.Executors, wantExecutors) {
		t.Errorf("executors\n%+v, want\n%+v", c.Executors, wantExecutors)
	}
	wantProjects := []Project{
		{Name: "shop", Repos: []Repo{
			{Name: "web", Path: "../web", Copy: []string{".env", "config/local.yml"}, Setup: []string{"make", "deps"}},
			{Name: "api", Path: "../../api/"},
			{Name: "tools", Path: `C:\src\tools`, Setup: []string{"npm", "ci"}},
		}},
		{Name: "Läden und mehr", Repos: []Repo{{Name: "Web", Path: "/srv/web"}}},
	}
	if !reflect.DeepEqual(c.Projects, wantProjects) {
		t.Errorf("projects\n%+v, want\n%+v", c.Projects, wantProjects)
	}
	want := Attempts{MaxConcurrent: 9, Worktrees: "../trees", Copy: []string{".env"}, Setup: []string{"make", "deps"}, MachineLostAfter: 15 * time.Minute, DoneWhenMerged: true, PushTo: "origin"}
	if !reflect.DeepEqual(c.Attempts, want) {
		t.Errorf("attempts %+v, want %+v", c.Attempts, want)
	}
}

func TestBoardDefaults(t *testing.T) {
	for _, source := range []string{
		"", "projects:\nexecutors:\nattempts:\n", "projects: []\nexecutors: {}\nattempts: {}",
		"attempts: {max_concurrent: , worktrees: ~, copy: , setup: }", "attempts: {setup: []}",
	} {
		c, faults := Parse("config.yml", []byte(source))
		if faults != nil || !reflect.DeepEqual(c, Default()) {
			t.Errorf("%q: %+v %v", source, c, faults)
		}
	}
	if d := Default().Attempts; d.MaxConcurrent != 4 || d.Worktrees != "" || d.Copy != nil || d.Setup != nil {
		t.Errorf("defaults are %+v", d)
	}
}

func TestBoardFaults(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		want   []string // each diagnostic, or its beginning
	}{
		"all at once": {
			"projects:\n  - {name: a, repos: [{path: ''}, {name: x/y, path: z, copi: []}]}\n  - {name: a}\nexecutors:\n  codex: {comand: x}\n  B: {prompt: file}\nattempts: {max_concurrent: 0}\n",
			[]string{
				`config.yml:2:30: projects[0].repos[0].path: is blank`,
				`config.yml:2:42: projects[0].repos[1].name: "x/y" cannot be the name of a folder`,
				`config.yml:2:56: projects[0].repos[1].copi: unknown key; did you mean copy?`,
				`config.yml:3:5: projects[1]: has no repos; expected at least one`,
				`config.yml:3:12: projects[1].name: "a" is the name of the project in line 2 too`,
				`config.yml:5:3: executors.codex: "codex" is not the name of an executor, which is of upper-case letters, digits and '_', as in CLAUDE_CODE`,
				`config.yml:5:11: executors.codex.comand: unknown key; did you mean command?`,
				`config.yml:6:15: executors.B.prompt: "file" is not one of stdin, argument`,
				`config.yml:7:28: attempts.max_concurrent: is a number (0); expected a whole number from 1 to 10000`,
			},
		},
		"project of nothing":  {"projects: [{}]", []string{`config.yml:1:12: projects[0]: has no name`, `config.yml:1:12: projects[0]: has no repos`}},
		"control in a name":   {`projects: [{name: "a\tb", repos: [{path: x}]}]`, []string{`config.yml:1:19: projects[0].name: "a\tb" has a control character in it`}},
		"NUL in a path":       {`projects: [{name: a, repos: [{path: "a\0b"}]}]`, []string{`config.yml:1:37: projects[0].repos[0].path: has a NUL byte in it`}},
		"repo without a path": {"projects: [{name: a, repos: [{name: x}]}]", []string{`config.yml:1:30: projects[0].repos[0]: has no path`}},
		"no name of a path":   {"projects: [{name: a, repos: [{path: ../..}]}]", []string{`config.yml:1:30: projects[0].repos[0]: has no name, and none can be had from the path "../..": give it one`}},
		"two repos of a name": {"projects: [{name: a, repos: [{path: x/web}, {path: Web}]}]", []string{`config.yml:1:45: projects[0].repos[1]: the name "Web" is that of the project's repo 1 too: give one of them another`}},
		"copy from outside": {
			"attempts: {copy: [../x, /etc/passwd, ., a/b]}",
			[]string{
				`config.yml:1:19: attempts.copy[0]: "../x" is not a file of the repository`,
				`config.yml:1:25: attempts.copy[1]: "/etc/passwd" is not a file of the repository`,
				`config.yml:1:38: attempts.copy[2]: "." is not a file of the repository`,
			},
		},
		"copy no list":     {"attempts: {copy: .env}", []string{`config.yml:1:18: attempts.copy: is a text (".env"); expected a list of files`}},
		"push_to a URL":    {"attempts: {push_to: 'https://example.com/x'}", []string{`config.yml:1:21: attempts.push_to: "https://example.com/x" is not the name of a remote`}},
		"worktrees blank":  {"attempts: {worktrees: ' '}", []string{`config.yml:1:23: attempts.worktrees: is blank`}},
		"no command":       {"executors: {MINE: {prompt: stdin}}", []string{`config.yml:1:13: executors.MINE: has no command, which only CLAUDE_CODE, CODEX, CURSOR_AGENT, GEMINI, OPENCODE need not have`}},
		"nearly known":     {"executors: {CLAUDE_COD: }", []string{`config.yml:1:13: executors.CLAUDE_COD: has no command, which only CLAUDE_CODE, CODEX, CURSOR_AGENT, GEMINI, OPENCODE need not have; did you mean CLAUDE_CODE?`}},
		"empty command":    {"executors: {CODEX: {command: []}}", []string{`config.yml:1:30: executors.CODEX.command: is empty; expected a program with its arguments`}},
		"blank command":    {"executors: {CODEX: {resume: ''}}", []string{`config.yml:1:29: executors.CODEX.resume: is empty; expected a program with its arguments`}},
		"shell":            {"executors: {CODEX: {command: a | b}}", []string{`config.yml:1:30: executors.CODEX.command: is not a command line: no shell runs the command, so |`}},
		"the same variant": {"executors: {CODEX: {variants: {A: {}, A: {}, b: {}}}}", []string{`config.yml:1:39: executors.CODEX.variants.A: the key is here a second time; the first is in line 1`, `config.yml:1:46: executors.CODEX.variants.b: "b" is not the name of a variant`}},
		"a variant's key":  {"executors: {CODEX: {variants: {A: {variants: {}}}}}", []string{`config.yml:1:36: executors.CODEX.variants.A.variants: unknown key`}},
		"env": {
			"executors:\n  CODEX:\n    env:\n      A=B: x\n      C: [x]\n      D:\n      deepwork_board: x\n      E: \"a\\0\"\n      '': x\n",
			[]string{
				`config.yml:4:7: executors.CODEX.env.A=B: "A=B" is not the name of an environment variable`,
				`config.yml:5:10: executors.CODEX.env.C: is a list; expected a text; "" is an empty one`,
				`config.yml:6:9: executors.CODEX.env.D: is empty; expected a text`,
				`config.yml:7:7: executors.CODEX.env.deepwork_board: is set by deepwork itself: leave it out`,
				`config.yml:8:10: executors.CODEX.env.E: has a NUL byte in it`,
				`config.yml:9:7: executors.CODEX.env.: "" is not the name of an environment variable`,
			},
		},
	} {
		c, faults := Parse("config.yml", []byte(test.source))
		if c != nil || len(faults) != len(test.want) {
			t.Errorf("%s: %d faults, want %d:\n%v", name, len(faults), len(test.want), faults)
			continue
		}
		for i, want := range test.want {
			if got := faults[i].String(); !strings.HasPrefix(got, want) {
				t.Errorf("%s: got  %s\nwant %s", name, got, want)
			}
		}
	}
}

// Aliases mean what they name, here as elsewhere.
func TestBoardAliases(t *testing.T) {
	c := parsed(t, "executors:\n  A: &a {command: [x], env: &e {K: v}}\n  B: *a\n  C: {command: y, env: *e, variants: {V: *a}}\n")
	env := map[string]string{"K": "v"}
	want := []Executor{
		{Name: "A", Command: []string{"x"}, Env: env},
		{Name: "B", Command: []string{"x"}, Env: env},
		{Name: "C", Command: []string{"y"}, Env: env, Variants: []Variant{{Name: "V", Command: []string{"x"}, Env: env}}},
	}
	if !reflect.DeepEqual(c.Executors, want) {
		t.Errorf("%+v", c.Executors)
	}
}

// The limits of attempts say in which file they are set, so that people know where to raise them.
func TestLimitsAndAutoStart(t *testing.T) {
	source := "attempts: {max_cost_usd: 12.5, max_unknown: 0, auto_start: {executor: 'CODEX:PLAN', max_in_review: 3}}"
	c := parsed(t, source)
	start := &AutoStart{"CODEX", "PLAN", 3}
	if a := c.Attempts; *a.MaxCostUSD != (Limit{12.5, ".deepwork/config.yml"}) || *a.MaxUnknown != (Limit{0, ".deepwork/config.yml"}) || *a.AutoStart != *start {
		t.Errorf("%+v", a)
	}
	u := parsedUser(t, "attempts: {max_cost_usd: 20, max_unknown: , auto_start: false}")
	if a := u.Over(c).Attempts; *a.MaxCostUSD != (Limit{20, UserFile()}) || *a.MaxUnknown != (Limit{0, ".deepwork/config.yml"}) || a.AutoStart != nil {
		t.Errorf("%+v", a)
	}
	if a := Default().Attempts; a.MaxCostUSD != nil || a.MaxUnknown != nil || a.AutoStart != nil {
		t.Errorf("%+v", a)
	}
	for text, want := range map[string]string{
		"max_cost_usd: -1":                          "an amount of USD from 0 to 1000000000",
		"max_cost_usd: .nan":                        "an amount of USD",
		"max_cost_usd: ten":                         "an amount of USD",
		"max_unknown: 1.5":                          "a whole number from 0",
		"auto_start: true":                          "a mapping",
		"auto_start: {}":                            "needs an executor and max_in_review",
		"auto_start: {executor: CODEX}":             "needs an executor and max_in_review",
		"auto_start: {executor: codex}":             `"codex" is not NAME or NAME:VARIANT`,
		"auto_start: {executor: 'CODEX:'}":          `"CODEX:" is not NAME or NAME:VARIANT`,
		"auto_start: {max_in_review: 0}":            "a whole number from 1",
		"auto_start: {executor: A, max_running: 2}": "unknown key",
	} {
		if c, faults := Parse("config.yml", []byte("attempts: {"+text+"}")); c != nil || len(faults) != 1 || !strings.Contains(faults[0].String(), want) {
			t.Errorf("%s: %v, want %s", text, faults, want)
		}
	}
}
