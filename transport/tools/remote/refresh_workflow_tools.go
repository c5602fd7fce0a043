package remote

import (
	"context"
	"fmt"
	"time"

	"deepwork/actor/xslices"
	sources "deepwork/catalog/source"
	"deepwork/transport/tool"
)

// refreshWithin bounds the wait for sources: clients give up on a call after a minute or less.
const refreshWithin = 20 * time.Second

// skippedShown is the maximum number of skipped workflows in a reply.
const skippedShown = 200

// A RefreshReply is the reply of refresh_workflow_tools.
type RefreshReply struct {
	Added   []string          `json:"added" jsonschema:"names of new tools"`
	Removed []string          `json:"removed" jsonschema:"names of tools that are gone"`
	Changed []string          `json:"changed" jsonschema:"names of tools whose description changed"`
	Skipped []sources.Skipped `json:"skipped" jsonschema:"what is not offered, and sources that did not answer"`
}

// addRefreshWorkflowTools registers refresh_workflow_tools (seed 003, 4.3).
func addRefreshWorkflowTools(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "refresh_workflow_tools", Title: "Refresh workflow tools",
		Description: "Asks all sources for their workflows now; only needed right after a change.",
		Hints:       tool.Hints{Idempotent: true, Open: true},
		Outcome: func(reply any) string {
			r := reply.(*RefreshReply)
			if len(r.Added)+len(r.Removed)+len(r.Changed) == 0 {
				return "unchanged"
			}
			return "changed"
		},
		Recheck: "call list_workflow_tools to see the tools",
	}, r.refresh)
}

func (r *Tools) refresh(ctx context.Context, _ *tool.Caller, _ tool.NoArgs) (*RefreshReply, error) {
	report, err := r.catalog.Refresh(ctx, r.Patience)
	if err != nil {
		return nil, fmt.Errorf("refreshing the workflow tools: %w", err)
	}

	now := r.Listing(ctx)
	if len(now.From.Sources) == 0 {
		err := r.untrusted(ctx, "No source was asked for its workflows. The user has not approved any:")
		if err != nil {
			return nil, err
		}
	}

	return &RefreshReply{report.Added, report.Removed, report.Changed,
		skipped(r.unused(ctx), append(report.Silent, r.withheld(ctx)...), report.Skipped)}, nil
}

// unused returns why the config, in use or as edited, has no tools.
func (r *Tools) unused(ctx context.Context) []string {
	var all []string
	if err := r.Refused(); err != nil {
		all = append(all, "an edit of .deepwork/config.yml is not valid, and the earlier version stays in use: "+
			err.Error())
	}
	if r.disabled(ctx) {
		all = append(all, disabledText)
	}
	return all
}

const disabledText = "workflow_tools.enabled is false in .deepwork/config.yml, so no source is connected"

// disabled reports whether sources are disabled.
func (r *Tools) disabled(ctx context.Context) bool {
	settings, err := r.Settings(ctx)
	return err == nil && !settings.WorkflowTools.Enabled
}

// unavailableSources returns the unavailable sources, with reasons.
func unavailableSources(now *sources.Snapshot) []sources.Skipped {
	var all []sources.Skipped
	for _, s := range now.Sources {
		if s.Err != nil {
			all = append(all, sources.Skipped{Source: s.Name, Reason: s.Err.Error()})
		}
	}
	return all
}

// skipped returns the unused parts of the config, the silent sources, and the workflows that are
// not offered.
func skipped(config []string, away, workflows []sources.Skipped) []sources.Skipped {
	all := []sources.Skipped{}
	for _, why := range config {
		all = append(all, sources.Skipped{Reason: tool.OneLine(tool.Plain(why), 1000)})
	}
	for _, s := range away {
		all = append(all, sources.Skipped{Source: s.Source, Reason: tool.OneLine(tool.Plain(s.Reason), 500)})
	}
	for i, w := range workflows {
		if i == skippedShown {
			all = append(all, sources.Skipped{
				Source: w.Source,
				Reason: fmt.Sprintf("and %d more workflows; the log names them", len(workflows)-i),
			})
			break
		}
		all = append(all, sources.Skipped{
			Source:   w.Source,
			Workflow: tool.Plain(w.Workflow),
			Reason:   tool.OneLine(tool.Plain(w.Reason), 500),
		})
	}
	return all
}

// What the web UI shows and does: these are the tools, for people.

// Offer returns the sources with their workflows, and what the config has that is not connected.
func (r *Tools) Offer(ctx context.Context) (now *sources.Snapshot, unused []sources.Skipped) {
	r.follow(ctx)
	now = r.Listing(ctx).From
	unused = xslices.Map(r.unused(ctx), func(why string) sources.Skipped { return sources.Skipped{Reason: why} })
	return now, append(unused, r.withheld(ctx)...)
}

// Refresh asks all sources for their workflows now.
func (r *Tools) Refresh(ctx context.Context) (*RefreshReply, error) {
	return r.refresh(ctx, nil, tool.NoArgs{})
}
