package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A field decodes the value of one key.
type field func(n *yaml.Node, path string)

func (p *parser) config(doc *yaml.Node, c *Config) {
	fields := map[string]field{
		"version":      func(n *yaml.Node, path string) { p.version(n, path, &c.Version) },
		"platforms":    func(n *yaml.Node, path string) { c.Platforms = p.stringList(n, path) },
		"quality_gate": func(n *yaml.Node, path string) { p.qualityGate(n, path, &c.QualityGate) },
		"git":          func(n *yaml.Node, path string) { p.git(n, path, &c.Git) },
		"toolsets":     func(n *yaml.Node, path string) { c.Toolsets = p.toolsets(n, path) },

		"http":           func(n *yaml.Node, path string) { p.http(n, path, &c.HTTP) },
		"workflow_tools": func(n *yaml.Node, path string) { p.workflowTools(n, path, &c.WorkflowTools) },
		"projects":       func(n *yaml.Node, path string) { p.projects(n, path, &c.Projects) },
		"executors":      func(n *yaml.Node, path string) { p.executors(n, path, &c.Executors) },
		"attempts":       func(n *yaml.Node, path string) { p.attempts(n, path, &c.Attempts) },
	}
	p.mapping(doc, "", fields)
}

func (p *parser) qualityGate(n *yaml.Node, path string, q *QualityGate) {
	p.mapping(n, path, map[string]field{
		"agent_review_command": func(n *yaml.Node, path string) {
			q.AgentReviewCommand = p.command(n, path)
		},
		"default_timeout": func(n *yaml.Node, path string) {
			p.duration(n, path, 0, &q.DefaultTimeout)
		},
		"default_max_attempts": func(n *yaml.Node, path string) {
			p.count(n, path, 1, &q.DefaultMaxAttempts)
		},
		"max_concurrent_reviews": func(n *yaml.Node, path string) {
			p.count(n, path, 1, &q.MaxConcurrentReviews)
		},
		"reply_within": func(n *yaml.Node, path string) {
			p.duration(n, path, time.Millisecond, &q.ReplyWithin)
		},
		"max_inline_files": func(n *yaml.Node, path string) {
			p.count(n, path, 0, &q.MaxInlineFiles)
		},
	})
}

func (p *parser) git(n *yaml.Node, path string, g *Git) {
	p.mapping(n, path, map[string]field{
		"branch": func(n *yaml.Node, path string) {
			all := []string{string(BranchName), string(BranchCreate), string(BranchCheckout)}
			if s, ok := p.oneOf(n, path, all); ok {
				g.Branch = GitBranch(s)
			}
		},
	})
}

func (p *parser) toolsets(n *yaml.Node, path string) []string {
	if n = deref(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.at(n, path, "is %s, and is to be a list of %s", kindName(n), strings.Join(Toolsets, ", "))
		return nil
	}
	if len(n.Content) == 0 {
		p.at(n, path, "is empty, which would leave no tool; leave the key out to have all")
	}
	var out []string
	for i, item := range n.Content {
		if s, ok := p.oneOf(item, element(path, i), Toolsets); ok && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// mapping decodes a mapping key by key. null is an empty one: a key whose
// content is commented out.
func (p *parser) mapping(n *yaml.Node, path string, fields map[string]field) {
	if n = deref(n); isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.at(n, path, "is %s, and is to be a mapping with the keys %s",
			kindName(n), strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		return
	}
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			p.at(k, path, "a key is %s, and is to be a name", kindName(k))
			continue
		}
		at := member(path, k.Value)
		if line, twice := first[k.Value]; twice {
			p.at(k, at, "the key is here a second time; the first is in line %d", line)
			continue
		}
		first[k.Value] = k.Line
		decode, known := fields[k.Value]
		if !known {
			p.at(k, at, "unknown key%s", suggestion(k.Value, slices.Sorted(maps.Keys(fields))))
			continue
		}
		decode(n.Content[i+1], at)
	}
}
