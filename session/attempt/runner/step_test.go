package runner

import (
	"slices"
	"strings"
	"testing"

	"deepwork/catalog/config"
)

// Each known executor is told of the server of its step, and to continue one conversation among others.
func TestForStep(t *testing.T) {
	mcp := MCP{File: "/state/x.json", URL: "http://127.0.0.1:1/mcp"}
	mine := config.Executor{Name: "MINE", Command: []string{"./a", "--mcp={mcp_config}"}, Resume: []string{"./a", "--go-on", "{conversation}"}}
	for name, want := range map[string]struct{ command, resume, env string }{
		"CLAUDE_CODE":  {"claude --mcp-config /state/x.json --strict-mcp-config --print ", " --resume talk", ""},
		"CODEX":        {`codex exec -c mcp_servers.deepwork-run={url="http://127.0.0.1:1/mcp",bearer_token_env_var="DEEPWORK_MCP_TOKEN"} --json `, " resume talk -", ""},
		"GEMINI":       {"gemini --allowed-mcp-server-names deepwork-run --output-format ", " --resume talk", ""},
		"CURSOR_AGENT": {"cursor-agent --print ", " --resume talk", ""},
		"OPENCODE":     {"opencode run --format ", " --session talk", `{"mcp":{"deepwork-run":{"type":"remote","url":"http://127.0.0.1:1/mcp"`},
		"MINE":         {"./a --mcp=/state/x.json ", " --go-on talk", ""},
	} {
		r, err := Resolve(Merge([]config.Executor{mine}), name, "")
		must(t, err)
		before := slices.Concat(r.Command, r.Resume)
		step := r.ForStep(name, mcp, "talk")
		if got := strings.Join(step.Command, " ") + " "; !strings.HasPrefix(got, want.command) {
			t.Errorf("%s begins with %s", name, got)
		}
		if got := strings.Join(step.Resume, " "); !strings.HasSuffix(got, want.resume) || !r.Names(name) {
			t.Errorf("%s continues with %s", name, got)
		}
		if got := strings.Join(step.Env, " "); !strings.Contains(got, want.env) {
			t.Errorf("%s has the environment %s", name, got)
		}
		if !slices.Equal(before, slices.Concat(r.Command, r.Resume)) {
			t.Errorf("the recipe of %s was changed", name)
		}
	}
	// A program of the user's own under a known name gets what its command says, and no more.
	r, err := Resolve(Merge([]config.Executor{{Name: "CODEX", Command: []string{"./my-codex"}}}), "CODEX", "")
	must(t, err)
	if got := r.ForStep("CODEX", mcp, "").Command; !slices.Equal(got, []string{"./my-codex"}) || r.Names("CODEX") {
		t.Error(got)
	}
}
