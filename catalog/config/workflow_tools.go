package config

import (
	"errors"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// WorkflowTools configures the tools made from the workflows of other systems (key workflow_tools;
// seed 003, requirement 4).
type WorkflowTools struct {
	Enabled          bool             `yaml:"enabled"`             // default true
	Include          []string         `yaml:"include" each:"glob"` // path.Match globs on a workflow's name; none means all
	Exclude          []string         `yaml:"exclude" each:"glob"`
	Prefix           string           `yaml:"prefix" as:"prefix"`                            // put before every tool's name: at most 32 letters, digits, '_' and '-'
	RefreshInterval  time.Duration    `yaml:"refresh_interval" min:"100ms" zero:"never"`     // default 5 min; 0 means only on request or notification
	ExecutionTimeout *time.Duration   `yaml:"execution_timeout"`                             // 0 means none; nil means 5 min, or none if an agent or a person performs the steps
	ReplyWithin      *time.Duration   `yaml:"reply_within"`                                  // 0: a call waits for the end; nil means 0, or 50 s if an agent or a person performs the steps
	StatusInterval   time.Duration    `yaml:"status_interval" min:"10ms"`                    // default 2 s
	MaxConcurrent    int              `yaml:"max_concurrent_executions" min:"1" max:"10000"` // default 10
	KeepToolsFor     time.Duration    `yaml:"keep_tools_for"`                                // default 1 min
	RetryAttempts    int              `yaml:"retry_attempts" max:"10000"`                    // of a failed query; default 3
	ExposeJobs       bool             `yaml:"expose_jobs"`                                   // default false
	Sources          []WorkflowSource `yaml:"sources" is:"a list of sources, each with a name and a command or a url"`
}

// A WorkflowSource is an MCP server that offers workflows: either a command to run or a URL.
type WorkflowSource struct {
	Name    string            `yaml:"name" as:"source name" unique:"" add:"a name"` // 1 to 64 letters, digits, '.', '_' and '-'
	Command []string          `yaml:"command" as:"command"`                         // run in the project root, over stdio
	Env     map[string]string `yaml:"env" keys:"variable" each:"one line"`          // in addition to the variables that every source gets
	PassEnv []string          `yaml:"pass_env" each:"variable"`                     // more of the server's variables, by name; "*" means all of them
	URL     string            `yaml:"url" as:"server url"`                          // streamable HTTP
	Headers map[string]string `yaml:"headers" keys:"header" each:"one line"`        // with ${NAME}, replaced from the environment at each connection
	// ExecutionTimeout is the source's own; nil means WorkflowTools.ExecutionTimeout.
	ExecutionTimeout *time.Duration `yaml:"execution_timeout"`
	ListTool         string         `yaml:"list_tool" as:"tool" default:"workflows-list-tool"`
	ExecuteTool      string         `yaml:"execute_tool" as:"tool" default:"workflows-execute-tool"`
	StatusTool       string         `yaml:"status_tool" as:"tool" default:"workflows-status-tool"`
	CancelTool       string         `yaml:"cancel_tool" as:"tool" default:"workflows-cancel-tool"`
}

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

func defaultWorkflowTools() WorkflowTools {
	return WorkflowTools{
		Enabled: true, RefreshInterval: 5 * time.Minute,
		StatusInterval: 2 * time.Second, MaxConcurrent: 10, KeepToolsFor: time.Minute, RetryAttempts: 3,
	}
}

// CheckServerURL returns what is wrong with the URL of an MCP server, or "". It does not repeat the
// URL, which may contain a password.
func CheckServerURL(s string) string {
	u, err := url.Parse(s)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("it must begin with http:// or https:// and a host")
	}
	if err == nil && u.User != nil {
		err = errors.New("it has a user or password in it; give them in headers, from the environment")
	}
	if err != nil {
		return "is not the URL of a server: " + strings.ReplaceAll(err.Error(), s, "…")
	}
	return ""
}
