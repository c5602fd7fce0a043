package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/hosts"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/contain"
	"deepwork/session/show"
	"deepwork/session/state"
)

// checkConfig validates the config.yml of a project. It returns nil if the project has no config.
func checkConfig(root, file string) *Check {
	source, err := ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c := &Check{File: file, kind: aConfig, source: source}
	if err != nil {
		c.Diagnostics = job.Diagnostics{{File: file, Message: "cannot be read: " + Reason(err)}}
		return c
	}
	if c.config, c.Diagnostics = config.Parse(file, source); c.config != nil {
		c.Diagnostics = slices.Concat(missingPrograms(root, file, source, c.config),
			unreachable(root, file, source, c.config))
		slices.SortStableFunc(c.Diagnostics, func(a, b job.Diagnostic) int { return a.Line - b.Line })
	}
	return c
}

// Config reads a project's config file. It returns the defaults if the project has no config.
func Config(file string) (*config.Config, error) {
	source, err := ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Default(), nil
	}
	if err != nil {
		return nil, err
	}
	c, ds := config.Parse(file, source)
	if c == nil {
		for i := range ds {
			ds[i].Path, ds[i].Message = show.Inline(ds[i].Path), show.Inline(ds[i].Message)
		}
		return nil, ds
	}

	return c, nil
}

// checkOwn returns what is wrong with the user's own config, or nil.
func checkOwn(root string) *Check {
	file := config.UserFile()
	source, _, err := durable.Read(file, config.MaxBytes)
	if err != nil {
		return nil // what needs it reports the error
	}
	user, ds := config.ParseUser(file, source)
	if user != nil {
		ds = unreachable(root, file, source, user.Over(config.Default()))
	}
	if len(ds) == 0 {
		return nil
	}
	return &Check{File: file, kind: aFolder, Diagnostics: ds, source: source}
}

// unreachable returns an error for each folder that contain of a config names and that programs cannot be given, and a
// warning for each preset that names no host here.
func unreachable(root, file string, source []byte, c *config.Config) (ds job.Diagnostics) {
	lines := config.Places(source)
	apart := []string{root, state.Of(root).Dir}
	if at := c.Attempts.Worktrees; filepath.IsAbs(at) {
		apart = append(apart, at)
	}
	c.EachContain(func(path string, is config.Contain) {
		add := func(key string, warning bool, err error) {
			if err != nil {
				ds = append(ds, job.Diagnostic{
					File:    file,
					Line:    cmp.Or(lines[path+"."+key], lines[path], 1),
					Column:  1,
					Path:    path + "." + key,
					Warning: warning,
					Message: err.Error(),
				})
			}
		}
		for _, folder := range is.Read {
			add("read", false, contain.CheckFolder(folder, false, apart...))
		}
		for _, folder := range is.Write {
			add("write", false, contain.CheckFolder(folder, true, apart...))
		}
		for _, preset := range config.Presets {
			if slices.Contains(is.Allow, preset) {
				_, _, err := contain.Resolve(context.Background(), hosts.List{preset})
				add("allow", true, err)
			}
		}
	})
	return ds
}

// missing says why the program of a command is not found on this machine, or returns "".
func missing(root string, command []string) (why string) {
	if len(command) == 0 {
		return ""
	}

	_, err := trust.Find(root, command[0])
	if e, ok := errors.AsType[*exec.Error](err); ok && !errors.Is(e, exec.ErrNotFound) {
		return Reason(e.Err)
	} else if err != nil {
		return "it is not in PATH"
	}
	return ""
}

// executorsOf returns the executors of a project's config and of the user's own. whole is false if the user's own
// cannot be read.
func executorsOf(root string, c *config.Config) (known []config.Executor, whole bool) {
	settings := config.Open(root)
	settings.Logger = slog.New(slog.DiscardHandler)
	own, err := settings.Own(context.Background())
	if err != nil {
		own = &config.User{}
	}
	return executors.Merge(own.Over(c).Executors), err == nil
}

// missingAgents adds a warning to a job for each check whose program is not on this machine, and for each step whose
// executor is undefined or not installed. Executors that the config defines are warned of there; without a config that
// can be read, none is.
func missingAgents(root string, c *config.Config, checks []*Check) {
	known, whole := []config.Executor(nil), false
	if c != nil {
		known, whole = executorsOf(root, c)
	}
	for _, checked := range checks {
		for i := 0; checked.job != nil && i < len(checked.job.Steps); i++ {
			for k, c := range checked.job.Steps[i].Checks {
				dir, err := trust.CheckDir(root, &c)
				if why := missing(dir, c.Run); err == nil && why != "" {
					checked.warn(fmt.Sprintf("the check's program %q is not found here (%s); install it, or correct "+
						"the command", c.Run[0], why), "steps", i, "checks", k, "run")
				}
			}
			name, variant, _ := strings.Cut(checked.job.Steps[i].Executor, ":")
			if name == "" || c == nil {
				continue
			}
			recipe, err := executors.Resolve(known, name, variant)
			if err != nil && whole {
				checked.warn(undefined(err), "steps", i, "executor")
			} else if why := missing(root, recipe.Command); why != "" && !defines(c, name) {
				checked.warn(fmt.Sprintf("the program %q of executor %s is not installed here (%s); install it, or "+
					"name another executor", recipe.Command[0], name, why), "steps", i, "executor")
			}
		}
	}
}

// warn adds a warning about the value at a path in the job's file.
func (c *Check) warn(message string, path ...any) {
	c.Diagnostics = append(c.Diagnostics, c.job.Warning(c.File, message, path...))
}

// undefined says why the executor that a file names cannot be used.
func undefined(err error) string {
	text := err.Error()
	if refused, ok := errors.AsType[*session.Error](err); ok {
		text = refused.Message.String()
	}
	return strings.ToLower(text[:1]) + strings.TrimSuffix(text[1:], ".")
}

// defines reports whether a config defines an executor.
func defines(c *config.Config, name string) bool {
	return slices.ContainsFunc(c.Executors, func(e config.Executor) bool { return e.Name == name })
}

// missingPrograms returns a warning for each reviewer, executor and source of a project's config
// whose program is not installed on this machine. file and source are those of the config.
func missingPrograms(root, file string, source []byte, c *config.Config) (ds job.Diagnostics) {
	lines := config.Places(source)
	look := func(what, path string, command []string) {
		why := missing(root, command)
		if why == "" {
			return
		}
		ds = append(ds, job.Diagnostic{
			File:    file,
			Line:    cmp.Or(lines[path+".command"], lines[path], 1),
			Column:  1,
			Path:    path,
			Warning: true,
			Message: fmt.Sprintf("the %s's program %q is not installed here (%s); install it, or correct the command",
				what, command[0], why),
		})
	}
	look("reviewer", "quality_gate.agent_review_command", c.QualityGate.AgentReviewCommand)
	known, whole := executorsOf(root, c)
	executor := func(what, path, name, variant string) {
		if recipe, err := executors.Resolve(known, name, variant); err == nil { // else whatever names it has a warning
			look(what, path, recipe.Command)
		}
	}
	named := func(what, path, full string) {
		name, variant, _ := strings.Cut(full, ":")
		if name == "" {
			return
		}
		if _, err := executors.Resolve(known, name, variant); err != nil && whole {
			ds = append(ds, job.Diagnostic{
				File:    file,
				Line:    cmp.Or(lines[path], 1),
				Column:  1,
				Path:    path,
				Warning: true,
				Message: undefined(err),
			})
		} else if !defines(c, name) {
			executor(what, path, name, variant)
		}
	}
	named("reviewer", "quality_gate.reviewer_executor", c.QualityGate.ReviewerExecutor)
	for _, e := range c.Executors {
		executor("executor", "executors."+e.Name, e.Name, "")
		for _, v := range e.Variants {
			if len(v.Command) > 0 {
				executor("executor", "executors."+e.Name+".variants."+v.Name, e.Name, v.Name)
			}
		}
	}

	if a := c.Attempts.AutoStart; a != nil {
		named("executor", "attempts.auto_start", a.Executor)
	}
	named("executor", "run.executor", c.Run.Executor)

	for _, s := range c.WorkflowTools.Sources {
		look("source", config.SourcesKey+s.Name, s.Command)
	}

	return ds
}
