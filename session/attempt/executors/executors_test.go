package executors

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
)

func TestKnown(t *testing.T) {
	var names []string
	for _, e := range Known() {
		names = append(names, e.Name)
		for _, variant := range []string{"", "PLAN"} {
			if variant != "" && len(e.Variants) == 0 {
				continue
			}
			r := testkit.Get(Resolve(Known(), e.Name, variant)).Must(t)
			testkit.Equal(t, r.Prompt, config.PromptStdin)
			testkit.True(t, !slices.Equal(r.Command, r.Resume), "%s %s: %+v", e.Name, variant, r)
			testkit.Equal(t, r.Command[0], r.Resume[0])
			line := strings.Join(r.Command, " ")
			testkit.True(t, variant != "PLAN" || strings.Contains(line, "plan"), "%s plans with %s", e.Name, line)
		}
	}
	testkit.Equal(t, strings.Join(names, " "), "CLAUDE_CODE CODEX GEMINI CURSOR_AGENT OPENCODE")

	// What one caller does to its list is not seen by another.
	Known()[0].Command[0] = "x"
	testkit.Equal(t, Known()[0].Command[0]+Known()[0].Resume[0], "claudeclaude", "the list is shared")

	r := testkit.Get(Resolve(Known(), "CODEX", "")).Must(t)
	testkit.Equal(t, strings.Join(r.Resume, " "),
		"codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox resume --last -")

	// A message to an agent whose conversation goes on is never taken for an option.
	given := &recipe{
		Recipe: Recipe{Command: []string{"git"}, Resume: []string{"git", "resume"}, Prompt: config.PromptArgument},
		root:   t.TempDir(),
	}
	command, stdin := given.give("--version", true)
	testkit.Need(t, stdin == nil, "%q, %q", command, stdin)
	testkit.Need(t, len(command) == 3, "%q, %q", command, stdin)
	testkit.Equal(t, command[2], " --version")
}

func TestMergeAndResolve(t *testing.T) {
	configured := []config.Executor{
		{
			Name:    "MINE",
			Command: []string{"./a", "--work"},
			Resume:  []string{"./a", "--resume"},
			Prompt:  config.PromptArgument,
			Env:     map[string]string{"MODE": "quick", "A": "1"},
			Variants: []config.Variant{
				{Name: "PLAN", Command: []string{"./a", "--plan"}, Env: map[string]string{"MODE": "slow"}},
				{Name: "ASK", Prompt: config.PromptStdin, Resume: []string{"./a", "--ask"}},
			},
		},
		{Name: "BARE", Command: []string{"b"}, Variants: []config.Variant{{Name: "X", Command: []string{"b", "x"}}}},
		{Name: "EMPTY"},
		{
			Name:      "CLAUDE_CODE",
			Telemetry: true,
			Env:       map[string]string{"K": "v"},
			Variants: []config.Variant{{Name: "PLAN", Env: map[string]string{"P": "1"}},
				{Name: "OPUS", Command: []string{"claude", "-p", "--model", "opus"}}},
		},
		{Name: "GEMINI", Command: []string{"./my-gemini"}},
		{
			Name:     "OPENCODE",
			Resume:   []string{"oc"},
			Prompt:   config.PromptArgument,
			Variants: []config.Variant{{Name: "PLAN", Command: []string{"oc", "plan"}}},
		},
	}
	all := Merge(configured)
	claude := Known()[0]
	opencode := Known()[4]
	for _, c := range []struct {
		name, variant string
		want          Recipe
	}{
		{"MINE", "", Recipe{[]string{"./a", "--work"}, []string{"./a", "--resume"}, config.PromptArgument,
			[]string{"A=1", "MODE=quick"}, true, false}},
		{"MINE", "PLAN", Recipe{[]string{"./a", "--plan"}, []string{"./a", "--resume"}, config.PromptArgument,
			[]string{"A=1", "MODE=slow"}, true, false}},
		{"MINE", "ASK", Recipe{[]string{"./a", "--work"}, []string{"./a", "--ask"}, config.PromptStdin,
			[]string{"A=1", "MODE=quick"}, true, false}},
		{"BARE", "", Recipe{[]string{"b"}, []string{"b"}, config.PromptStdin, nil, false, false}},
		{"BARE", "X", Recipe{[]string{"b", "x"}, []string{"b", "x"}, config.PromptStdin, nil, false, false}},
		{"CLAUDE_CODE", "", Recipe{claude.Command, claude.Resume, config.PromptStdin, []string{"K=v"}, true, true}},
		{"CLAUDE_CODE", "PLAN", Recipe{claude.Variants[0].Command, claude.Variants[0].Resume, config.PromptStdin,
			[]string{"K=v", "P=1"}, true, true}},
		{"CLAUDE_CODE", "OPUS", Recipe{[]string{"claude", "-p", "--model", "opus"}, claude.Resume, config.PromptStdin,
			[]string{"K=v"}, true, true}},
		{"GEMINI", "", Recipe{[]string{"./my-gemini"}, []string{"./my-gemini"}, config.PromptStdin, nil, false, false}},
		{"OPENCODE", "", Recipe{opencode.Command, []string{"oc"}, config.PromptArgument, nil, true, false}},
		{"OPENCODE", "PLAN", Recipe{[]string{"oc", "plan"}, []string{"oc"}, config.PromptArgument, nil, true, false}},
	} {
		got, err := Resolve(all, c.name, c.variant)
		testkit.True(t, err == nil && reflect.DeepEqual(got, c.want), "%s %s: %+v, %v\nwant %+v", c.name, c.variant,
			got, err, c.want)
	}

	for _, c := range []struct{ name, variant, code, says string }{
		{"mine", "", "unknown_executor", "CURSOR_AGENT, OPENCODE, MINE, BARE"},
		{"MINE", "plan", "unknown_variant", "name one of PLAN, ASK"},
		{"GEMINI", "PLAN", "unknown_variant", "it has none"},
		{"EMPTY", "", "executor_without_command", ".deepwork/config.yml"},
	} {
		err := testkit.Get(Resolve(all, c.name, c.variant)).Err()
		testkit.True(t, session.CodeOf(err) == c.code && strings.Contains(err.Error(), c.says), "%s %s: %v", c.name,
			c.variant, err)
	}
	testkit.True(t, configured[3].Variants[0].Command == nil && Known()[0].Env == nil, "an argument was changed")
}

// Each known executor is told of the server of its step, and to continue one conversation among others.
func TestForStep(t *testing.T) {
	mcp := MCP{File: "/state/x.json", URL: "http://127.0.0.1:1/mcp"}
	mine := config.Executor{
		Name:    "MINE",
		Command: []string{"./a", "--mcp={mcp_config}"},
		Resume:  []string{"./a", "--go-on", "{conversation}"},
	}
	for name, want := range map[string]struct{ command, resume, env string }{
		"CLAUDE_CODE": {"claude --mcp-config /state/x.json --strict-mcp-config --print ", " --resume talk", ""},
		"CODEX": {`codex exec -c mcp_servers.deepwork-run={url="http://127.0.0.1:1/mcp",` +
			`bearer_token_env_var="DEEPWORK_MCP_TOKEN"} --json `, " resume talk -", ""},
		"GEMINI":       {"gemini --allowed-mcp-server-names deepwork-run --output-format ", " --resume talk", ""},
		"CURSOR_AGENT": {"cursor-agent --print ", " --resume talk", ""},
		"OPENCODE": {"opencode run --format ", " --session talk",
			`{"mcp":{"deepwork-run":{"type":"remote","url":"http://127.0.0.1:1/mcp"`},
		"MINE": {"./a --mcp=/state/x.json ", " --go-on talk", ""},
	} {
		r := testkit.Get(Resolve(Merge([]config.Executor{mine}), name, "")).Must(t)
		before := slices.Concat(r.Command, r.Resume)
		step := r.ForStep(name, mcp, "talk")
		begins, goesOn := strings.Join(step.Command, " ")+" ", strings.Join(step.Resume, " ")
		testkit.True(t, strings.HasPrefix(begins, want.command), "%s begins with %s", name, begins)
		testkit.True(t, strings.HasSuffix(goesOn, want.resume) && r.Names(name), "%s continues with %s", name, goesOn)
		testkit.Contains(t, strings.Join(step.Env, " "), want.env, "%s has the environment", name)
		testkit.Same(t, before, slices.Concat(r.Command, r.Resume), "the recipe of %s was changed", name)
	}

	// A program of the user's own under a known name gets what its command says, and no more.
	r := testkit.Get(Resolve(Merge([]config.Executor{{Name: "CODEX", Command: []string{"./my-codex"}}}), "CODEX", "")).
		Must(t)
	testkit.Same(t, r.ForStep("CODEX", mcp, "").Command, []string{"./my-codex"})
	testkit.Equal(t, r.Names("CODEX"), false)
}

// A proxy is never asked for this machine, whatever else is exempt from it.
func TestAgentsReachTheirServerWithoutAProxy(t *testing.T) {
	for set, want := range map[string]string{
		"":                 "127.0.0.1,localhost,::1",
		"intranet.example": "intranet.example,127.0.0.1,localhost,::1",
		"*":                "*",
	} {
		t.Setenv("NO_PROXY", set)
		t.Setenv("no_proxy", "")
		testkit.Same(t, WithoutProxy(), []string{"NO_PROXY=" + want, "no_proxy=" + want})
	}
}
