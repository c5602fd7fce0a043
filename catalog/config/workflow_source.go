package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// workflowSources reads the list of sources; their names must be unique.
func (p *parser) workflowSources(v value) []WorkflowSource {
	if n := v.Target(); n.Kind == yaml.SequenceNode && len(n.Content) > maxSources {
		p.fault(v, "has %d sources; expected at most %d", len(n.Content), maxSources)
		return nil
	}
	var all []WorkflowSource
	first := make(map[string]string) // the path of each name
	p.List(v, "a list of sources, each with a name and a command or a url", func(_ int, v value) {
		s := p.workflowSource(v)
		if was, twice := first[s.Name]; twice {
			p.fault(v, "a second source of the name %q; the first is %s", s.Name, was)
			return
		}
		if s.Name != "" {
			first[s.Name] = p.Path()
		}
		all = append(all, s)
	})
	return all
}

// workflowSource reads one source and reports what is missing or contradictory.
func (p *parser) workflowSource(v value) WorkflowSource {
	s := WorkflowSource{
		ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
		StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
	}
	faults := p.Faults()
	tool := func(to *string) func(value) {
		return p.checked(to, func(s string) string {
			if strings.TrimSpace(s) == "" {
				return "is empty; expected the name of a tool of the source; leave the key out for the default"
			}
			return ""
		})
	}
	p.mapping(v,
		key("name", func(v value) {
			if name, ok := p.text(v); ok && !sourceName.MatchString(name) {
				p.fault(v, "%q is not a source's name: 1 to 64 letters, digits, '.', '_' and '-'", clip(name))
			} else {
				s.Name = name
			}
		}),
		key("command", p.command(&s.Command)),
		key("env", p.pairs(&s.Env, envName, "the name of an environment variable")),
		key("pass_env", p.textsThat(&s.PassEnv, func(v value, name string) (string, bool) {
			if !envName.MatchString(name) {
				p.fault(v, "%q is not the name of an environment variable", clip(name))
			}
			return name, true
		})),
		key("url", p.checked(&s.URL, CheckServerURL)),
		key("headers", p.pairs(&s.Headers, headerName, "the name of an HTTP header")),
		key("execution_timeout", p.optionalDuration(&s.ExecutionTimeout)),
		key("list_tool", tool(&s.ListTool)),
		key("execute_tool", tool(&s.ExecuteTool)),
		key("status_tool", tool(&s.StatusTool)),
		key("cancel_tool", tool(&s.CancelTool)),
	)
	if p.Faults() > faults {
		return s // further faults may follow from those
	}
	if s.Name == "" {
		p.fault(v, "has no name: every source needs one")
	}
	switch {
	case len(s.Command) == 0 && s.URL == "":
		p.fault(v, "has neither command nor url: it needs one of them")
	case len(s.Command) > 0 && s.URL != "":
		p.fault(v, "has both command and url: leave one of them out")
	case s.URL != "" && len(s.Env) > 0:
		p.fault(v, "has env, which is for a command, and a url")
	case s.URL != "" && len(s.PassEnv) > 0:
		p.fault(v, "has pass_env, which is for a command, and a url")
	case len(s.Command) > 0 && len(s.Headers) > 0:
		p.fault(v, "has headers, which are for a url, and a command")
	}
	return s
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

// pairs reads a mapping of names to texts; numbers and booleans are read as written.
func (p *parser) pairs(to *map[string]string, form *regexp.Regexp, what string) func(value) {
	return func(v value) {
		all := make(map[string]string)
		p.Entries(v, "a mapping of names to texts", func(v value) {
			n := v.Target()
			switch {
			case !form.MatchString(v.Key.Value):
				p.Fault(yamltree.At(v.Key), "is not %s", what)
			case n.Kind != yaml.ScalarNode || yamltree.IsNull(n):
				p.wrong(v, "a text")
			case strings.ContainsAny(n.Value, "\x00\r\n"):
				p.fault(v, "has a line break or NUL byte in it")
			default:
				all[v.Key.Value] = n.Value
			}
		})
		if len(all) > 0 {
			*to = all
		}
	}
}
