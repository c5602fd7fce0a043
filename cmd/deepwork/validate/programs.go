package validate

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/session/attempt/runner"
)

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

// missingAgents adds a warning to each job for each of its steps whose executor is not installed on
// this machine. Those that the config defines have a warning there.
func missingAgents(root string, c *config.Config, checks []*Check) {
	known := runner.Merge(c.Executors)
	for _, checked := range checks {
		for i := 0; checked.job != nil && i < len(checked.job.Steps); i++ {
			name, variant, _ := strings.Cut(checked.job.Steps[i].Executor, ":")
			if name == "" || defines(c, name) {
				continue
			}
			recipe, err := runner.Resolve(known, name, variant)
			if why := missing(root, recipe.Command); err == nil && why != "" { // else it may be in the user's own config
				checked.Diagnostics = append(checked.Diagnostics, checked.job.ExecutorWarning(i, checked.File,
					fmt.Sprintf("the program %q of executor %s is not installed here (%s); install it, or name another executor", recipe.Command[0], name, why)))
			}
		}
	}
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
		ds = append(ds, job.Diagnostic{File: file, Line: cmp.Or(lines[path+".command"], lines[path], 1), Column: 1, Path: path, Warning: true,
			Message: fmt.Sprintf("the %s's program %q is not installed here (%s); install it, or correct the command", what, command[0], why)})
	}
	look("reviewer", "quality_gate.agent_review_command", c.QualityGate.AgentReviewCommand)
	known := runner.Merge(c.Executors)
	executor := func(what, path, name, variant string) {
		if recipe, err := runner.Resolve(known, name, variant); err == nil { // else it may be in the user's own config
			look(what, path, recipe.Command)
		}
	}
	named := func(what, path, full string) {
		if name, variant, _ := strings.Cut(full, ":"); name != "" && !defines(c, name) {
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
	slices.SortStableFunc(ds, func(a, b job.Diagnostic) int { return a.Line - b.Line })
	return ds
}
