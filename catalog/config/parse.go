package config

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// FileName is the name of the config file inside .deepwork.
const FileName = "config.yml"

// MaxBytes is the maximum size of a config.yml: 1 MiB.
const MaxBytes = yamltree.MaxBytes

// content is what a file may contain: the keys of a project's config, and those of the user's own.
type content struct {
	Config
	User
}

// A parser collects the errors in one file.
type parser struct{ yamltree.Decoder }

// newParser returns a parser for the user's own file, or for a project's, which may not have keys with the
// tag own. The error for these names the flag that also sets the key, if there is one.
func newParser(file string, own bool) *parser {
	limits := UserFile()
	p := &parser{}
	if !own {
		limits = ".deepwork/" + FileName
		p.Foreign = func(v yamltree.Value, flag string) {
			if flag != "" {
				flag = ", or with " + flag
			}
			p.Fault(v.At(), "does not belong in a project: set it in your own config, %s%s", UserFile(), flag)
		}
	}
	p.File = file
	p.Lenient = true
	p.Texts = texts
	p.Forms = forms(limits)
	return p
}

// Parse reads the bytes of a config.yml. file is its name in diagnostics. An empty file gives the defaults.
// If the Config is nil, it returns all errors in the file, ordered by position; it reports those that span
// several keys only if there are no others. It never touches the disk.
func Parse(file string, source []byte) (*Config, job.Diagnostics) {
	p := newParser(file, false)
	c := content{Config: *Default()}
	p.parse(source, &c)
	if p.Faults() > 0 {
		return nil, p.Diagnostics()
	}
	return &c.Config, nil
}

// parse decodes a file, and returns its root, or nil if it is empty.
func (p *parser) parse(source []byte, c *content) *yaml.Node {
	root := p.Open(source)
	if root == nil {
		return nil
	}
	p.decode(root, c)
	if p.Faults() == 0 {
		p.check(&c.Config)
	}
	return root
}

// decode decodes the root of a file, and fills in what the file may omit.
func (p *parser) decode(root *yaml.Node, c *content) {
	p.Decode(yamltree.Self(root), c)
	for _, all := range []*[]string{&c.Toolsets, &c.HTTP.AllowedHosts, &c.HTTP.AllowedOrigins} {
		var once []string
		for _, s := range *all {
			if !slices.Contains(once, s) {
				once = append(once, s)
			}
		}
		*all = once
	}

	for _, project := range c.Projects {
		for i := range project.Repos {
			if r := &project.Repos[i]; r.Name == "" {
				trimmed := strings.TrimRight(r.Path, `/\`)
				r.Name = trimmed[strings.LastIndexAny(trimmed, `/\:`)+1:]
			}
		}
	}
}

// check checks what spans several keys of a file whose keys are all valid.
func (p *parser) check(c *Config) {
	if q := c.QualityGate; len(q.AgentReviewCommand) > 0 && q.ReviewerExecutor != "" {
		p.FaultAt([]any{"quality_gate"},
			"has agent_review_command and reviewer_executor, and there is one reviewer: remove one of them")
	}

	for i, project := range c.Projects {
		for k, repo := range project.Repos {
			at := []any{"projects", i, "repos", k}
			if !isFolder(repo.Name) {
				p.FaultAt(at, "has no name, and none can be had from the path %s: give it one",
					yamltree.Quote(repo.Path))
			}

			// Some file systems ignore case, and the name becomes that of a worktree's folder.
			first := slices.IndexFunc(project.Repos, func(o Repo) bool { return strings.EqualFold(o.Name, repo.Name) })
			if first < k {
				p.FaultAt(at, "the name %s is that of the project's repo %d too: give one of them another",
					yamltree.Quote(repo.Name), first+1)
			}
		}
	}

	for _, e := range c.Executors {
		if e.Command != nil || slices.Contains(KnownExecutors, e.Name) {
			continue
		}

		hint := ""
		if near := jsontext.Nearest(e.Name, KnownExecutors); near != "" {
			hint = ": did you mean " + near + "?"
		}
		p.FaultAt([]any{"executors", e.Name}, "has no command, which only %s need not have%s",
			strings.Join(KnownExecutors, ", "), hint)
	}
	for i, s := range c.WorkflowTools.Sources {
		if fault := s.fault(); fault != "" {
			p.FaultAt([]any{"workflow_tools", "sources", i}, "%s", fault)
		}
	}

	for i, t := range c.HTTP.Tokens {
		first := slices.IndexFunc(c.HTTP.Tokens, func(o Token) bool { return o.SHA256 == t.SHA256 })
		if o := c.HTTP.Tokens[first]; o != t {
			p.FaultAt([]any{"http", "tokens", i},
				"%q has the sha256 of %q before it: one token cannot be two callers; deepwork token new makes another",
				t.Name, o.Name)
		}
	}
}

// fault returns what is contradictory or missing in a source, or "".
func (s *WorkflowSource) fault() string {
	command, url := len(s.Command) > 0, s.URL != ""
	switch {
	case !command && !url:
		return "has neither command nor url: it needs one of them"
	case command && url:
		return "has both command and url: leave one of them out"
	case url && len(s.Env) > 0:
		return "has env, which is for a command, and a url"
	case url && len(s.PassEnv) > 0:
		return "has pass_env, which is for a command, and a url"
	case command && len(s.Headers) > 0:
		return "has headers, which are for a url, and a command"
	}

	return ""
}

// Places returns the line of each key of a config file, by path: git.branch, and workflow_tools.sources.ci
// for the list entry named ci. It leaves out unreadable parts.
func Places(source []byte) map[string]int {
	lines := make(map[string]int)
	doc, _, err := yamltree.Documents(source)
	if err == nil && doc != nil && len(doc.Content) > 0 {
		places(doc.Content[0], "", 0, lines)
	}
	return lines
}

func places(n *yaml.Node, path string, depth int, lines map[string]int) {
	if depth > 4 {
		return
	}

	add := func(name string, at, value *yaml.Node) {
		if path != "" {
			name = path + "." + name
		}
		lines[name] = at.Line
		places(value, name, depth+1, lines)
	}

	n = yamltree.Target(n)
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			add(yamltree.Target(n.Content[i]).Value, n.Content[i], n.Content[i+1])
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			entry := yamltree.Target(item)
			for i := 0; entry.Kind == yaml.MappingNode && i+1 < len(entry.Content); i += 2 {
				if yamltree.Target(entry.Content[i]).Value == "name" {
					add(yamltree.Target(entry.Content[i+1]).Value, item, entry)
				}
			}
		}
	}
}
