package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// constant is what the names of executors and variants look like.
var constant = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

func (p *parser) projects(n *yaml.Node, path string, to *[]Project) {
	first := make(map[string]int)
	p.items(n, path, "projects", func(n *yaml.Node, path string) {
		var (
			project Project
			name    *yaml.Node
			faults  = len(p.faults)
		)
		p.mapping(n, path, map[string]field{
			"name": func(n *yaml.Node, path string) { project.Name, name = p.name(n, path), n },
			"repos": func(n *yaml.Node, path string) {
				p.items(n, path, "repositories", func(n *yaml.Node, path string) { p.repo(n, path, &project.Repos) })
			},
		})
		whole := len(p.faults) == faults
		if line, twice := first[project.Name]; twice {
			p.at(name, member(path, "name"), "%q is the name of the project in line %d too", clip(project.Name), line)
		} else if project.Name != "" {
			first[project.Name] = name.Line
		}
		if whole && project.Name == "" {
			p.at(n, path, "has no name")
		}
		if whole && len(project.Repos) == 0 {
			p.at(n, path, "has no repos, and is to have at least one")
		}
		*to = append(*to, project)
	})
}

func (p *parser) repo(n *yaml.Node, path string, to *[]Repo) {
	var (
		repo   Repo
		faults = len(p.faults)
	)
	p.mapping(n, path, map[string]field{
		"name":  func(n *yaml.Node, path string) { repo.Name = p.folder(n, path) },
		"path":  func(n *yaml.Node, path string) { repo.Path = p.filled(n, path) },
		"copy":  func(n *yaml.Node, path string) { repo.Copy = p.localFiles(n, path) },
		"setup": func(n *yaml.Node, path string) { repo.Setup = p.command(n, path) },
	})
	if len(p.faults) > faults {
		return
	}
	if repo.Path == "" {
		p.at(n, path, "has no path")
		return
	}
	if repo.Name == "" {
		trimmed := strings.TrimRight(repo.Path, `/\`)
		repo.Name = trimmed[strings.LastIndexAny(trimmed, `/\:`)+1:]
		if !isFolder(repo.Name) {
			p.at(n, path, "has no name, and none can be had from the path %q: give it one", clip(repo.Path))
			return
		}
	}
	for i, other := range *to {
		// Some file systems do not tell upper from lower case, and the name is
		// that of a worktree's folder.
		if strings.EqualFold(other.Name, repo.Name) {
			p.at(n, path, "the name %q is that of the project's repo %d too: give one of them another", clip(repo.Name), i+1)
			return
		}
	}
	*to = append(*to, repo)
}

func (p *parser) executors(n *yaml.Node, path string, to *[]Executor) {
	p.entries(n, path, "executors by name", func(k, n *yaml.Node, path string) {
		e := Executor{Name: k.Value}
		p.constantName(k, path, "an executor")
		faults := len(p.faults)
		p.mapping(n, path, map[string]field{
			"command": func(n *yaml.Node, path string) { e.Command = p.program(n, path) },
			"prompt":  func(n *yaml.Node, path string) { e.Prompt = p.promptMode(n, path) },
			"resume":  func(n *yaml.Node, path string) { e.Resume = p.program(n, path) },
			"env":     func(n *yaml.Node, path string) { e.Env = p.env(n, path) },
			"variants": func(n *yaml.Node, path string) {
				p.entries(n, path, "variants by name", func(k, n *yaml.Node, path string) {
					p.constantName(k, path, "a variant")
					e.Variants = append(e.Variants, p.variant(k.Value, n, path))
				})
			},
		})
		if len(p.faults) == faults && e.Command == nil && !slices.Contains(KnownExecutors, e.Name) {
			p.at(k, path, "has no command, which only %s need not have%s",
				strings.Join(KnownExecutors, ", "), suggestion(e.Name, KnownExecutors))
		}
		*to = append(*to, e)
	})
}

func (p *parser) variant(name string, n *yaml.Node, path string) Variant {
	v := Variant{Name: name}
	p.mapping(n, path, map[string]field{
		"command": func(n *yaml.Node, path string) { v.Command = p.program(n, path) },
		"prompt":  func(n *yaml.Node, path string) { v.Prompt = p.promptMode(n, path) },
		"resume":  func(n *yaml.Node, path string) { v.Resume = p.program(n, path) },
		"env":     func(n *yaml.Node, path string) { v.Env = p.env(n, path) },
	})
	return v
}

func (p *parser) attempts(n *yaml.Node, path string, a *Attempts) {
	p.mapping(n, path, map[string]field{
		"max_concurrent": func(n *yaml.Node, path string) { p.count(n, path, 1, &a.MaxConcurrent) },
		"worktrees": func(n *yaml.Node, path string) {
			if s := p.filled(n, path); s != "" {
				a.Worktrees = s
			}
		},
		"copy":  func(n *yaml.Node, path string) { a.Copy = p.localFiles(n, path) },
		"setup": func(n *yaml.Node, path string) { a.Setup = p.command(n, path) },
	})
}

// items decodes each element of a list; null is an empty one.
func (p *parser) items(n *yaml.Node, path, what string, decode field) {
	if n = deref(n); isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		p.at(n, path, "is %s, and is to be a list of %s", kindName(n), what)
		return
	}
	for i, item := range n.Content {
		decode(item, element(path, i))
	}
}

// entries decodes a mapping whose keys are the author's, in their order; null is
// an empty one.
func (p *parser) entries(n *yaml.Node, path, what string, decode func(k, n *yaml.Node, path string)) {
	if n = deref(n); isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.at(n, path, "is %s, and is to be a mapping of %s", kindName(n), what)
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
		decode(k, n.Content[i+1], at)
	}
}

func (p *parser) constantName(k *yaml.Node, path, what string) {
	if !constant.MatchString(k.Value) {
		p.at(k, path, "%q is not the name of %s, which is of upper-case letters, digits and '_', as in CLAUDE_CODE", clip(k.Value), what)
	}
}

// filled takes a text that is not blank and has no NUL byte; null is "".
func (p *parser) filled(n *yaml.Node, path string) string {
	if n = deref(n); isNull(n) {
		return ""
	}
	s, ok := p.text(n, path)
	switch {
	case !ok:
		return ""
	case strings.TrimSpace(s) == "":
		p.at(n, path, "is blank")
		return ""
	case strings.ContainsRune(s, 0):
		p.at(n, path, "has a NUL byte in it")
		return ""
	}
	return s
}

// name takes what people and agents read: one line.
func (p *parser) name(n *yaml.Node, path string) string {
	s := p.filled(n, path)
	if strings.ContainsFunc(s, unicode.IsControl) {
		p.at(n, path, "%q has a control character in it", clip(s))
		return ""
	}
	return s
}

// folder takes a name that a folder can have on every system.
func (p *parser) folder(n *yaml.Node, path string) string {
	s := p.filled(n, path)
	if s != "" && !isFolder(s) {
		p.at(n, path, `%q cannot be the name of a folder: leave out /, \, : and the like, and a dot at either end`, clip(s))
		return ""
	}
	return s
}

func isFolder(s string) bool {
	return s != "" && s == strings.Trim(s, ". ") && !strings.ContainsAny(s, `/\:*?"<>|`) &&
		!strings.ContainsFunc(s, unicode.IsControl) && filepath.IsLocal(s)
}

// localFiles takes paths of files inside a repository.
func (p *parser) localFiles(n *yaml.Node, path string) []string {
	var out []string
	p.items(n, path, "files", func(n *yaml.Node, path string) {
		s, ok := p.text(n, path)
		if !ok {
			return
		}
		if strings.ContainsRune(s, 0) || !filepath.IsLocal(filepath.FromSlash(s)) || filepath.Clean(s) == "." {
			p.at(n, path, "%q is not a file of the repository: give a path that is relative to it and stays inside", clip(s))
			return
		}
		out = append(out, s)
	})
	return out
}

// program is a command that is not empty; null is not set.
func (p *parser) program(n *yaml.Node, path string) []string {
	faults := len(p.faults)
	words := p.command(n, path)
	if len(words) == 0 && len(p.faults) == faults && !isNull(deref(n)) {
		p.at(n, path, "is empty, and is to be a program with its arguments")
	}
	return words
}

func (p *parser) promptMode(n *yaml.Node, path string) PromptMode {
	if isNull(deref(n)) {
		return ""
	}
	s, _ := p.oneOf(n, path, []string{string(PromptStdin), string(PromptArgument)})
	return PromptMode(s)
}

// env takes variables; a number or a boolean is taken as it is written.
func (p *parser) env(n *yaml.Node, path string) map[string]string {
	var out map[string]string
	p.entries(n, path, "environment variables", func(k, n *yaml.Node, path string) {
		n = deref(n)
		switch {
		case k.Value == "" || strings.ContainsAny(k.Value, "=\x00"):
			p.at(k, path, "%q is not the name of an environment variable", clip(k.Value))
		case strings.EqualFold(k.Value, AttemptEnv), strings.EqualFold(k.Value, BoardEnv):
			p.at(k, path, "is set by deepwork itself: leave it out")
		case n.Kind != yaml.ScalarNode || isNull(n):
			p.at(n, path, `is %s, and is to be a text; "" is an empty one`, kindName(n))
		case strings.ContainsRune(n.Value, 0):
			p.at(n, path, "has a NUL byte in it")
		default:
			if out == nil {
				out = make(map[string]string)
			}
			out[k.Value] = n.Value
		}
	})
	return out
}
