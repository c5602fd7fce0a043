package page

import (
	"context"
	"slices"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/remote"
)

// work returns the attempts and the executions of other systems that are under way, and those that have
// ended and that no item of needs is about.
func (s *Site) work(ctx context.Context, who session.Caller, needs []item) (working, recent []item, err error) {
	if s.Board != nil {
		open, ended, err := s.Board.Work(ctx, who)
		if err != nil {
			return nil, nil, err
		}
		for _, w := range open {
			working = append(working, workItem(w))
		}
		for _, w := range ended {
			i := workItem(w)
			if !slices.ContainsFunc(needs, func(n item) bool { return n.Link == i.Link }) {
				recent = append(recent, i)
			}
		}
	}
	if s.Sources != nil {
		list, _, err := s.Sources.Runs.Newest(ctx, who.Identity, maxExecutions)
		if err != nil {
			return nil, nil, err
		}
		for _, x := range list {
			if i := executionItem(x); x.EndedAt == nil {
				working = append(working, i)
			} else {
				recent = append(recent, i)
			}
		}
	}
	return working, recent, nil
}

func workItem(w task.Work) item {
	kind, about := "agent", w.Executor
	if w.Run {
		if kind = "run"; w.Step != "" && w.State.Open() {
			about += ", step " + w.Step
		}
	}
	return item{Kind: kind, Title: w.Title, About: about, Link: "/attempts/" + w.AttemptID, Status: string(w.State), Since: w.Since}
}

func executionItem(x remote.Run) item {
	i := item{Kind: "execution", Title: x.WorkflowName, About: "at " + x.Source, Link: "/sources/executions/" + x.ExecutionID, Status: string(x.State), Since: x.StartedAt}
	if x.EndedAt != nil {
		i.Since = *x.EndedAt
	}
	return i
}

// newestFirst sorts items by their times, and returns them.
func newestFirst(items []item) []item {
	slices.SortStableFunc(items, func(a, b item) int { return b.Since.Compare(a.Since) })
	return items
}
