package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/jsontext"
)

// constant is the form of the names of executors and variants.
var constant = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// remote matches the names of git remotes; a URL or path is not one.
var remote = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

func (p *parser) projects(v value, to *[]Project) {
	first := make(map[string]int) // the line of each name
	p.List(v, "a list of projects", func(_ int, v value) {
		var project Project
		repeated, faults := 0, p.Faults()
		p.mapping(v,
			key("name", func(v value) {
				project.Name = p.name(v)
				if line, twice := first[project.Name]; twice {
					p.fault(v, "%q is the name of the project in line %d too", clip(project.Name), line)
					repeated = 1
				} else if project.Name != "" {
					first[project.Name] = v.Node.Line
				}
			}),
			key("repos", func(v value) {
				p.List(v, "a list of repositories", func(_ int, v value) { p.repo(v, &project.Repos) })
			}),
		)
		whole := p.Faults() == faults+repeated
		if whole && project.Name == "" {
			p.fault(v, "has no name")
		}
		if whole && len(project.Repos) == 0 {
			p.fault(v, "has no repos; expected at least one")
		}
		*to = append(*to, project)
	})
}

func (p *parser) repo(v value, to *[]Repo) {
	var repo Repo
	faults := p.Faults()
	p.mapping(v,
		key("name", func(v value) { repo.Name = p.folder(v) }),
		key("path", func(v value) { repo.Path = p.filled(v) }),
		key("copy", p.localFiles(&repo.Copy)),
		key("setup", p.command(&repo.Setup)),
	)
	if p.Faults() > faults {
		return
	}
	if repo.Path == "" {
		p.fault(v, "has no path")
		return
	}
	if repo.Name == "" {
		trimmed := strings.TrimRight(repo.Path, `/\`)
		repo.Name = trimmed[strings.LastIndexAny(trimmed, `/\:`)+1:]
		if !isFolder(repo.Name) {
			p.fault(v, "has no name, and none can be had from the path %q: give it one", clip(repo.Path))
			return
		}
	}
	for i, other := range *to {
		// Some file systems ignore case, and the name is that of a worktree's folder.
		if strings.EqualFold(other.Name, repo.Name) {
			p.fault(v, "the name %q is that of the project's repo %d too: give one of them another", clip(repo.Name), i+1)
			return
		}
	}
	*to = append(*to, repo)
}

func (p *parser) executors(v value, to *[]Executor) {
	p.Entries(v, "a mapping of executors by name", func(v value) {
		e := Executor{Name: v.Key.Value}
		p.constantName(v, "an executor")
		faults := p.Faults()
		p.mapping(v, append(p.invocation(&e.Command, &e.Resume, &e.Prompt, &e.Env),
			key("variants", func(v value) {
				p.Entries(v, "a mapping of variants by name", func(v value) {
					variant := Variant{Name: v.Key.Value}
					p.constantName(v, "a variant")
					p.mapping(v, p.invocation(&variant.Command, &variant.Resume, &variant.Prompt, &variant.Env)...)
					e.Variants = append(e.Variants, variant)
				})
			}))...)
		if p.Faults() == faults && e.Command == nil && !slices.Contains(KnownExecutors, e.Name) {
			p.Fault(yamltree.At(v.Key), "has no command, which only %s need not have%s",
				strings.Join(KnownExecutors, ", "), didYouMean(jsontext.Nearest(e.Name, KnownExecutors)))
		}
		*to = append(*to, e)
	})
}

// invocation are the common keys of executors and variants.
func (p *parser) invocation(command, resume *[]string, prompt *PromptMode, env *map[string]string) []yamltree.Key {
	return []yamltree.Key{
		key("command", p.program(command)),
		key("prompt", choice(p, prompt, string(PromptStdin), string(PromptArgument))),
		key("resume", p.program(resume)),
		key("env", func(v value) { p.env(v, env) }),
	}
}

func (p *parser) attempts(v value, a *Attempts) {
	p.mapping(v,
		key("max_concurrent", p.whole(1, maxCount, &a.MaxConcurrent)),
		key("max_cost_usd", p.limit(&a.MaxCostUSD, false)),
		key("max_unknown", p.limit(&a.MaxUnknown, true)),
		key("auto_start", p.autoStart(&a.AutoStart)),
		key("machine_lost_after", p.duration(time.Second, &a.MachineLostAfter)),
		key("done_when_merged", p.boolean(&a.DoneWhenMerged)),
		key("push_to", func(v value) {
			if yamltree.IsNull(v.Target()) {
				return
			}
			if s, ok := p.text(v); ok && s != "" && !remote.MatchString(s) {
				p.fault(v, `%q is not the name of a remote, as git remote lists them; "" means no remote`, clip(s))
			} else if ok {
				a.PushTo = s
			}
		}),
		key("worktrees", func(v value) { a.Worktrees = cmp.Or(p.filled(v), a.Worktrees) }),
		key("copy", p.localFiles(&a.Copy)),
		key("setup", p.command(&a.Setup)),
	)
}

// limit reads a number of at least 0.
func (p *parser) limit(to **Limit, whole bool) func(value) {
	return set(func(v value, _ *yaml.Node) {
		l, faults := Limit{File: ".deepwork/" + FileName}, p.Faults()
		if p.user != nil {
			l.File = UserFile()
		}
		expected, tags := "an amount of USD from 0 to %d", []string{"!!int", "!!float"}
		if whole {
			expected, tags = "a whole number from 0 to %d", tags[:1]
		}
		scalar(p, fmt.Sprintf(expected, int(maxLimit)), func(x float64) bool { return x >= 0 && x <= maxLimit }, &l.Max, tags...)(v)
		if p.Faults() == faults {
			*to = &l
		}
	})
}

// maxLimit is larger than any sensible budget.
const maxLimit = 1e9

// executorName reads the name of an executor, with that of a variant after a colon if it has one.
func (p *parser) executorName(to *string) func(value) {
	return p.checked(to, func(s string) string {
		name, variant, has := strings.Cut(s, ":")
		if !constant.MatchString(name) || has && !constant.MatchString(variant) {
			return fmt.Sprintf("%q is not NAME or NAME:VARIANT of an executor, as in CLAUDE_CODE", clip(s))
		}
		return ""
	})
}

// autoStart reads attempts.auto_start; false turns it off.
func (p *parser) autoStart(to **AutoStart) func(value) {
	return set(func(v value, n *yaml.Node) {
		if off := true; n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && n.Decode(&off) == nil && !off {
			*to = nil
			return
		}
		var executor string
		a, faults := AutoStart{MaxInReview: -1}, p.Faults()
		p.mapping(v, key("executor", p.executorName(&executor)), key("max_in_review", p.whole(1, maxCount, &a.MaxInReview)))
		a.Executor, a.Variant, _ = strings.Cut(executor, ":")
		switch {
		case p.Faults() > faults:
		case a.Executor == "" || a.MaxInReview < 0:
			p.fault(v, "needs an executor and max_in_review, as in {executor: CLAUDE_CODE, max_in_review: 3}; false turns it off")
		default:
			*to = &a
		}
	})
}

// run reads the key run.
func (p *parser) run(v value, r *Run) {
	p.mapping(v,
		key("executor", p.executorName(&r.Executor)),
		key("retries", p.whole(0, 100, &r.Retries)),
	)
}

func (p *parser) constantName(v value, what string) {
	if name := v.Key.Value; !constant.MatchString(name) {
		p.Fault(yamltree.At(v.Key), "%q is not the name of %s, which is of upper-case letters, digits and '_', as in CLAUDE_CODE", clip(name), what)
	}
}

// filled returns a text that is not blank and has no NUL byte; null gives "".
func (p *parser) filled(v value) string {
	if yamltree.IsNull(v.Target()) {
		return ""
	}
	s, ok := p.text(v)
	switch {
	case !ok:
		return ""
	case strings.TrimSpace(s) == "":
		p.fault(v, "is blank")
		return ""
	case strings.ContainsRune(s, 0):
		p.fault(v, "has a NUL byte in it")
		return ""
	}
	return s
}

// name returns a text of one line, for people and agents.
func (p *parser) name(v value) string {
	s := p.filled(v)
	if strings.ContainsFunc(s, unicode.IsControl) {
		p.fault(v, "%q has a control character in it", clip(s))
		return ""
	}
	return s
}

// folder returns a valid folder name on every system.
func (p *parser) folder(v value) string {
	s := p.filled(v)
	if s != "" && !isFolder(s) {
		p.fault(v, `%q cannot be the name of a folder: leave out /, \, : and the like, and a dot at either end`, clip(s))
		return ""
	}
	return s
}

func isFolder(s string) bool {
	return s != "" && s == strings.Trim(s, ". ") && !strings.ContainsAny(s, `/\:*?"<>|`) &&
		!strings.ContainsFunc(s, unicode.IsControl) && filepath.IsLocal(s)
}

// localFiles reads paths of files inside a repository.
func (p *parser) localFiles(to *[]string) func(value) {
	return func(v value) {
		p.List(v, "a list of files", func(_ int, v value) {
			s, ok := p.text(v)
			if ok && (strings.ContainsRune(s, 0) || !filepath.IsLocal(filepath.FromSlash(s)) || filepath.Clean(s) == ".") {
				p.fault(v, "%q is not a file of the repository: give a path that is relative to it and stays inside", clip(s))
			} else if ok {
				*to = append(*to, s)
			}
		})
	}
}

// program reads a command that is not empty; null means unset.
func (p *parser) program(to *[]string) func(value) {
	return set(func(v value, _ *yaml.Node) {
		faults := p.Faults()
		p.command(to)(v)
		if len(*to) == 0 && p.Faults() == faults {
			p.fault(v, "is empty; expected a program with its arguments")
		}
	})
}

// env reads variables; numbers and booleans are read as written.
func (p *parser) env(v value, to *map[string]string) {
	p.Entries(v, "a mapping of environment variables", func(v value) {
		name, n := v.Key.Value, v.Target()
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			p.Fault(yamltree.At(v.Key), "%q is not the name of an environment variable", clip(name))
		case strings.EqualFold(name, AttemptEnv), strings.EqualFold(name, BoardEnv):
			p.Fault(yamltree.At(v.Key), "is set by deepwork itself: leave it out")
		case n.Kind != yaml.ScalarNode || yamltree.IsNull(n):
			p.wrong(v, `a text; "" is an empty one`)
		case strings.ContainsRune(n.Value, 0):
			p.fault(v, "has a NUL byte in it")
		default:
			if *to == nil {
				*to = make(map[string]string)
			}
			(*to)[name] = n.Value
		}
	})
}
