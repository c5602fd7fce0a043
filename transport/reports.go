package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"deepwork/session/attempt"
	"deepwork/session/workflow"
)

// workflowsOf returns where the workflows of a workspace are, as its sessions on disk
// say: of each workflow the session that moved last, nested or not, the oldest first. A
// session that runs inside another one of the same workflow is a part of that one's
// work, and is left out.
func workflowsOf(ctx context.Context, root string, logger *slog.Logger) (all []attempt.News, err error) {
	if _, err := os.Stat(workflow.TmpDir(root)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	archive, err := workflow.OpenArchive(root, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	sessions, err := archive.List(ctx) // newest first
	if err != nil {
		return nil, err
	}
	byID := map[string]workflow.SessionInfo{}
	for _, s := range sessions {
		byID[s.SessionID] = s
	}
	for _, s := range sessions {
		known := slices.ContainsFunc(all, func(n attempt.News) bool {
			return n.JobName == s.JobName && n.WorkflowName == s.WorkflowName && n.Nested == (s.Parent != "")
		})
		around := byID[s.Parent] // the next session of its workflow that it runs inside
		for range sessions {
			if around.JobName == s.JobName && around.WorkflowName == s.WorkflowName {
				break
			}
			around = byID[around.Parent]
		}
		if s.Err == nil && !known && around.JobName == "" {
			all = append(all, attempt.News{JobName: s.JobName, WorkflowName: s.WorkflowName, SessionID: s.SessionID, Status: s.Status, Step: s.Step, Nested: s.Parent != ""})
		}
	}
	slices.Reverse(all)
	return all, nil
}
