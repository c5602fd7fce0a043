package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// workflowSources takes the list of sources; their names are to be unique.
func (p *parser) workflowSources(n *yaml.Node, path string) []WorkflowSource {
	if n = deref(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.at(n, path, "is %s, and is to be a list of sources, each with a name and a command or a url", kindName(n))
		return nil
	}
	if len(n.Content) > maxSources {
		p.at(n, path, "has %d sources, and is to have at most %d", len(n.Content), maxSources)
		return nil
	}
	var all []WorkflowSource
	first := make(map[string]int)
	for i, item := range n.Content {
		s := p.workflowSource(item, element(path, i))
		if s.Name != "" {
			if was, twice := first[s.Name]; twice {
				p.at(deref(item), element(path, i), "a second source of the name %q; the first is %s", s.Name, element(path, was))
				continue
			}
			first[s.Name] = i
		}
		all = append(all, s)
	}
	return all
}

// workflowSource takes one source and says what is missing or contradicts itself.
func (p *parser) workflowSource(n *yaml.Node, path string) WorkflowSource {
	s := WorkflowSource{
		ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
		StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
	}
	faults := len(p.faults)
	tool := func(to *string) field {
		return func(n *yaml.Node, path string) { p.toolName(n, path, to) }
	}
	p.mapping(n, path, map[string]field{
		"name": func(n *yaml.Node, path string) {
			if name, ok := p.text(n, path); ok && !sourceName.MatchString(name) {
				p.at(deref(n), path, "%q is not a source's name: 1 to 64 letters, digits, '.', '_' and '-'", clip(name))
			} else {
				s.Name = name
			}
		},
		"command": func(n *yaml.Node, path string) { s.Command = p.command(n, path) },
		"env": func(n *yaml.Node, path string) {
			s.Env = p.sourcePairs(n, path, envName, "the name of an environment variable")
		},
		"url": func(n *yaml.Node, path string) { p.sourceURL(n, path, &s.URL) },
		"headers": func(n *yaml.Node, path string) {
			s.Headers = p.sourcePairs(n, path, headerName, "the name of an HTTP header")
		},
		"execution_timeout": func(n *yaml.Node, path string) {
			if isNull(deref(n)) {
				return
			}
			d := time.Duration(-1)
			if p.duration(n, path, 0, &d); d >= 0 {
				s.ExecutionTimeout = &d
			}
		},
		"list_tool":    tool(&s.ListTool),
		"execute_tool": tool(&s.ExecuteTool),
		"status_tool":  tool(&s.StatusTool),
		"cancel_tool":  tool(&s.CancelTool),
	})
	if len(p.faults) > faults {
		return s // what else is missing may be what has just been told
	}
	n = deref(n)
	if s.Name == "" {
		p.at(n, path, "has no name: every source needs one")
	}
	switch {
	case len(s.Command) == 0 && s.URL == "":
		p.at(n, path, "has neither command nor url: it needs one of them")
	case len(s.Command) > 0 && s.URL != "":
		p.at(n, path, "has both command and url: leave one of them out")
	case s.URL != "" && len(s.Env) > 0:
		p.at(n, path, "has env, which is for a command, and a url")
	case len(s.Command) > 0 && len(s.Headers) > 0:
		p.at(n, path, "has headers, which are for a url, and a command")
	}
	return s
}

func (p *parser) toolName(n *yaml.Node, path string, to *string) {
	if n = deref(n); isNull(n) {
		return
	}
	s, ok := p.text(n, path)
	switch {
	case !ok:
	case strings.TrimSpace(s) == "":
		p.at(n, path, "is empty, and is to be the name of a tool of the source; leave the key out for the default")
	default:
		*to = s
	}
}

// sourceURL takes the URL of an MCP server.
func (p *parser) sourceURL(n *yaml.Node, path string, to *string) {
	if n = deref(n); isNull(n) {
		return
	}
	s, ok := p.text(n, path)
	if !ok {
		return
	}
	u, err := url.Parse(s)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("it is to begin with http:// or https:// and a host")
	}
	if err == nil && u.User != nil {
		err = errors.New("it has a user or password in it; give them in headers, from the environment")
	}
	if err != nil {
		// Not as it was written: there may be a password in it.
		p.at(n, path, "is not the URL of a server: %s", strings.ReplaceAll(err.Error(), s, "…"))
		return
	}
	*to = s
}

// sourcePairs takes a mapping of names to texts; numbers and booleans are taken as
// they are written.
func (p *parser) sourcePairs(n *yaml.Node, path string, form *regexp.Regexp, what string) map[string]string {
	if n = deref(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.at(n, path, "is %s, and is to be a mapping of names to texts", kindName(n))
		return nil
	}
	all := make(map[string]string, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], deref(n.Content[i+1])
		if k.Kind != yaml.ScalarNode || !form.MatchString(k.Value) {
			p.at(k, member(path, k.Value), "is not %s", what)
			continue
		}
		at := member(path, k.Value)
		if _, twice := all[k.Value]; twice {
			p.at(k, at, "the key is here a second time")
			continue
		}
		if v.Kind != yaml.ScalarNode || isNull(v) {
			p.at(v, at, "is %s, and is to be a text", kindName(v))
			continue
		}
		if strings.ContainsAny(v.Value, "\x00\r\n") {
			p.at(v, at, "has a line break or NUL byte in it")
			continue
		}
		all[k.Value] = v.Value
	}
	return all
}
