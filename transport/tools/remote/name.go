package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"deepwork/catalog/jsontext"
	sources "deepwork/catalog/remote"
	"deepwork/session"
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
		return r.runOf(t), nil
	}
	if j := r.Listing(ctx).jobs[name]; j != nil {
		return func(ctx context.Context, c *tool.Caller, arguments json.RawMessage) (any, error) {
			return j.Start(ctx, c, name, arguments, false)
		}, nil
	}
	if r.set.Has(name) {
		return nil, nil
	}
	found := now.Find(name)
	switch {
	case found.Tool != nil:
		return r.runOf(found.Tool), nil
	case len(found.Candidates) > 0:
		return nil, ambiguous(name, found)
	case len(found.Gone) > 0:
		gone := found.Gone[0]
		if err := r.changed(now, gone.Source); err != nil {
			return nil, err
		}
		return nil, session.NotNow("source_away", "Workflow tool '%s' is not there now: its source '%s' is away: %s. It comes back by itself when the source does; refresh_workflow_tools tries at once.",
			jsontext.Clip(name, tool.MaxName), gone.Source, tool.OneLine(tool.Plain(gone.Reason), 500)).With("source", gone.Source)
	}
	return nil, r.untrusted(ctx, fmt.Sprintf("There is no workflow tool '%s' here. Sources that the user has not approved may offer it:", jsontext.Clip(name, tool.MaxName)))
}

// runOf returns the target that runs a workflow.
func (r *Tools) runOf(t *sources.Tool) target {
	return func(ctx context.Context, c *tool.Caller, arguments json.RawMessage) (any, error) {
		return r.run(ctx, c, t, arguments)
	}
}

// ambiguous refuses a name that several workflows have or had.
func ambiguous(name string, found sources.Found) error {
	var names, shown []string
	for _, t := range found.Candidates[:min(namesShown, len(found.Candidates))] {
		names = append(names, t.Name)
		shown = append(shown, fmt.Sprintf("%s (source '%s')", t.Name, t.Source))
	}
	why := "several workflows share it"
	if len(found.Candidates) == 1 {
		why = "another source's workflow has or had it"
	}
	text := ""
	if len(found.Gone) > 0 {
		gone := found.Gone[0]
		text = fmt.Sprintf(" Source '%s', which offered one of that name, is away: %s.", gone.Source, tool.OneLine(tool.Plain(gone.Reason), 500))
	}
	return session.Wrong("ambiguous_workflow_tool", "'%s' is not the name of one workflow tool: %s.%s Call the one that you mean: %s.",
		jsontext.Clip(name, tool.MaxName), why, text, strings.Join(shown, ", ")).With("value", jsontext.Clip(name, tool.MaxName)).With("available", names)
}

// noTool refuses an unknown name.
func (r *Tools) noTool(ctx context.Context, name string) error {
	if r.set.Has(name) {
		return session.Wrong("not_a_workflow_tool", "'%s' is a tool of this server and no workflow: call it directly.", name).With("argument", "name").With("value", name)
	}
	shown := jsontext.Clip(name, tool.MaxName)
	l, disabled := r.listing.Load(), ""
	if r.disabled(ctx) {
		disabled = disabledText + ". Set it to true, which takes effect at once."
	}
	if len(l.Tools) == 0 {
		why := cmp.Or(disabled, "no source of workflows is connected, or none offers any. "+
			"list_workflow_tools tells how the sources are doing; refresh_workflow_tools asks them again; new ones are named under workflow_tools.sources in .deepwork/config.yml.")
		return session.NotNow("unknown_workflow_tool", "There is no workflow tool '%s', and no other: %s", shown, why).
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
	return session.Wrong("unknown_workflow_tool", "There is no workflow tool '%s'. %s: %s.%s list_workflow_tools lists all; call again with one of its names.",
		shown, are, strings.Join(names, ", "), disabled).With("available", names).With("argument", "name").With("value", shown)
}
