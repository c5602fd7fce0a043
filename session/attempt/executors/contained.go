package executors

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/process"
	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/contain"
)

// Plan returns what a contained program gets that works in a folder, without the folder itself, its home and its cache.
// It returns nil if the program is not to be contained. apart are the folders of the
// project and of its state, which the config cannot give to it. The error is for callers.
func Plan(ctx context.Context, c config.Contain, dir string, apart ...string) (*contain.Plan, error) {
	if c.Mode != config.ContainRequired {
		return nil, nil
	}
	p, err := contain.New(dir)
	if err != nil {
		return nil, notContained(err)
	}
	if err := p.Grant(ctx, c, apart...); err != nil {
		return nil, notContained(err)
	}
	return p, nil
}

// notContained returns the error for a program that cannot be contained.
func notContained(err error) error {
	if u, ok := errors.AsType[*contain.Unavailable](err); ok {
		return session.NotNow(codes.ExecutorUnavailable,
			"contain is required, and nothing was started: %s. %s. Or set contain: off in the config.", u.Why,
			strings.TrimSuffix(u.Remedy, ".")).Because(err)
	}
	return session.NotNow(codes.ExecutorUnavailable, "contain is required, and nothing was started: %v.", err).
		Because(err)
}

// InPlace returns the error for a program of a run that works in the project's own folder, and must be contained.
func InPlace() error {
	return session.NotNow(codes.ExecutorUnavailable,
		"contain is required, and a run in place works in your own folder, where its programs cannot be contained. "+
			"Nothing was started. Start it without --in-place, or set contain: off in the config.")
}

// checkContained returns why a work cannot be done contained, if it must be.
func (c CommandLine) checkContained(ctx context.Context, cfg *config.Config, w Work) error {
	if cfg.Contained(c.Name, w.MCP != nil).Mode != config.ContainRequired {
		return nil
	}
	if w.Workspace != "" && w.Contain == nil {
		return InPlace()
	}
	if _, err := contain.Check(ctx); err != nil {
		return notContained(err)
	}
	return nil
}

// passedOn are the variables of a Work that a contained agent gets: those that lead to the endpoint of its run.
var passedOn = []string{
	TokenEnv, config.MCPURLEnv, config.MCPConfigEnv, config.SessionEnv, config.StepEnv, config.AttemptEnv, "TRACEPARENT",
}

// identity are the variables by which a user may say who commits.
var identity = []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"}

// contained returns the plan of an agent, nil if it is not to be contained, and makes its workspace ready for it.
func (c CommandLine) contained(ctx context.Context, cfg *config.Config, r *recipe, w Work) (*contain.Plan, error) {
	wants := cfg.Contained(c.Name, w.MCP != nil)
	p, err := Plan(ctx, wants, w.Workspace, c.State, c.Root)
	if p == nil || err != nil {
		return nil, err
	}
	if wants.Home == config.HomeKeep {
		if err := p.UseHome(contain.HomeOf(c.State, c.Name)); err != nil {
			return nil, notContained(err)
		}
	}
	if err := p.UseCache(contain.CacheOf(c.State)); err != nil {
		return nil, notContained(err)
	}
	if w.MCP != nil {
		port, err := w.MCP.port()
		if err != nil {
			return nil, notContained(err)
		}
		p.Reach(nil, port)
		p.Read(w.MCP.File)
	}
	if err := w.Contain(ctx, p); err != nil {
		return nil, notContained(err)
	}

	p.Env = append(p.Env, contain.Passed(identity)...)
	if r.Telemetry {
		p.Env = append(p.Env, contain.Passed(telemetry.Secrets())...)
	}
	for _, kv := range append(process.Without(r.Env, config.JobsFoldersEnv), w.Env...) {
		name, _, sets := strings.Cut(kv, "=")
		if sets && (slices.Contains(passedOn, name) || slices.Contains(r.Env, kv)) {
			p.Env = process.With(p.Env, kv)
		}
	}
	if filepath.Base(r.Command[0]) == "claude" && os.Geteuid() == 0 {
		p.Env = process.With(p.Env, "IS_SANDBOX=1") // otherwise it does not work for root without asking
	}
	return p, nil
}
