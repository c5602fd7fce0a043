package runner

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/session"
)

// Merge returns all executors there are: the known ones in their order, and then
// those of the config in theirs. A configured executor of a known name that has a
// command of its own takes the known one's place as a whole, since the rest of
// that belongs to its command line; one without a command changes only what it
// sets (prompt, resume, env, and variants by their names). It keeps nothing of
// its argument.
func Merge(configured []config.Executor) []config.Executor {
	all := Known()
	for _, c := range configured {
		c = clone(c)
		i := slices.IndexFunc(all, func(e config.Executor) bool { return e.Name == c.Name })
		switch {
		case i < 0:
			all = append(all, c)
		case len(c.Command) > 0:
			all[i] = c
		default:
			overlay(&all[i], c)
		}
	}
	return all
}

// overlay changes what c sets.
func overlay(e *config.Executor, c config.Executor) {
	e.Prompt = cmp.Or(c.Prompt, e.Prompt)
	if len(c.Resume) > 0 {
		e.Resume = c.Resume
	}
	e.Env = merged(e.Env, c.Env)
	for _, v := range c.Variants {
		i := slices.IndexFunc(e.Variants, func(o config.Variant) bool { return o.Name == v.Name })
		if i < 0 {
			e.Variants = append(e.Variants, v)
			continue
		}
		o := &e.Variants[i]
		if len(v.Command) > 0 {
			*o = v
			continue
		}
		o.Prompt = cmp.Or(v.Prompt, o.Prompt)
		if len(v.Resume) > 0 {
			o.Resume = v.Resume
		}
		o.Env = merged(o.Env, v.Env)
	}
}

func clone(e config.Executor) config.Executor {
	e.Command, e.Resume, e.Env = slices.Clone(e.Command), slices.Clone(e.Resume), maps.Clone(e.Env)
	e.Variants = slices.Clone(e.Variants)
	for i := range e.Variants {
		v := &e.Variants[i]
		v.Command, v.Resume, v.Env = slices.Clone(v.Command), slices.Clone(v.Resume), maps.Clone(v.Env)
	}
	return e
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	m := make(map[string]string, len(a)+len(b))
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// A Recipe is how one executor is run in one variant.
type Recipe struct {
	Command []string          // the first run of a conversation
	Resume  []string          // a follow-up in the same conversation
	Prompt  config.PromptMode // how both are given the prompt; never ""
	Env     []string          // "KEY=value", sorted by key
}

// Run is the command line and the standard input of one run with a prompt: of a
// follow-up where resume is set.
func (r *Recipe) Run(prompt string, resume bool) (command []string, stdin []byte) {
	command = slices.Clone(r.Command)
	if resume {
		command = slices.Clone(r.Resume)
	}
	if r.Prompt == config.PromptArgument {
		return append(command, prompt), nil
	}
	return command, []byte(prompt)
}

// Resolve returns how an executor of Merge's list is run, in a variant or, with
// "", as it is. What a variant does not set is its executor's; a resume that
// neither sets is the command. It fails with a ToolError, unknown_executor,
// unknown_variant or executor_without_command, that lists what there is.
func Resolve(all []config.Executor, name, variant string) (Recipe, error) {
	i := slices.IndexFunc(all, func(e config.Executor) bool { return e.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, e := range all {
			names[i] = e.Name
		}
		return Recipe{}, session.Wrong("unknown_executor",
			"There is no executor %q; name one of %s, or add it under 'executors' in .deepwork/config.yml.",
			name, strings.Join(names, ", ")).With("argument", "executor").With("value", name).With("executors", names)
	}
	e := all[i]
	r := Recipe{Command: e.Command, Resume: e.Resume, Prompt: e.Prompt}
	env := e.Env
	if variant != "" {
		j := slices.IndexFunc(e.Variants, func(v config.Variant) bool { return v.Name == variant })
		if j < 0 {
			return Recipe{}, noVariant(e, variant)
		}
		v := e.Variants[j]
		if len(v.Command) > 0 {
			r.Command = v.Command
		}
		if len(v.Resume) > 0 {
			r.Resume = v.Resume
		}
		r.Prompt = cmp.Or(v.Prompt, r.Prompt)
		env = merged(env, v.Env)
	}
	if len(r.Command) == 0 {
		return Recipe{}, session.Wrong("executor_without_command",
			"The executor %q has no command; give it one under 'executors' in .deepwork/config.yml.", name).
			With("argument", "executor").With("value", name)
	}
	if len(r.Resume) == 0 {
		r.Resume = r.Command
	}
	r.Prompt = cmp.Or(r.Prompt, config.PromptStdin)
	for _, key := range slices.Sorted(maps.Keys(env)) {
		r.Env = append(r.Env, key+"="+env[key])
	}
	return r, nil
}

func noVariant(e config.Executor, variant string) error {
	names := make([]string, len(e.Variants))
	for i, v := range e.Variants {
		names[i] = v.Name
	}
	there := "it has none: leave 'variant' out"
	if len(names) > 0 {
		there = "name one of " + strings.Join(names, ", ") + ", or leave 'variant' out"
	}
	return session.Wrong("unknown_variant", "The executor %q has no variant %q; %s.", e.Name, variant, there).
		With("argument", "variant").With("value", variant).With("variants", names)
}
