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

// pastNews is where the sessions of a workspace stand on disk: of each workflow the
// one that moved last, nested or not, the oldest first. It passes over what moved
// does.
func pastNews(ctx context.Context, root string, logger *slog.Logger) (all []attempt.News, err error) {
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
	for _, s := range sessions {
		nested := s.Parent != ""
		known := slices.ContainsFunc(all, func(n attempt.News) bool {
			return n.JobName == s.JobName && n.WorkflowName == s.WorkflowName && n.Nested == nested
		})
		if s.Err == nil && !known && !runsInside(archive, s.JobName, s.WorkflowName, s.Parent) {
			all = append(all, attempt.News{JobName: s.JobName, WorkflowName: s.WorkflowName, SessionID: s.SessionID, Status: s.Status, Step: s.Step, Nested: nested})
		}
	}
	slices.Reverse(all)
	return all, nil
}

// insideItself tells of a session of a workflow, begun in the session parent,
// whether it runs inside another of the same workflow. It asks the disk, where
// parents are before their children; what cannot be read there hides nothing.
func insideItself(root string, logger *slog.Logger, job, name, parent string) bool {
	archive, err := workflow.OpenArchive(root, logger)
	if err != nil {
		logger.Warn("cannot see what a workflow in this workspace runs inside", "parent", parent, "error", err)
		return false
	}
	defer archive.Close()
	return runsInside(archive, job, name, parent)
}

// runsInside reports whether the session parent, or one that it runs inside, is of a
// workflow.
func runsInside(archive *workflow.Archive, job, name, parent string) bool {
	for depth := 0; parent != "" && depth < maxNews; depth++ {
		s, err := archive.Read(parent)
		if err != nil {
			return false
		}
		if s.JobName == job && s.WorkflowName == name {
			return true
		}
		if parent = ""; s.ParentSessionID != nil {
			parent = *s.ParentSessionID
		}
	}
	return false
}
