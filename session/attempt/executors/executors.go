// Package executors runs coding agents, each on a prompt in a workspace (DESIGN "Task board"). The task board
// uses the interface Executor. CommandLine implements it on this machine, with the command lines of
// well-known agents and of those in the config. An Executor for agents elsewhere needs nothing else from this
// package.
//
// The concepts to know:
//
//   - Executor, its Abilities, the Work of one execution, and the Process that it starts
//   - CommandLine, and Local, where it keeps logs and records
//   - the executors of the config, merged with the known ones; a Recipe, one of them in a variant
//   - MCP, the server to which the agent of a step reports
package executors

import (
	"cmp"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
)

// Merge returns all executors: the known ones in their order, then the configured ones in theirs. A
// configured executor with a known name and a command replaces the known one completely, since the other
// fields belong to its command line. Without a command it changes only the fields that it sets (prompt,
// resume, env, telemetry, and variants by name). The result shares slices and maps with its argument, which
// must not be changed.
func Merge(configured []config.Executor) []config.Executor {
	all := Known()
	for _, c := range configured {
		i := slices.IndexFunc(all, func(e config.Executor) bool { return e.Name == c.Name })
		switch {
		case i < 0:
			all = append(all, c)
		case len(c.Command) > 0:
			all[i] = c
		default:
			e := &all[i]
			v := override(own(*e), own(c))
			e.Prompt = v.Prompt
			e.Resume = v.Resume
			e.Env = v.Env
			e.Telemetry = c.Telemetry
			for _, v := range c.Variants {
				switch i := variantOf(e, v.Name); {
				case i < 0:
					e.Variants = append(e.Variants, v)
				case len(v.Command) > 0:
					e.Variants[i] = v
				default:
					e.Variants[i] = override(e.Variants[i], v)
				}
			}
		}
	}
	return all
}

// Names returns the names of executors.
func Names(all []config.Executor) []string {
	return xslices.Map(all, func(e config.Executor) string { return e.Name })
}

// AllNames returns the names of all executors: the well-known, the configured and the registered ones.
func AllNames(cfg *config.Config, registered []string) []string {
	names := Names(Merge(cfg.Executors))
	for _, name := range registered {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func variantOf(e *config.Executor, name string) int {
	return slices.IndexFunc(e.Variants, func(v config.Variant) bool { return v.Name == name })
}

// own returns the fields of an executor without a variant.
func own(e config.Executor) config.Variant {
	return config.Variant{Command: e.Command, Resume: e.Resume, Prompt: e.Prompt, Env: e.Env}
}

// override returns base with the fields that v sets.
func override(base, v config.Variant) config.Variant {
	env := maps.Clone(v.Env)
	if len(base.Env) > 0 {
		env = maps.Clone(base.Env)
		maps.Copy(env, v.Env)
	}
	return config.Variant{
		Name:    base.Name,
		Command: firstNonEmpty(v.Command, base.Command),
		Resume:  firstNonEmpty(v.Resume, base.Resume),
		Prompt:  cmp.Or(v.Prompt, base.Prompt),
		Env:     env,
	}
}

// firstNonEmpty returns the first non-empty command line.
func firstNonEmpty(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// A Recipe says how to run one executor in one variant.
type Recipe struct {
	Command []string          // for the first run of a conversation
	Resume  []string          // for a follow-up: in the same conversation, if Continues
	Prompt  config.PromptMode // how both receive the prompt; never ""
	Env     []string          // "KEY=value", sorted by key

	Continues bool // Resume continues the conversation; otherwise it equals Command
	Telemetry bool // the agent gets the OTEL_EXPORTER_OTLP_ variables
}

// Reports reports whether package transcript can read what the command prints, so that a run from which it
// read nothing had no conversation.
func (r *Recipe) Reports() bool {
	switch filepath.Base(r.Command[0]) {
	case "claude":
		return slices.Contains(r.Command, "stream-json")
	case "codex":
		return slices.Contains(r.Command, "--json")
	}
	return false
}

// Resolve returns how to run an executor in Merge's list, in a variant or, for "", without one. Fields that a
// variant does not set are taken from its executor; resume defaults to the command. It fails with a
// ToolError, unknown_executor, unknown_variant or executor_without_command, that lists the available ones.
func Resolve(all []config.Executor, name, variant string) (Recipe, error) {
	i := slices.IndexFunc(all, func(e config.Executor) bool { return e.Name == name })
	if i < 0 {
		names := Names(all)
		return Recipe{}, session.Wrong(codes.UnknownExecutor,
			"There is no executor %q; use one of %s, or add it under 'executors' in .deepwork/config.yml.",
			name, strings.Join(names, ", ")).With("argument", "executor").With("value", name).With("executors", names)
	}
	v := own(all[i])
	if variant != "" {
		j := variantOf(&all[i], variant)
		if j < 0 {
			names, there := xslices.Map(all[i].Variants, func(v config.Variant) string { return v.Name }),
				"it has none: leave the variant out"
			if len(names) > 0 {
				there = "name one of " + strings.Join(names, ", ") + ", or leave the variant out"
			}
			return Recipe{}, session.Wrong(codes.UnknownVariant, "The executor %q has no variant %q; %s.", name,
				variant, there).
				With("argument", "variant").With("value", variant).With("variants", names)
		}
		v = override(v, all[i].Variants[j])
	}
	if len(v.Command) == 0 {
		return Recipe{}, session.Wrong(codes.ExecutorWithoutCommand,
			"The executor %q has no command; add one under 'executors' in .deepwork/config.yml.", name).
			With("argument", "executor").With("value", name)
	}
	r := Recipe{
		Command:   v.Command,
		Resume:    firstNonEmpty(v.Resume, v.Command),
		Continues: len(v.Resume) > 0,
		Prompt:    cmp.Or(v.Prompt, config.PromptStdin),
		Telemetry: all[i].Telemetry,
	}
	for _, key := range slices.Sorted(maps.Keys(v.Env)) {
		r.Env = append(r.Env, key+"="+v.Env[key])
	}
	return r, nil
}

// A program is a well-known coding agent. It reads a prompt from standard input, works without asking, prints
// JSON lines, and continues the last conversation of its working directory, which belongs to the attempt, or
// one by its name.
type program struct {
	name string
	// its options: all, those to do anything, and those to plan without changing anything; plan "" means that
	// it cannot
	base, work, plan string
	last, named      string // options that continue a conversation
	end              string // after all other options
	env              map[string]string
	server           func(MCP) (args, env []string) // tell it about the server of a step, if possible about no other
}

// programs may do everything, since nobody is there to answer; to restrict one, configure an executor of the
// same name. Cursor takes servers only from settings. So does Gemini, whose user names the server of a step
// there by its variables.
var programs = []program{{
	name: "CLAUDE_CODE",
	base: "claude --print --output-format stream-json --verbose", // printing streamed JSON needs --verbose
	work: "--dangerously-skip-permissions", plan: "--permission-mode plan",
	last: "--continue", named: "--resume " + ConversationPlaceholder,
	server: func(m MCP) (args, env []string) {
		return []string{"--mcp-config", m.File, "--strict-mcp-config"}, nil
	},
}, {
	name: "CODEX",
	// A folder around several worktrees is not a repository. A worktree's git folder is outside of it, so the
	// sandbox would keep the agent from committing.
	base: "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox",
	last: "resume --last", named: "resume " + ConversationPlaceholder, end: "-",
	server: func(m MCP) (args, env []string) {
		return []string{"-c", `mcp_servers.` + MCPName + `={url="` + m.URL + `",bearer_token_env_var="` + TokenEnv +
			`"}`}, nil
	},
}, {
	name: "GEMINI",
	base: "gemini --output-format stream-json", work: "--approval-mode yolo", plan: "--approval-mode plan",
	last: "--resume latest", named: "--resume " + ConversationPlaceholder,
	// otherwise it asks for permission in an untrusted folder
	env: map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"},
	server: func(MCP) (args, env []string) {
		return []string{"--allowed-mcp-server-names", MCPName}, nil
	},
}, {
	name:  "CURSOR_AGENT",
	base:  "cursor-agent --print --output-format stream-json --trust --approve-mcps",
	work:  "--force",
	plan:  "--mode plan",
	last:  "--continue",
	named: "--resume " + ConversationPlaceholder,
}, {
	name: "OPENCODE",
	// Without a title, it asks the model for one, and does not report the cost.
	base: "opencode run --format json --auto --title deepwork", plan: "--agent plan",
	last: "--continue", named: "--session " + ConversationPlaceholder,
	server: func(m MCP) (args, env []string) {
		return nil, []string{`OPENCODE_CONFIG_CONTENT={"mcp":{"` + MCPName + `":{"type":"remote","url":"` + m.URL +
			`","headers":{"Authorization":"Bearer {env:` + TokenEnv + `}"},"oauth":false}}}`}
	},
}}

// Known returns the executors for programs, which need no configuration. Each call returns new values.
func Known() []config.Executor {
	all := make([]config.Executor, len(programs))
	for i, p := range programs {
		words := func(parts ...string) []string { return strings.Fields(strings.Join(parts, " ")) }
		all[i] = config.Executor{Name: p.name, Prompt: config.PromptStdin, Env: maps.Clone(p.env),
			Command: words(p.base, p.work, p.end), Resume: words(p.base, p.work, p.last, p.end)}
		if p.plan != "" {
			all[i].Variants = []config.Variant{{
				Name:    "PLAN",
				Command: words(p.base, p.plan, p.end),
				Resume:  words(p.base, p.plan, p.last, p.end),
			}}
		}
	}
	return all
}

// The placeholders in the commands of executors.
const (
	// MCPPlaceholder is replaced by the path of a file in the form of .mcp.json that names the agent's MCP
	// server.
	MCPPlaceholder = "{mcp_config}"
	// ConversationPlaceholder, in resume, is replaced by the program's name for its conversation.
	ConversationPlaceholder = "{conversation}"
)

// MCPName is the agent's name for an MCP server of a run. It is not deepwork, since the user's settings may
// have a server with that name, and Codex, Gemini and OpenCode merge entries with one name.
const MCPName = "deepwork-run"

// An MCP is the server to which the agent of a step reports.
type MCP struct {
	File string // in the form of .mcp.json; absolute
	URL  string
}

// port returns the port of this machine at which the server is.
func (m *MCP) port() (int, error) {
	u, err := url.Parse(m.URL)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(u.Port())
}

// TokenEnv is the variable with the bearer token for an MCP.
const TokenEnv = "DEEPWORK_MCP_TOKEN"

// ForStep returns the recipe for the agent of a step, for the executor of this name. It continues a
// conversation or, for "", begins one.
func (r Recipe) ForStep(executor string, m MCP, conversation string) Recipe {
	r.Command, r.Resume = slices.Clone(r.Command), r.named(executor)
	if p := r.program(executor); p.server != nil {
		args, env := p.server(m)
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

// With makes the known program of an executor use a model. It reports false if the recipe runs another
// program.
func (r *Recipe) With(executor, model string) bool {
	if r.program(executor).name == "" {
		return false
	}
	r.Command, r.Resume = insert(slices.Clone(r.Command), []string{"--model", model}),
		insert(slices.Clone(r.Resume), []string{"--model", model})
	return true
}

// Names reports whether a conversation can be continued by its name, even if the folder has others.
func (r Recipe) Names(executor string) bool {
	return slices.ContainsFunc(r.named(executor), func(word string) bool {
		return strings.Contains(word, ConversationPlaceholder)
	})
}

// named returns resume, changed to continue a conversation by its name, if possible.
func (r Recipe) named(executor string) []string {
	line, p := slices.Clone(r.Resume), r.program(executor)
	last := strings.Fields(p.last)
	for i := range line {
		if end := i + len(last); end <= len(line) && slices.Equal(line[i:end], last) {
			return slices.Replace(line, i, end, strings.Fields(p.named)...)
		}
	}
	return line
}

// program returns the known program that the recipe of an executor runs, or a zero one.
func (r Recipe) program(executor string) program {
	i := slices.IndexFunc(programs, func(p program) bool {
		return p.name == executor && strings.HasPrefix(p.base, r.Command[0]+" ")
	})
	if i < 0 {
		return program{}
	}
	return programs[i]
}

// insert puts options after the program and its subcommand, in front of anything that may follow options.
func insert(line, options []string) []string {
	at := 1
	for at < len(line) && !strings.HasPrefix(line[at], "-") {
		at++
	}
	return slices.Insert(line, at, options...)
}
