package config

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/job"
)

func TestEmptyFileIsTheDefaults(t *testing.T) {
	for name, source := range map[string]string{
		"nothing":       "",
		"blanks":        "\n\n",
		"comments":      "# quality_gate:\n#   default_timeout: 3\n",
		"null":          "~\n",
		"empty":         "{}",
		"null sections": "version:\nplatforms:\nquality_gate:\ngit:\ntoolsets:\n",
		"null values":   "quality_gate: {agent_review_command: , default_timeout: ~, default_max_attempts: null}",
	} {
		c, faults := Parse("config.yml", []byte(source))
		if faults != nil || !reflect.DeepEqual(c, Default()) {
			t.Errorf("%s: %+v %v", name, c, faults)
		}
	}
	d := Default()
	if d.QualityGate.DefaultMaxAttempts != 3 || d.QualityGate.ReplyWithin != 50*time.Second ||
		d.QualityGate.MaxInlineFiles != 5 || d.QualityGate.DefaultTimeout != 0 ||
		d.QualityGate.MaxConcurrentReviews != max(2, runtime.GOMAXPROCS(0)) ||
		d.Git.Branch != BranchName || d.Toolsets != nil || d.QualityGate.AgentReviewCommand != nil {
		t.Errorf("defaults are %+v", d)
	}
}

// TestSeed001Example is the example of seed 001, "Configuration".
func TestSeed001Example(t *testing.T) {
	c, faults := Parse("config.yml", []byte(`version: "1.0"
platforms:
  - claude

# Quality gate configuration (optional)
quality_gate:
  agent_review_command: "claude --print"  # Command to run quality gate agent
  default_timeout: 120                     # Timeout in seconds
  default_max_attempts: 3                  # Max attempts before failing
`))
	want := Default()
	want.Version, want.Platforms = "1.0", []string{"claude"}
	want.QualityGate.AgentReviewCommand = []string{"claude", "--print"}
	want.QualityGate.DefaultTimeout = 2 * time.Minute
	if faults != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v; %v", c, want, faults)
	}
}

func TestEveryKey(t *testing.T) {
	c := parsed(t, `
version: 2
platforms: [claude, cursor]
quality_gate:
  agent_review_command: [my reviewer, --json, ""]
  default_timeout: 2m30s
  default_max_attempts: 5
  max_concurrent_reviews: 4
  reply_within: 0.5
  max_inline_files: 0
  override: human
  pin: true
git: {branch: checkout}
toolsets: [workflows, board, workflows]
`)
	want := &Config{
		Version: "2", Platforms: []string{"claude", "cursor"},
		QualityGate: QualityGate{
			AgentReviewCommand: []string{"my reviewer", "--json", ""},
			DefaultTimeout:     150 * time.Second, DefaultMaxAttempts: 5, MaxConcurrentReviews: 4,
			ReplyWithin: 500 * time.Millisecond, MaxInlineFiles: 0, Override: OverrideHuman, Pin: true,
		},
		Git: Git{Branch: BranchCheckout}, Toolsets: []string{"workflows", "board"},
		HTTP: defaultHTTP(), WorkflowTools: defaultWorkflowTools(), Attempts: defaultAttempts(), Run: Default().Run,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		want   []string // each diagnostic, or its beginning
	}{
		"all at once": {
			"version: [1]\nquality_gat:\n  x: 1\nquality_gate:\n  default_timeout: soon\n  default_max_attempts: 0\n  timeout: 3\ngit: name\n",
			[]string{
				`config.yml:1:10: version: is a list; expected a text like "1.0"`,
				`config.yml:2:1: quality_gat: unknown key; did you mean quality_gate?`,
				`config.yml:5:20: quality_gate.default_timeout: is a text ("soon"); expected a number of seconds, or a text like 90s or 2m30s`,
				`config.yml:6:25: quality_gate.default_max_attempts: is a number (0); expected a whole number from 1 to 10000`,
				`config.yml:7:3: quality_gate.timeout: unknown key`,
				`config.yml:8:6: git: is a text ("name"); expected a mapping with the keys branch`,
			},
		},
		"override":      {"quality_gate: {override: nobody}", []string{`config.yml:1:26: quality_gate.override: "nobody" is not one of agent, human, never`}},
		"not a mapping": {"- a\n", []string{`config.yml:1:1: is a list; expected a mapping with the keys `}},
		"syntax":        {"version: 1\ngit: [\n", []string{`config.yml:`}},
		"not UTF-8":     {"version: 1\n# \xff\n", []string{`config.yml:2:3: not UTF-8 text`}},
		"second document": {
			"version: 1\n---\nversion: 2\n", []string{`config.yml:2:1: a second document`},
		},
		"branch":     {"git:\n  branch: chekout\n", []string{`config.yml:2:11: git.branch: "chekout" is not one of name, create, checkout; did you mean checkout?`}},
		"toolset":    {"toolsets: [workflow, 1]", []string{`config.yml:1:12: toolsets[0]: "workflow" is not one of workflows, remote, board, source; did you mean workflows?`, `config.yml:1:22: toolsets[1]: is a number (1)`}},
		"no toolset": {"toolsets: []", []string{`config.yml:1:11: toolsets: is empty`}},
		"quote":      {"quality_gate:\n  agent_review_command: claude 'x\n", []string{`config.yml:2:25: quality_gate.agent_review_command: is not a command line: a single quote is not closed`}},
		"pipe":       {"quality_gate:\n  agent_review_command: a | b\n", []string{`config.yml:2:25: quality_gate.agent_review_command: is not a command line: no shell runs`}},
		"no program": {"quality_gate: {agent_review_command: ['', x]}", []string{`config.yml:1:39: quality_gate.agent_review_command[0]: is empty`}},
		"negative":   {"quality_gate: {default_timeout: -3}", []string{`config.yml:1:33: quality_gate.default_timeout: is -3s; expected 0s`}},
		"no time":    {"quality_gate: {reply_within: 0}", []string{`config.yml:1:30: quality_gate.reply_within: is 0s; expected 1ms`}},
		"infinite":   {"quality_gate: {default_timeout: .inf, reply_within: .nan, max_inline_files: 1.5}", []string{`config.yml:1:33: `, `config.yml:1:53: `, `config.yml:1:77: `}},
		"quoted":     {"quality_gate: {default_timeout: '120'}", []string{`config.yml:1:33: quality_gate.default_timeout: is a text ("120"); write it without quotes`}},
		"huge":       {strings.Repeat("#", MaxBytes+1), []string{`config.yml: the file is larger than 1048576 bytes`}},
		"alias bomb": {
			"platforms: &a [x, x]\ntoolsets: &b [*a, *a, *a]\ngit: [*b, *b, *b, *b]\n",
			[]string{`config.yml:1:12: toolsets[0]: is a list`, `config.yml:1:12: `, `config.yml:1:12: `, `config.yml:3:6: git: is a list`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, faults := Parse("config.yml", []byte(test.source))
			if c != nil {
				t.Fatalf("accepted: %+v", c)
			}
			got := strings.Split(faults.Error(), "\n")
			if len(got) != len(test.want) {
				t.Fatalf("%d faults, want %d:\n%v", len(got), len(test.want), faults)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("fault %d is\n%s\nwant\n%s", i, got[i], want)
				}
			}
		})
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, faults := Parse("config.yml", []byte("platforms: ["+strings.Repeat("1,", 50_000)+"]"))
	if len(faults) != job.MaxDiagnostics+1 || !strings.Contains(faults[job.MaxDiagnostics].Message, "49900 faults more") {
		t.Errorf("%d faults, the last: %v", len(faults), faults[len(faults)-1])
	}
}

func TestSplitCommand(t *testing.T) {
	for line, want := range map[string][]string{
		``:                                nil,
		"  \t ":                           nil,
		`claude --print`:                  {"claude", "--print"},
		`a 'b c' "d e" f\ g`:              {"a", "b c", "d e", "f g"},
		`a'b'"c"d`:                        {"abcd"},
		`a '' ""`:                         {"a", "", ""},
		`'it'\''s'`:                       {"it's"},
		`"a\"b\\c\$d\e"`:                  {`a"b\c$d\e`},
		`'a\b'`:                           {`a\b`},
		"a\\\nb \"c\\\nd\"":               {"ab", "cd"},
		`a '|' "&&" \; x|y`:               {"a", "|", "&&", ";", "x|y"},
		`x --allowed 'Bash(git:*)' $HOME`: {"x", "--allowed", "Bash(git:*)", "$HOME"},
		`ünï cödé`:                        {"ünï", "cödé"},
	} {
		got, err := SplitCommand(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`'a`, `"a`, `a\`, `"a\"`, `a | b`, `a > b`, `a && b`, `a ; b`, "a\x00b", "\"\x00\""} {
		if got, err := SplitCommand(line); err == nil {
			t.Errorf("%q is split into %q", line, got)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"", "version: \"1.0\"\nplatforms: [claude]\n",
		"quality_gate:\n  agent_review_command: \"claude --print\"\n  default_timeout: 2m\n",
		"git: {branch: create}\ntoolsets: [remote]\nhttp: {a: [b]}\n",
		"a: &a [*a]\n", "---\n---\n", "? [x]\n: y\n", "git: &x {branch: name}\nhttp: *x\n", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		c, faults := Parse("config.yml", source)
		if (c == nil) == (len(faults) == 0) {
			t.Fatalf("%v beside %v", c, faults)
		}
		for _, d := range faults {
			if d.Message == "" || d.File != "config.yml" || d.Line < 0 || d.Column < 0 || (d.Line == 0) != (d.Column == 0) {
				t.Errorf("diagnostic %+v", d)
			}
		}
		if c == nil {
			return
		}
		q := c.QualityGate
		if q.DefaultMaxAttempts < 1 || q.MaxConcurrentReviews < 1 || q.MaxInlineFiles < 0 ||
			q.DefaultTimeout < 0 || q.ReplyWithin <= 0 || c.Git.Branch == "" {
			t.Errorf("accepted: %+v", c)
		}
	})
}

// Neither aliases nor directives make a small file cost much.
func TestAFileThatExpands(t *testing.T) {
	var bomb, tags strings.Builder
	bomb.WriteString("executors:\n  E: &e\n    command: [x]\n    variants:\n")
	for i := range 10_000 {
		fmt.Fprintf(&bomb, "      V%d: {command: [x]}\n", i)
	}
	for i := range 10_000 {
		fmt.Fprintf(&bomb, "  E%d: *e\n", i)
		fmt.Fprintf(&tags, "%%TAG !a%d! tag:x,2000:\n", i)
	}
	for source, want := range map[string]string{
		bomb.String(): "expand to more than",
		tags.String() + "---\nversion: \"1.0\"\n": "%TAG directives",
		"projects: &a [*a]\n":                     "never end",
		"executors: &a {x: *a}\n":                 "never end",
	} {
		if c, faults := Parse("config.yml", []byte(source)); c != nil || !strings.Contains(faults.Error(), want) {
			t.Errorf("%.40s: %v, want %s", source, faults, want)
		}
	}
}

// What is written with anchors and aliases is found where it is.
func TestPlacesOfAliases(t *testing.T) {
	lines := Places([]byte("git: {branch: &n create}\nworkflow_tools:\n  sources:\n    - &s\n      name: *n\n      command: [x]\n    - {name: two, command: &c [x]}\n    - *s\nexecutors:\n  *n : {command: *c}\n"))
	for key, want := range map[string]int{"git.branch": 1, "workflow_tools.sources.create": 8, "workflow_tools.sources.two": 7, "executors.create": 10} {
		if lines[key] != want {
			t.Errorf("%s is in line %d, want %d", key, lines[key], want)
		}
	}
}

// FuzzSplitCommand checks that words, each quoted, come back as they were.
func FuzzSplitCommand(f *testing.F) {
	f.Add("a 'b' \"c\" \\d")
	f.Add("x | y")
	f.Fuzz(func(t *testing.T, line string) {
		words, err := SplitCommand(line)
		if err != nil {
			return
		}
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		again, err := SplitCommand(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(again, words) {
			t.Errorf("%q became %q (%v)", words, again, err)
		}
	})
}
