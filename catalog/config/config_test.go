package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// sameAs compares what a file says with what it should say, for one section.
func sameAs(t *testing.T, got, want any) {
	t.Helper()
	testkit.Same(t, got, want)
}

// What is absent or null is the default.
func TestEmptyFileIsTheDefaults(t *testing.T) {
	for _, source := range []string{
		"", "\n\n", "# quality_gate:\n#   default_timeout: 3\n", "~\n", "{}", "version:\nplatforms:\nquality_gate:\ngit:\ntoolsets:\n",
		"quality_gate: {agent_review_command: , default_timeout: ~, default_max_attempts: null, reviewer_executor: }",
		"projects:\nexecutors:\nattempts:\n", "projects: []\nexecutors: {}\nattempts: {}", "sessions: {keep_ended: 0}",
		"attempts: {max_concurrent: , worktrees: ~, copy: , setup: }", "attempts: {setup: []}",
		"http:", "http: {}", "http: {tokens: , allowed_hosts: ~, max_requests: null, idle_timeout: }", "notify:", "prices:",
		"workflow_tools: {enabled: , include: , prefix: , refresh_interval: , max_concurrent_executions: ~, sources: null}",
	} {
		sameAs(t, parsed(t, source), Default())
		sameAs(t, parsedUser(t, source).Over(Default()), Default())
	}
	d := Default()
	testkit.True(t, d.QualityGate.MaxConcurrentReviews == max(2, runtime.GOMAXPROCS(0)) && d.Toolsets == nil && d.QualityGate.AgentReviewCommand == nil, "defaults are %+v", d)
}

// TestSeed001Example is the example of seed 001, "Configuration".
func TestSeed001Example(t *testing.T) {
	c := parsed(t, `version: "1.0"
platforms:
  - claude

# Quality gate configuration (optional)
quality_gate:
  agent_review_command: "claude --print"  # Command to run quality gate agent
  default_timeout: 120                     # Timeout in seconds
  default_max_attempts: 3                  # Max attempts before failing
`)
	want := Default()
	want.Version, want.Platforms = "1.0", []string{"claude"}
	want.QualityGate.AgentReviewCommand = []string{"claude", "--print"}
	want.QualityGate.DefaultTimeout = 2 * time.Minute
	sameAs(t, c, want)
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
sessions: {keep_ended: 7200}
run: {executor: "CODEX:PLAN", retries: 0}
`)
	want := Default()
	want.Version, want.Platforms, want.Git, want.Toolsets = "2", []string{"claude", "cursor"}, Git{BranchCheckout}, []string{"workflows", "board"}
	want.QualityGate = QualityGate{
		AgentReviewCommand: []string{"my reviewer", "--json", ""},
		DefaultTimeout:     150 * time.Second, DefaultMaxAttempts: 5, MaxConcurrentReviews: 4,
		ReplyWithin: 500 * time.Millisecond, MaxInlineFiles: 0, Override: OverrideHuman, Pin: true,
	}
	want.Sessions.KeepEnded, want.Run = 2*time.Hour, Run{"CODEX:PLAN", 0}
	sameAs(t, c, want)
}

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
  done_when_merged: false
  push_to: origin
  branch_prefix: agents/
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
	sameAs(t, c.Executors, wantExecutors)
	wantProjects := []Project{
		{Name: "shop", Repos: []Repo{
			{Name: "web", Path: "../web", Copy: []string{".env", "config/local.yml"}, Setup: []string{"make", "deps"}},
			{Name: "api", Path: "../../api/"},
			{Name: "tools", Path: `C:\src\tools`, Setup: []string{"npm", "ci"}},
		}},
		{Name: "Läden und mehr", Repos: []Repo{{Name: "Web", Path: "/srv/web"}}},
	}
	sameAs(t, c.Projects, wantProjects)
	want := Attempts{MaxConcurrent: 9, Worktrees: "../trees", Copy: []string{".env"}, Setup: []string{"make", "deps"}, MachineLostAfter: 15 * time.Minute, PushTo: "origin", BranchPrefix: "agents/"}
	sameAs(t, c.Attempts, want)
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
	sameAs(t, c.Executors, want)
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
}

func TestHTTP(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	second, third := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	c := parsedUser(t, `
http:
  tokens:
    - {name: ci.build-1, sha256: `+hash+`}
    - name: Ann_2
      sha256: `+strings.ToUpper(second)+`
    - {name: Ann_2, sha256: `+third+`, group: web, rights: [person, agents]}
  idle_timeout: 90m
  allowed_hosts: [Build.example.com, "[::1]", build.example.com, 10.0.0.7]
  allowed_origins: ["https://App.example.com", "http://localhost:6274"]
  max_connections: 20000
  max_requests: 64
  max_body_bytes: 1048576
  quotas: {requests: 10}
`).Over(Default())
	want := HTTP{
		Tokens:         []Token{{Name: "ci.build-1", SHA256: hash}, {Name: "Ann_2", SHA256: second}, {"Ann_2", third, "web", RightAgents | RightPerson}},
		IdleTimeout:    90 * time.Minute,
		AllowedHosts:   []string{"build.example.com", "::1", "10.0.0.7"},
		AllowedOrigins: []string{"https://app.example.com", "http://localhost:6274"},
		MaxConnections: 20000, MaxRequests: 64, MaxBodyBytes: 1 << 20,
		Quotas: Quotas{10},
	}
	sameAs(t, c.HTTP, want)
	testkit.Equal(t, parsedUser(t, "http: {idle_timeout: 0}").Over(Default()).HTTP.IdleTimeout, 0)
}

// The example, every key of it.
func TestReq003_4_1_WorkflowTools(t *testing.T) {
	c := parsed(t, `
workflow_tools:
  enabled: false
  include: ["data-*", "report-*"]
  exclude: ["*-internal"]
  prefix: "x_"
  refresh_interval: 0
  execution_timeout: 7m
  reply_within: 10
  status_interval: 3s
  max_concurrent_executions: 11
  keep_tools_for: 0
  retry_attempts: 0
  expose_jobs: true
  sources:
    - name: reports
      command: [node, reports-server.js]
      env: {REGION: eu, PORT: 8080, DEBUG: true}
      execution_timeout: 1h
    - name: shop
      url: http://127.0.0.1:9001/mcp
      headers: {Authorization: "Bearer ${SHOP_TOKEN}"}
      list_tool: l
      execute_tool: e
      status_tool: s
      cancel_tool: c
    - {name: line, command: node 'a b.js', execution_timeout: 0}
`)
	hour, none := time.Hour, time.Duration(0)
	want := WorkflowTools{
		Include: []string{"data-*", "report-*"}, Exclude: []string{"*-internal"}, Prefix: "x_",
		ExecutionTimeout: new(7 * time.Minute), ReplyWithin: new(10 * time.Second), StatusInterval: 3 * time.Second,
		MaxConcurrent: 11, ExposeJobs: true,
		Sources: []WorkflowSource{
			{
				Name: "reports", Command: []string{"node", "reports-server.js"}, ExecutionTimeout: &hour,
				Env:      map[string]string{"REGION": "eu", "PORT": "8080", "DEBUG": "true"},
				ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
				StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
			},
			{
				Name: "shop", URL: "http://127.0.0.1:9001/mcp", Headers: map[string]string{"Authorization": "Bearer ${SHOP_TOKEN}"},
				ListTool: "l", ExecuteTool: "e", StatusTool: "s", CancelTool: "c",
			},
			{
				Name: "line", Command: []string{"node", "a b.js"}, ExecutionTimeout: &none,
				ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
				StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
			},
		},
	}
	sameAs(t, c.WorkflowTools, want)
}

// Prices, the command of notify, the editor and telemetry are the user's own.
func TestKeysOfTheUserAlone(t *testing.T) {
	c := parsedUser(t, "prices: {CODEX: {input: 1.25, output: 10, cache_read: 0.125, cache_write: 2}, free: {input: 0, output: 0}}\nnotify: notify-send --app 'deep work'").Over(Default())
	sameAs(t, c.Prices, map[string]Price{"CODEX": {1.25, 0.125, 2, 10}, "free": {}})
	sameAs(t, c.Notify, []string{"notify-send", "--app", "deep work"})
	sameAs(t, c.UI.EditorURL, "vscode://file")
	sameAs(t, parsedUser(t, "ui: {editor_url: 'idea://open?file='}").Over(Default()).UI.EditorURL, "idea://open?file=")
	_, faults := ParseUser("config.yml", []byte("ui: {editor_url: 'javascript://x'}"))
	testkit.True(t, len(faults) != 0, "a script was taken for an editor")
	c = parsedUser(t, "telemetry: {otlp: 'http://localhost:4318', trace_url: 'https://t.example.com/{trace_id}', content: true}\nexecutors: {CODEX: {telemetry: true}}").Over(Default())
	sameAs(t, c.Telemetry, Telemetry{"http://localhost:4318", "https://t.example.com/{trace_id}", true})
	sameAs(t, c.Executors, []Executor{{Name: "CODEX", Telemetry: true}})
	sameAs(t, parsedUser(t, "notify: [sh, -c, 'cat >> x']").Over(Default()).Notify, []string{"sh", "-c", "cat >> x"})
}

var update = flag.Bool("update", false, "rewrite golden files")

// TestFaults holds every fault, with its position and remedy, against testdata/faults.txt: files, each
// with its faults below, which begin with "! ". A file that begins with "# user" is a user's own.
func TestFaults(t *testing.T) {
	const file = "testdata/faults.txt"
	text := testkit.Get(os.ReadFile(file)).Must(t)
	var all []string
	for block := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(string(text)), "\r\n", "\n"), "\n\n") {
		source := regexp.MustCompile(`(?m)\n! .*$`).ReplaceAllString(block, "")
		var faults job.Diagnostics
		if strings.HasPrefix(source, "# user") {
			_, faults = ParseUser("config.yml", []byte(source))
		} else {
			_, faults = Parse("config.yml", []byte(source))
		}
		testkit.True(t, faults != nil, "accepted:\n%s", source)
		for _, secret := range []string{"s3cret", "my-secret", "me:secret"} { // neither passwords nor tokens are repeated
			testkit.True(t, !strings.Contains(faults.Error(), secret), "the secret is in %v", faults)
		}
		found := strings.ReplaceAll(faults.Error(), UserFile(), "USERFILE")
		all = append(all, source+"\n! "+strings.ReplaceAll(found, "\n", "\n! "))
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *update)
}

func TestFilesThatAreNoText(t *testing.T) {
	for source, want := range map[string]string{
		"version: 1\n# \xff\n":                                      "config.yml:2:3: the byte 0xff at offset 13 is not UTF-8",
		strings.Repeat("#", MaxBytes+1):                             "config.yml: is larger than 1048576 bytes",
		"workflow_tools: {prefix: " + strings.Repeat("a", 33) + "}": "at most 32 letters",
	} {
		c, faults := Parse("config.yml", []byte(source))
		testkit.True(t, c == nil && strings.Contains(faults.Error(), want), "%.40q: %v", source, faults)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, faults := Parse("config.yml", []byte("platforms: ["+strings.Repeat("1,", 50_000)+"]"))
	if len(faults) != job.MaxDiagnostics+1 || !strings.Contains(faults[job.MaxDiagnostics].Message, "49900 more errors") {
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
		testkit.True(t, err == nil && slices.Equal(got, want), "%q: %q %v, want %q", line, got, err, want)
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
		testkit.Need(t, (c == nil) != (len(faults) == 0), "%v beside %v", c, faults)
		for _, d := range faults {
			testkit.True(t, d.Message != "" && d.File == "config.yml" && d.Line >= 0 && d.Column >= 0 && (d.Line == 0) == (d.Column == 0), "diagnostic %+v", d)
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
		c, faults := Parse("config.yml", []byte(source))
		testkit.True(t, c == nil && strings.Contains(faults.Error(), want), "%.40s: %v, want %s", source, faults, want)
	}
}

// What is written with anchors and aliases is found where it is.
func TestPlacesOfAliases(t *testing.T) {
	lines := Places([]byte("git: {branch: &n create}\nworkflow_tools:\n  sources:\n    - &s\n      name: *n\n      command: [x]\n    - {name: two, command: &c [x]}\n    - *s\nexecutors:\n  *n : {command: *c}\n"))
	for key, want := range map[string]int{"git.branch": 1, "workflow_tools.sources.create": 8, "workflow_tools.sources.two": 7, "executors.create": 10} {
		testkit.Equal(t, lines[key], want, "%s is in line", key)
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
		testkit.True(t, err == nil && slices.Equal(again, words), "%q became %q (%v)", words, again, err)
	})
}

// The page of the config shows the defaults, every key, and examples of sources and of a task board.
func TestDocumentedExamples(t *testing.T) {
	data := testkit.Get(os.ReadFile("../../cmd/deepwork/docs/reference/config.md")).Must(t)
	block := func(kind string) string {
		_, rest, found := strings.Cut(string(data), "```yaml "+kind+"\n")
		text, _, closed := strings.Cut(rest, "```")
		testkit.Need(t, found && closed, "config.md shows no %s", kind)
		return text
	}
	shown := block("config")
	c, faults := Parse("config.yml", []byte(shown))
	testkit.Need(t, faults == nil && slices.Equal(c.Toolsets, DefaultToolsets), "config.md shows %+v, %v", c, faults)
	c.Toolsets, c.Platforms = nil, nil
	testkit.True(t, reflect.DeepEqual(c, Default()), "config.md shows\n%+v\nthe defaults are\n%+v", c, Default())
	all := regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: )`).ReplaceAllString(shown, "$1$2")
	c, faults = Parse("config.yml", []byte(all))
	testkit.True(t, faults == nil && len(c.QualityGate.AgentReviewCommand) == 2, "with every setting that is commented out it is %+v, %v", c, faults)
	told := func(text, fault string) {
		_, faults := Parse("config.yml", []byte(fault))
		_, keys, _ := strings.Cut(faults.Error(), "with the keys ")
		for key := range strings.SplitSeq(keys, ", ") {
			testkit.Contains(t, text, " "+key+":", "config.md does not describe %s", key)
		}
	}
	told(shown, "workflow_tools: 7\n")
	example := block("sources")
	c, faults = Parse("config.yml", []byte(example))
	testkit.True(t, faults == nil && len(c.WorkflowTools.Sources) == 2, "config.md's sources: %+v %v", c, faults)
	told(example, "workflow_tools: {sources: [7]}\n")
	board := block("board")
	c, faults = Parse("config.yml", []byte(board))
	testkit.True(t, faults == nil && len(c.Executors) != 0 && len(c.Executors[0].Variants) != 0 && len(c.Projects) != 0, "config.md's board: %+v %v", c, faults)
	told(board, "executors: {A: 7}\n")
	told(board, "projects: [7]\n")
	told(board, "projects: [{name: a, repos: [7]}]\n")
}
