package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"deepwork/catalog/jsontext"
	sources "deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/transport/tool"
)

// namesShown is the maximum number of tools that a refusal names.
const namesShown = 50

// target finds a tool by its current name. If there was one, or are several, it returns an error;
// nil without an error means no such name.
func (r *Tools) target(ctx context.Context, name string) (target, error) {
	r.follow(ctx)
	now := r.catalog.Snapshot()
	if t := now.Tool(name); t != nil && r.listing.Load().jobs[name] == nil {
		if t.Away != "" {
			if err := r.changed(now, t.Source); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, c *tool.Caller, arguments json.RawMessage) (any, error) {
			return r.run(ctx, c, t, arguments)
		}, nil
	}
	if j := r.Listing(ctx).jobs[name]; j != nil {
		return func(ctx context.Context, c *tool.Caller, arguments json.RawMessage) (any, error) {
			return j.Start(ctx, c, name, arguments, false)
		}, nil
	}
	if r.set.Has(name) {
		return nil, nil
	}
	candidates, gone := now.Find(name)
	away := ""
	if len(gone) > 0 {
		if err := r.changed(now, gone[0].Source); err != nil {
			return nil, err
		}
		away = fmt.Sprintf("source '%s', which offers one of that name, cannot be reached: %s", gone[0].Source,
			tool.OneLine(tool.Plain(gone[0].Reason), 500))
	}
	switch {
	case len(candidates) > 0:
		return nil, ambiguous(name, candidates, away)
	case away != "":
		return nil, session.NotNow(codes.SourceAway,
			"Workflow tool '%s' is not available now: %s. It returns when the source does; refresh_workflow_tools "+
				"tries at once.",
			jsontext.Clip(name, tool.MaxName), away).With("source", gone[0].Source)
	}

	return nil, r.untrusted(ctx,
		fmt.Sprintf("There is no workflow tool '%s'. A source that the user has not approved may offer it:",
			jsontext.Clip(name, tool.MaxName)))
}

// ambiguous refuses a name that several workflows have or had. away says which of their sources cannot
// be reached, or is "".
func ambiguous(name string, candidates []*sources.Tool, away string) error {
	var names, shown []string
	for _, t := range candidates[:min(namesShown, len(candidates))] {
		names = append(names, t.Name)
		shown = append(shown, fmt.Sprintf("%s (source '%s')", t.Name, t.Source))
	}

	why := cmp.Or(away, "workflows of several sources have or had that name")
	return session.Wrong(codes.AmbiguousWorkflowTool,
		"'%s' does not name one workflow tool: %s. Call one of these: %s.",
		jsontext.Clip(name, tool.MaxName), why, strings.Join(shown, ", ")).With("value",
		jsontext.Clip(name, tool.MaxName)).With("available", names)
}

// noTool refuses an unknown name.
func (r *Tools) noTool(ctx context.Context, name string) error {
	if r.set.Has(name) {
		return session.Wrong(codes.NotAWorkflowTool,
			"'%s' is not a workflow but a tool of this server: call it directly.", name).With("argument",
			"name").With("value", name)
	}

	shown := jsontext.Clip(name, tool.MaxName)
	l, disabled := r.listing.Load(), ""
	if r.disabled(ctx) {
		disabled = disabledText + ". Set it to true, which takes effect at once."
	}
	if len(l.Tools) == 0 {
		why := cmp.Or(disabled, "no source is connected, or none offers workflows. "+
			"list_workflow_tools lists sources that cannot be reached, refresh_workflow_tools asks all again, and "+
			"workflow_tools.sources in .deepwork/config.yml names them.")
		return session.NotNow(codes.UnknownWorkflowTool, "There is no workflow tool '%s', and no other one: %s",
			shown, why).
			With("argument", "name").With("value", shown)
	}

	var names []string
	for _, t := range l.Tools[:min(namesShown, len(l.Tools))] {
		names = append(names, t.Name)
	}
	are := fmt.Sprintf("There are %d", len(l.Tools))
	if len(l.Tools) == 1 {
		are = "There is one"
	} else if len(l.Tools) > len(names) {
		are += ", among them"
	}

	if disabled != "" {
		disabled = " And " + disabled
	}
	return session.Wrong(codes.UnknownWorkflowTool,
		"There is no workflow tool '%s'. %s: %s.%s Call again with one of the names that list_workflow_tools lists.",
		shown, are, strings.Join(names, ", "), disabled).With("available", names).With("argument",
		"name").With("value", shown)
}
