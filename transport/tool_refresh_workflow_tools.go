package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/remote"
)

// refreshWithin bounds the wait for sources: clients give up on a call after a
// minute, some before.
const refreshWithin = 20 * time.Second

// skippedShown is how many skipped workflows a reply names.
const skippedShown = 200

// A refreshReply is what refresh_workflow_tools answers.
type refreshReply struct {
	Added   []string      `json:"added" jsonschema:"names of new tools"`
	Removed []string      `json:"removed" jsonschema:"names of tools that are gone"`
	Changed []string      `json:"changed" jsonschema:"names of tools that are described anew"`
	Skipped []skippedInfo `json:"skipped" jsonschema:"what is not offered, and sources that did not answer"`
}

// A skippedInfo is a workflow that is not offered, or a source that is away.
type skippedInfo struct {
	Source   string `json:"source"`   // "": the config
	Workflow string `json:"workflow"` // its id or name; "": the source as a whole
	Reason   string `json:"reason"`
}

// listOf is the schema of a list whose items are told in words: every client
// reads tools/list at every start, and few read this.
func listOf(s *jsonschema.Schema, name, item string) {
	s.Properties[name].Items = &jsonschema.Schema{Type: "object", Description: item}
}

const skippedItem = "{source, workflow, reason}; workflow is empty for a whole source, both are for config.yml"

// addRefreshWorkflowTools registers refresh_workflow_tools (seed 003, 4.3).
func addRefreshWorkflowTools(s *Server) {
	output := outputSchemaIn[refreshReply](words{items: map[string]string{"added": "a name", "removed": "a name", "changed": "a name"}})
	listOf(output, "skipped", skippedItem)
	addTool(s, tool[noArgs, *refreshReply]{
		name: "refresh_workflow_tools", title: "Refresh workflow tools",
		description: "Asks every source for its workflows now, and tells what changed. Call it when a workflow was just added or mended at its source; else tools follow by themselves.",
		hints:       hints{idempotent: true, open: true},
		input:       inputSchema(), output: output,
		call: func(ctx context.Context, _ *connection, _ noArgs) (*refreshReply, error) {
			return s.remote.refresh(ctx)
		},
		outcome: func(r *refreshReply) string {
			if len(r.Added)+len(r.Removed)+len(r.Changed) == 0 {
				return "unchanged"
			}
			return "changed"
		},
	})
}

func (r *remotes) refresh(ctx context.Context) (*refreshReply, error) {
	report, err := r.catalog.Refresh(ctx, r.patience)
	if err != nil {
		return nil, fmt.Errorf("refreshing the workflow tools: %w", err)
	}
	r.relist(ctx)
	return &refreshReply{report.Added, report.Removed, report.Changed, skipped(r.unused(ctx), report.Silent, report.Skipped)}, nil
}

// unused tells why the config, as it stands or as it is written, brings no tools.
func (r *remotes) unused(ctx context.Context) []string {
	var all []string
	if err := r.refused(); err != nil {
		all = append(all, "an edit of .deepwork/config.yml is refused, and what it said before stays in use: "+err.Error())
	}
	if r.disabled(ctx) {
		all = append(all, disabledText)
	}
	return all
}

const disabledText = "workflow_tools.enabled is false in .deepwork/config.yml, so that no source is connected"

// disabled tells whether sources are switched off.
func (r *remotes) disabled(ctx context.Context) bool {
	settings, err := r.settings(ctx)
	return err == nil && !settings.WorkflowTools.Enabled
}

// away are the sources that cannot be asked now, and why.
func away(now *remote.Snapshot) []remote.Skipped {
	var all []remote.Skipped
	for _, s := range now.Sources {
		if s.Err != nil {
			all = append(all, remote.Skipped{Source: s.Name, Reason: s.Err.Error()})
		}
	}
	return all
}

// skipped tells what of the config is not in use, which sources are silent, and
// which workflows are not offered.
func skipped(config []string, sources, workflows []remote.Skipped) []skippedInfo {
	all := []skippedInfo{}
	for _, why := range config {
		all = append(all, skippedInfo{"", "", oneLine(plain(why), 1000)})
	}
	for _, s := range sources {
		all = append(all, skippedInfo{s.Source, "", oneLine(plain(s.Reason), 500)})
	}
	for i, w := range workflows {
		if i == skippedShown {
			all = append(all, skippedInfo{w.Source, "", fmt.Sprintf("and %d more workflows; the log has them", len(workflows)-i)})
			break
		}
		all = append(all, skippedInfo{w.Source, plain(w.Workflow), oneLine(plain(w.Reason), 500)})
	}
	return all
}
