package runner

import (
	"slices"
	"strings"

	"deepwork/catalog/config"
)

// The placeholders in the commands of executors.
const (
	// MCPPlaceholder is replaced by the path of a file as .mcp.json that names the MCP server of the agent.
	MCPPlaceholder = "{mcp_config}"
	// ConversationPlaceholder, in resume, is replaced by the name that the program gave to its conversation.
	ConversationPlaceholder = "{conversation}"
)

// MCPName is the name of an MCP for the agent. It is not deepwork, since the user's settings may have a server
// of that name, and Codex, Gemini and OpenCode merge entries of one name.
const MCPName = "deepwork-run"

// An MCP is the server to which the agent of a step reports.
type MCP struct {
	File string // as .mcp.json, absolute
	URL  string
}

// TokenEnv has the bearer token for an MCP.
const TokenEnv = "DEEPWORK_MCP_TOKEN"

// forSteps is how the known executors are told of an MCP server, if possible of it alone, and to continue one
// conversation instead of the last one of the folder. Gemini and Cursor take servers only from settings, in
// which their user names this one by its variables.
var forSteps = map[string]struct {
	server      func(MCP) (args, env []string)
	last, named []string
}{
	"CLAUDE_CODE": {func(m MCP) (args, env []string) {
		return []string{"--mcp-config", m.File, "--strict-mcp-config"}, nil
	}, []string{"--continue"}, []string{"--resume", ConversationPlaceholder}},
	"CODEX": {func(m MCP) (args, env []string) {
		return []string{"-c", `mcp_servers.` + MCPName + `={url="` + m.URL + `",bearer_token_env_var="` + TokenEnv + `"}`}, nil
	}, []string{"resume", "--last"}, []string{"resume", ConversationPlaceholder}},
	"GEMINI": {func(MCP) (args, env []string) {
		return []string{"--allowed-mcp-server-names", MCPName}, nil
	}, []string{"--resume", "latest"}, []string{"--resume", ConversationPlaceholder}},
	"CURSOR_AGENT": {nil, []string{"--continue"}, []string{"--resume", ConversationPlaceholder}},
	"OPENCODE": {func(m MCP) (args, env []string) {
		return nil, []string{`OPENCODE_CONFIG_CONTENT={"mcp":{"` + MCPName + `":{"type":"remote","url":"` + m.URL + `","headers":{"Authorization":"Bearer {env:` + TokenEnv + `}"},"oauth":false}}}`}
	}, []string{"--continue"}, []string{"--session", ConversationPlaceholder}},
}

// ForStep returns the recipe for the agent of a step, of an executor of this name, that goes on with a
// conversation or, if that is "", begins one.
func (r Recipe) ForStep(executor string, m MCP, conversation string) Recipe {
	r.Command, r.Resume = slices.Clone(r.Command), r.named(executor)
	if how := forSteps[executor]; r.known(executor) && how.server != nil {
		args, env := how.server(m)
		r.Command, r.Resume = insert(r.Command, args), insert(r.Resume, args)
		r.Env = append(slices.Clone(r.Env), env...)
	}
	for _, line := range [][]string{r.Command, r.Resume} {
		for i, word := range line {
			line[i] = strings.NewReplacer(MCPPlaceholder, m.File, ConversationPlaceholder, conversation).Replace(word)
		}
	}
	return r
}

// Names reports whether a conversation can be continued by its name, also beside others in the folder.
func (r Recipe) Names(executor string) bool {
	return slices.ContainsFunc(r.named(executor), func(word string) bool { return strings.Contains(word, ConversationPlaceholder) })
}

// named returns resume so that it continues a conversation by its name, if it can.
func (r Recipe) named(executor string) []string {
	line := slices.Clone(r.Resume)
	how := forSteps[executor]
	if !r.known(executor) || how.last == nil {
		return line
	}
	for i := range line {
		if end := i + len(how.last); end <= len(line) && slices.Equal(line[i:end], how.last) {
			return slices.Replace(line, i, end, how.named...)
		}
	}
	return line
}

// known reports whether the recipe runs the program of the known executor of a name.
func (r Recipe) known(executor string) bool {
	i := slices.IndexFunc(Known(), func(e config.Executor) bool { return e.Name == executor })
	return i >= 0 && r.Command[0] == Known()[i].Command[0]
}

// insert puts options after the program and its subcommand, before what may follow options.
func insert(line, options []string) []string {
	at := 1
	for at < len(line) && !strings.HasPrefix(line[at], "-") {
		at++
	}
	return slices.Insert(line, at, options...)
}
