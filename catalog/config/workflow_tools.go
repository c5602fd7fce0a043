package config

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// WorkflowTools configures the tools made from the workflows of other systems (key workflow_tools;
// seed 003, requirement 4).
type WorkflowTools struct {
	Enabled          bool             // default true
	Include, Exclude []string         // path.Match globs on a workflow's name; no Include means all
	Prefix           string           // put before every tool's name: at most 32 letters, digits, '_' and '-'
	RefreshInterval  time.Duration    // default 5 min; 0 means only on request or notification
	ExecutionTimeout *time.Duration   // 0 means none; nil means 5 min, or none if an agent or a person performs the steps
	ReplyWithin      *time.Duration   // 0: a call waits for the end; nil means 0, or 50 s if an agent or a person performs the steps
	StatusInterval   time.Duration    // default 2 s
	MaxConcurrent    int              // key max_concurrent_executions; default 10
	KeepToolsFor     time.Duration    // default 1 min
	RetryAttempts    int              // of a failed query; default 3
	ExposeJobs       bool             // default false
	Sources          []WorkflowSource // names are unique
}

// A WorkflowSource is an MCP server that offers workflows: either a command to run or a URL.
type WorkflowSource struct {
	Name    string            // 1 to 64 letters, digits, '.', '_' and '-'
	Command []string          // run in the project root, over stdio
	Env     map[string]string // in addition to the variables that every source gets
	PassEnv []string          // more of the server's variables, by name; "*" means all of them
	URL     string            // streamable HTTP
	Headers map[string]string // with ${NAME}, replaced from the environment at each connection
	// ExecutionTimeout is the source's own; nil means WorkflowTools.ExecutionTimeout.
	ExecutionTimeout *time.Duration
	ListTool         string // default workflows-list-tool
	ExecuteTool      string // default workflows-execute-tool
	StatusTool       string // default workflows-status-tool
	CancelTool       string // default workflows-cancel-tool
}

// The bounds of workflow_tools.
const (
	maxPrefix         = 32                     // characters
	maxSources        = 100                    // more than anybody needs
	leastRefresh      = 100 * time.Millisecond // of refresh_interval, if it is not 0
	leastStatusPeriod = 10 * time.Millisecond  // of status_interval
)

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// Secrets returns the names of the environment variables that no reviewer, agent or setup command
// gets: those used in headers of sources.
func (c *Config) Secrets() []string {
	var all []string
	for _, s := range c.WorkflowTools.Sources {
		for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
			for _, m := range variable.FindAllStringSubmatch(s.Headers[name], -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

var (
	sourceName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)
	envName    = regexp.MustCompile(`^[^=\x00]+$`)
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
)

func defaultWorkflowTools() WorkflowTools {
	return WorkflowTools{
		Enabled: true, RefreshInterval: 5 * time.Minute,
		StatusInterval: 2 * time.Second, MaxConcurrent: 10, KeepToolsFor: time.Minute, RetryAttempts: 3,
	}
}

func (p *parser) workflowTools(v value, w *WorkflowTools) {
	p.mapping(v,
		key("enabled", p.boolean(&w.Enabled)),
		key("include", p.globs(&w.Include)),
		key("exclude", p.globs(&w.Exclude)),
		key("prefix", set(func(v value, n *yaml.Node) {
			s, ok := p.text(v)
			switch {
			case !ok:
			case len(s) > maxPrefix || !prefixForm.MatchString(s):
				p.wrong(v, fmt.Sprintf("at most %d letters, digits, '_' and '-'", maxPrefix))
			default:
				w.Prefix = s
			}
		})),
		key("refresh_interval", func(v value) {
			d := w.RefreshInterval
			if p.duration(0, &d)(v); d != 0 && d < leastRefresh {
				p.fault(v, "is %v; expected 0 (never) or at least %v", d, leastRefresh)
				return
			}
			w.RefreshInterval = d
		}),
		key("execution_timeout", p.optionalDuration(&w.ExecutionTimeout)),
		key("reply_within", p.optionalDuration(&w.ReplyWithin)),
		key("status_interval", p.duration(leastStatusPeriod, &w.StatusInterval)),
		key("max_concurrent_executions", p.whole(1, maxCount, &w.MaxConcurrent)),
		key("keep_tools_for", p.duration(0, &w.KeepToolsFor)),
		key("retry_attempts", p.whole(0, maxCount, &w.RetryAttempts)),
		key("expose_jobs", p.boolean(&w.ExposeJobs)),
		key("sources", func(v value) { w.Sources = p.workflowSources(v) }),
	)
}

// globs reads valid patterns of path.Match.
func (p *parser) globs(to *[]string) func(value) {
	return p.textsThat(to, func(v value, glob string) (string, bool) {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			p.fault(v, "%q is not a pattern: * matches any text, ? one character, [a-z] one of those", clip(glob))
		}
		return glob, true
	})
}
