package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/workflow"
)

// The groups of what needs a person, in the order shown: first what keeps most others waiting.
const (
	blocksAll = iota
	asksPerson
	hasStopped
	hasConflicts
	toReview
	toMerge
)

// groups are the headings of what needs a person.
var groups = []string{
	blocksAll:    "Holds up agents",
	asksPerson:   "An agent waits for your answer",
	hasStopped:   "Stopped",
	hasConflicts: "Conflicts",
	toReview:     "To review",
	toMerge:      "Done, to merge",
}

// waits returns what needs the caller; without the task board, the steps of sessions alone.
func (s *Site) waits(ctx context.Context, who session.Caller) (all []board.Attention, err error) {
	if s.Board != nil {
		r, err := s.Board.NeedsAttentionBy(ctx, who, s.Engine.Awaiting)
		if err != nil {
			return nil, err
		}
		return r.Items, nil
	}

	steps, err := s.Engine.Awaiting(ctx, who, nil)
	return xslices.Map(steps, board.StepAttention), err
}

// needsOf returns the items for what needs a person, by their groups. A piece of work has one: the first, which counts
// the others.
func needsOf(waits []board.Attention, of flows) []*item {
	all := xslices.Map(waits, func(a board.Attention) *item {
		i, id := attentionItem(a, of[a.ID]), a.ID
		if a.Waits != nil {
			id = cmp.Or(a.Waits.AttemptID, id)
		}
		i.piece = of.piece(id)
		return i
	})
	slices.SortStableFunc(all, byGroup)

	first := map[string]*item{}
	return slices.DeleteFunc(all, func(i *item) bool {
		kept := first[i.piece]
		if kept == nil {
			first[i.piece] = i
			return false
		}
		kept.Others++
		return true
	})
}

func byGroup(a, b *item) int { return cmp.Compare(a.group, b.group) }

// attentionKinds describe what needs a person: what it is, its status, what to do, its group, and the label of the link
// to its page with the right that it needs.
var attentionKinds = map[string]struct {
	kind, status, about string
	group               int
	label, right        string
}{
	board.AttentionFailed: {"agent", "", "read its last messages, then send a follow-up or start another",
		hasStopped, "Open", ""},
	board.AttentionConflicts: {"agent", "", "resolve them, or undo the merge", hasConflicts, "Resolve…", ""},
	board.AttentionRun:       {"run", "", "", hasStopped, "Resume", "agents"},
	board.AttentionReview:    {"agent", "", "", toReview, "Review", ""},
	board.AttentionStep: {"session", string(board.WaitingForYou),
		"its review failed: override it, or have the agent do it again", asksPerson, "Decide…", "person"},
	board.AttentionSource: {"execution", string(board.WaitingForYou), "answer it at that system", asksPerson, "Open",
		""},
	board.AttentionUntrusted: {"project", "not approved", "read what it asks for, then approve it at a terminal",
		blocksAll, "Read…", ""},
	board.AttentionLimit: {"run", "", "it is tried again a few times, then it stops and asks you", hasStopped, "Open",
		""},
	board.AttentionSchedule: {"schedule", "paused", "", hasStopped, "Resume", "agents"},
	board.AttentionBudget:   {"budget", "reached", "no agent starts until you raise it", blocksAll, "Open", ""},
}

// attentionItem returns the item for something that needs a person, with a link to its page. of is its attempt's
// workflow, or nil.
func attentionItem(a board.Attention, of *workflow.SessionInfo) *item {
	words := attentionKinds[a.Kind]
	i := &item{
		Kind:    words.kind,
		Status:  words.status,
		About:   words.about,
		group:   words.group,
		Title:   a.Title,
		Link:    a.Page(),
		Command: a.Command,
		Do:      &personAction{Label: words.label, Link: a.Page(), Right: words.right},
		task:    a.TaskID,
		flow:    of,
	}
	if a.Why != nil {
		i.About, _, _ = strings.Cut(*a.Why, "\n")
	}
	if a.Since != nil {
		i.Since, _ = time.Parse(time.RFC3339, *a.Since) // this program has written it
	}
	if a.State != nil || a.Waits != nil || a.Kind == board.AttentionSchedule {
		i.Command = "" // its page has forms
	}
	if a.State != nil {
		i.Status = string(*a.State)
		i.attempt = a.ID
	}
	if a.End != nil {
		i.Kind = "run"
	}

	switch {
	case a.Waits != nil && a.Waits.Review && !a.Waits.Rounds:
		i.Do.Label = "Pass…"
	case a.Kind == board.AttentionRun && *a.State == board.Paused: // which needs a larger budget
		i.Do.Label, i.Do.Link = "Resume…", i.Link+"#resume"
	case a.Kind == board.AttentionRun, a.Kind == board.AttentionSchedule:
		i.Do.Post, i.Do.Link = i.Link+"/resume", ""
	case a.Kind == board.AttentionReview && (a.End != nil || of != nil && of.Status == "completed"):
		i.group, i.About = toMerge, "its workflow is complete"
		i.Do = &personAction{Label: "Merge…", Link: i.Link + "?tab=changes", Right: "merge"}
		if a.InPlace {
			i.Do = doneDeed(a.TaskID)
		}
	}
	return i
}

// counted offers what fits the changes, which were just counted: a merge by one click only has what is committed.
func (i *item) counted() {
	switch {
	case i.Changes.Files == 0:
		i.About, i.Do = "no changes: done?", doneDeed(i.task)
	case !i.Changes.Loose && i.Do.Right == "merge":
		i.Do = &personAction{Label: "Merge", Post: i.Link + "/git/merge", Right: "merge"}
	}
}

// doneDeed moves a task to done.
func doneDeed(task string) *personAction {
	return &personAction{Label: "Done", Post: "/tasks/" + task, Fields: map[string]string{"status": "done"}}
}
