package config

import (
	"path"
	"regexp"
	"time"

	"gopkg.in/yaml.v3"
)

// WorkflowTools configures the tools that other systems' workflows become (key
// workflow_tools; seed 003, requirement 4).
type WorkflowTools struct {
	Enabled          bool             // default true
	Include, Exclude []string         // globs on a workflow's name, as path.Match takes them; no Include: all
	Prefix           string           // put before every tool's name: at most 32 letters, digits, '_' and '-'
	RefreshInterval  time.Duration    // default 5 min; 0: only when asked or notified
	ExecutionTimeout time.Duration    // default 5 min; 0: none
	ReplyWithin      time.Duration    // default 0: a call waits for the end
	StatusInterval   time.Duration    // default 2 s
	MaxConcurrent    int              // key max_concurrent_executions; default 10
	KeepToolsFor     time.Duration    // default 1 min
	RetryAttempts    int              // of a failed query; default 3
	ExposeJobs       bool             // default false
	Sources          []WorkflowSource // names are unique
}

// A WorkflowSource is an MCP server that offers workflows: a command that is
// run, or a URL; exactly one of them is set.
type WorkflowSource struct {
	Name    string            // 1 to 64 letters, digits, '.', '_' and '-'
	Command []string          // run in the project root, over stdio
	Env     map[string]string // beside the server's own environment
	URL     string            // streamable HTTP
	Headers map[string]string // with ${NAME} as written: of the environment, put in at each connection
	// ExecutionTimeout is the source's own; nil: WorkflowTools.ExecutionTimeout.
	ExecutionTimeout *time.Duration
	ListTool         string // default workflows-list-tool
	ExecuteTool      string // default workflows-execute-tool
	StatusTool       string // default workflows-status-tool
	CancelTool       string // default workflows-cancel-tool
}

// The bounds of what workflow_tools may hold.
const (
	maxPrefix         = 32                     // characters
	maxSources        = 100                    // more than anybody connects
	leastRefresh      = 100 * time.Millisecond // of refresh_interval, where it is not 0
	leastStatusPeriod = 10 * time.Millisecond  // of status_interval
)

var (
	sourceName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)
	envName    = regexp.MustCompile(`^[^=\x00]+$`)
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
)

func defaultWorkflowTools() WorkflowTools {
	return WorkflowTools{
		Enabled: true, RefreshInterval: 5 * time.Minute, ExecutionTimeout: 5 * time.Minute,
		StatusInterval: 2 * time.Second, MaxConcurrent: 10, KeepToolsFor: time.Minute, RetryAttempts: 3,
	}
}

func (p *parser) workflowTools(n *yaml.Node, path string, w *WorkflowTools) {
	p.mapping(n, path, map[string]field{
		"enabled": func(n *yaml.Node, path string) { p.toolsSwitch(n, path, &w.Enabled) },
		"include": func(n *yaml.Node, path string) { w.Include = p.nameGlobs(n, path) },
		"exclude": func(n *yaml.Node, path string) { w.Exclude = p.nameGlobs(n, path) },
		"prefix":  func(n *yaml.Node, path string) { p.toolPrefix(n, path, &w.Prefix) },
		"refresh_interval": func(n *yaml.Node, path string) {
			d := w.RefreshInterval
			if p.duration(n, path, 0, &d); d != 0 && d < leastRefresh {
				p.at(deref(n), path, "is %v, and is to be 0, for never, or at least %v", d, leastRefresh)
				return
			}
			w.RefreshInterval = d
		},
		"execution_timeout": func(n *yaml.Node, path string) { p.duration(n, path, 0, &w.ExecutionTimeout) },
		"reply_within":      func(n *yaml.Node, path string) { p.duration(n, path, 0, &w.ReplyWithin) },
		"status_interval": func(n *yaml.Node, path string) {
			p.duration(n, path, leastStatusPeriod, &w.StatusInterval)
		},
		"max_concurrent_executions": func(n *yaml.Node, path string) { p.count(n, path, 1, &w.MaxConcurrent) },
		"keep_tools_for":            func(n *yaml.Node, path string) { p.duration(n, path, 0, &w.KeepToolsFor) },
		"retry_attempts":            func(n *yaml.Node, path string) { p.count(n, path, 0, &w.RetryAttempts) },
		"expose_jobs":               func(n *yaml.Node, path string) { p.toolsSwitch(n, path, &w.ExposeJobs) },
		"sources":                   func(n *yaml.Node, path string) { w.Sources = p.workflowSources(n, path) },
	})
}

// toolsSwitch takes true or false.
func (p *parser) toolsSwitch(n *yaml.Node, path string, to *bool) {
	if n = deref(n); isNull(n) {
		return
	}
	var v bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&v) != nil {
		p.at(n, path, "is %s, and is to be true or false", kindName(n))
		return
	}
	*to = v
}

// nameGlobs takes patterns that path.Match can match.
func (p *parser) nameGlobs(n *yaml.Node, at string) []string {
	all := p.stringList(n, at)
	n = deref(n)
	if len(all) != len(n.Content) {
		return all // what is no text was told already
	}
	for i, glob := range all {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			p.at(n.Content[i], element(at, i), "%q is not a pattern: * stands for any text, ? for one character, [a-z] for one of them", clip(glob))
		}
	}
	return all
}

func (p *parser) toolPrefix(n *yaml.Node, path string, to *string) {
	if n = deref(n); isNull(n) {
		return
	}
	s, ok := p.text(n, path)
	if !ok {
		return
	}
	if len(s) > maxPrefix || !prefixForm.MatchString(s) {
		p.at(n, path, "is %s, and is to be at most %d letters, digits, '_' and '-'", kindName(n), maxPrefix)
		return
	}
	*to = s
}
