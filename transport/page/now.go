package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

const (
	// maxItems is how many items of each list the page Now shows.
	maxItems = 30
	// maxAlone is how many a page shows of one list.
	maxAlone = 100
	// maxRecent is how many finished items the page Now lists. The history has all.
	maxRecent = 12
)

// An item is an entry of a list of the page Now.
type item struct {
	Kind   string // what it is, in a word or two
	Title  string
	About  string
	Link   string
	Status string
	Since  time.Time
	// Command is what a person runs in a terminal, "" if the page behind the link is enough.
	Command string
	Do      *personAction // what a person can do about it in its row, nil if nothing
	Step    string        // where its workflow is, such as step 2 of 5
	Changes *diffstat
	Cost    *board.Cost

	attempt, task string                // ids, "" if it has none
	step          string                // the step that About ends with, "" if with none
	flow          *workflow.SessionInfo // its workflow, nil if it has none or that is not known here
	group         int                   // of what needs a person: see groups
}

// A personAction is what a person can do about an item: a link, or a form that is sent to a path.
type personAction struct {
	Label  string
	Link   string
	Post   string
	Fields map[string]string // of the form
	Right  string            // that it needs, as for frame.May
}

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

// matches reports whether an item has each word of a filter.
func (i *item) matches(filter string) bool {
	text := strings.ToLower(i.Kind + " " + i.Title + " " + i.About + " " + i.Status)
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(filter)), func(word string) bool {
		return !strings.Contains(text, word)
	})
}

// A nowList is a list of the page Now: what is shown of it, and how many there are.
type nowList struct {
	Name, Title, None string
	Items             []*item
	Total             int
	More              int    // items that follow
	Next              string // the page with these
}

// A nowGroup has the items of a list that need the same from a person; without a title, all of them.
type nowGroup struct {
	Title  string
	Urgent bool // somebody waits for it
	Items  []*item
}

// Groups returns the items by what they need.
func (l nowList) Groups() (all []nowGroup) {
	if l.Name != "needs" {
		return []nowGroup{{Items: l.Items}}
	}

	for _, i := range l.Items {
		if last := len(all) - 1; last < 0 || all[last].Title != groups[i.group] {
			all = append(all, nowGroup{Title: groups[i.group], Urgent: i.group <= asksPerson})
		}
		all[len(all)-1].Items = append(all[len(all)-1].Items, i)
	}
	return all
}

type nowPage struct {
	Filter string
	Only   string // the name of the one list that is shown, "" for all
	Lists  []nowList
	Empty  bool
}

func (s *Site) now(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	sessions, err := s.sessions(ctx)
	if err != nil {
		return nil, err
	}

	waits, err := s.waits(ctx, who)
	if err != nil {
		return nil, err
	}

	asks := map[string]bool{} // the sessions that wait for a person, among others
	for _, a := range waits {
		asks[a.ID] = true
	}

	of := workflowsOf(sessions, asks)
	needs := xslices.Map(waits, func(a board.Attention) *item { return attentionItem(a, of[a.ID]) })
	slices.SortStableFunc(needs, func(a, b *item) int { return cmp.Compare(a.group, b.group) })

	var working, recent []*item
	for _, i := range sessions {
		switch {
		case i.AttemptID != "" || asks[i.ID] || !sees(who, i): // the first is shown with its attempt
		case i.Status == "active":
			working = append(working, sessionItem(i))
		default:
			recent = append(recent, sessionItem(i))
		}
	}
	under, over, err := s.work(ctx, who, needs)
	if err != nil {
		return nil, err
	}
	working, recent = newestFirst(append(working, under...)), newestFirst(append(recent, over...))
	asked := r.URL.Query()
	p := &nowPage{
		Filter: strings.TrimSpace(asked.Get("q")),
		Only:   asked.Get("list"),
		Empty:  len(needs)+len(working)+len(recent) == 0,
	}
	from, _ := strconv.Atoi(asked.Get("from")) // else from the first
	for _, l := range []nowList{
		{Name: "needs", Title: "Needs you", None: "Nothing waits for you.", Items: needs},
		{Name: "working", Title: "Working", None: "No session or agent is at work.", Items: working},
		{Name: "recent", Title: "Recently finished", None: "Nothing has finished yet.", Items: recent},
	} {
		if p.Only == "" || p.Only == l.Name {
			p.Lists = append(p.Lists, l.part(p.Filter, p.Only != "", from))
		}
	}
	if err := s.detail(ctx, who, p.Lists, of); err != nil {
		return nil, err
	}
	return &shown{
		view:  "now",
		title: "Now",
		data:  p,
		topics: []string{store.SessionChanged, store.TaskChanged, store.AttemptChanged, store.RemoteRunChanged,
			configTopic, changesTopic},
	}, nil
}

// workflowsOf returns some sessions by their ids and, by the ids of attempts, the root session of each that moved last.
func workflowsOf(newest []*workflow.SessionInfo, some map[string]bool) map[string]*workflow.SessionInfo {
	of := map[string]*workflow.SessionInfo{}
	for _, i := range newest {
		if i.AttemptID != "" && i.Parent == "" && of[i.AttemptID] == nil {
			of[i.AttemptID] = i
		}
		if some[i.ID] {
			of[i.ID] = i
		}
	}
	return of
}

// detail adds to the shown items where their workflows are, what they changed and what they cost.
func (s *Site) detail(
	ctx context.Context, who session.Caller, lists []nowList, of map[string]*workflow.SessionInfo,
) error {
	var tasks []string
	for _, l := range lists {
		for _, i := range l.Items {
			if at := cmp.Or(i.flow, of[i.attempt]); at != nil && at.Status == "active" && at.Definition != "" {
				if i.step != at.Step {
					i.Step = s.stepOf(at)
				} else if place := s.placeOf(at); place != "" {
					i.About += ", " + place
				}
			}
			if i.task != "" {
				tasks = append(tasks, i.task)
			}
			if l.Name == "needs" && i.attempt != "" && s.Board != nil {
				var current bool
				i.Changes, current = s.changes.current(i.attempt)
				if current && i.Changes != nil && i.group == toMerge {
					i.merges()
				}
			}
		}
	}
	if s.Board == nil || tasks == nil {
		return nil
	}
	costs, err := s.Board.Costs(ctx, who, tasks)
	for _, l := range lists {
		for _, i := range l.Items {
			i.Cost = costs[i.task]
		}
	}

	return err
}

// part returns the part of a list that a page shows of what matches the filter, whether alone or beside other lists.
func (l nowList) part(filter string, alone bool, from int) nowList {
	if filter != "" {
		l.Items = slices.DeleteFunc(l.Items, func(i *item) bool { return !i.matches(filter) })
		l.None = "Nothing here matches the filter."
	}
	l.Total = len(l.Items)
	most := maxItems
	if alone {
		most = maxAlone
	} else if l.Name == "recent" {
		most = maxRecent
	}
	from = min(max(from, 0), l.Total)
	to := min(from+most, l.Total)
	if l.Items, l.More = l.Items[from:to], l.Total-to; l.More > 0 {
		l.Next = "/?" + url.Values{"list": {l.Name}, "q": {filter}, "from": {strconv.Itoa(to)}}.Encode()
	}
	return l
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

func sessionItem(i *workflow.SessionInfo) *item {
	about, step := i.Job+"/"+i.Workflow, ""
	if i.Status == "active" {
		about += ", step " + i.Step
		step = i.Step
		if i.MovedBy != "" && !i.InUse {
			about += "; the server that moved it last has ended"
			step = ""
		}
	}
	return &item{
		Kind:   "session",
		Title:  i.Goal,
		About:  about,
		Link:   "/sessions/" + i.ID,
		Status: i.Status,
		Since:  i.UpdatedAt,
		step:   step,
		flow:   i,
	}
}

// attentionKinds describe what needs a person: what it is, its status, what to do, and its group.
var attentionKinds = map[string]struct {
	kind, status, about string
	group               int
}{
	board.AttentionFailed: {"agent", "", "read its last messages, then send a follow-up or start another",
		hasStopped},
	board.AttentionConflicts: {"agent", "", "resolve them, or undo the merge", hasConflicts},
	board.AttentionRun:       {"run", "", "", hasStopped},
	board.AttentionReview:    {"agent", "", "", toReview},
	board.AttentionStep: {"session", string(board.WaitingForYou),
		"its review failed: override it, or have the agent do it again", asksPerson},
	board.AttentionSource: {"execution", string(board.WaitingForYou), "answer it at that system", asksPerson},
	board.AttentionUntrusted: {"project", "not approved", "read what it asks for, then approve it at a terminal",
		blocksAll},
	board.AttentionLimit:  {"run", "", "it is tried again a few times, then it stops and asks you", hasStopped},
	board.AttentionBudget: {"budget", "reached", "no agent starts until you raise it", blocksAll},
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
		task:    a.TaskID,
		flow:    of,
	}
	if a.Why != nil {
		i.About, _, _ = strings.Cut(*a.Why, "\n")
	}
	if a.Since != nil {
		i.Since, _ = time.Parse(time.RFC3339, *a.Since) // this program has written it
	}
	switch a.Kind {
	case board.AttentionStep:
		i.Command = ""
		i.Do = &personAction{Label: "Decide…", Link: i.Link, Right: "person"}
		if a.Waits.Review && !a.Waits.Rounds {
			i.Do.Label = "Pass…"
		}
		return i
	case board.AttentionUntrusted:
		i.Do = &personAction{Label: "Read…", Link: i.Link}
		return i
	case board.AttentionSource:
		i.Do = &personAction{Label: "Open", Link: i.Link}
		return i
	case board.AttentionBudget:
		return i
	}
	i.Command = ""
	i.Status = string(*a.State)
	i.attempt = a.ID
	if a.End != nil {
		i.Kind = "run"
	}
	i.Do = &personAction{Label: "Open", Link: i.Link}
	switch {
	case a.Kind == board.AttentionRun:
		i.Do = &personAction{Label: "Resume", Post: i.Link + "/resume", Right: "agents"}
		if *a.State == board.Paused { // which needs a larger budget
			i.Do = &personAction{Label: "Resume…", Link: i.Link + "#resume", Right: "agents"}
		}
	case a.Kind == board.AttentionConflicts:
		i.Do.Label = "Resolve…"
	case a.Kind == board.AttentionReview && (a.End != nil || of != nil && of.Status == "completed"):
		i.group, i.About = toMerge, "its workflow is complete"
		i.Do = &personAction{Label: "Merge…", Link: i.Link + "?tab=changes", Right: "merge"}
		if a.InPlace {
			i.Do = doneDeed(a.TaskID)
		}
	case a.Kind == board.AttentionReview:
		i.Do.Label = "Review"
	}
	return i
}

// merges offers what fits the changes, which were just counted: a merge by one click only has what is committed.
func (i *item) merges() {
	switch {
	case i.Changes.Files == 0:
		i.Do = doneDeed(i.task)
	case !i.Changes.Loose && i.Do.Right == "merge":
		i.Do = &personAction{Label: "Merge", Post: i.Link + "/git/merge", Right: "merge"}
	}
}

// doneDeed moves a task to done.
func doneDeed(task string) *personAction {
	return &personAction{Label: "Done", Post: "/tasks/" + task, Fields: map[string]string{"status": "done"}}
}

// work returns the attempts and remote executions in progress, and the ended ones that no item of needs is about.
func (s *Site) work(ctx context.Context, who session.Caller, needs []*item) (working, recent []*item, err error) {
	if s.Board != nil {
		open, ended, err := s.Board.Work(ctx, who)
		if err != nil {
			return nil, nil, err
		}
		for _, w := range open {
			// What waits for a person is among what needs one.
			if state := s.Board.StateOf(&w.Situation); state.Open() && state != board.WaitingForYou {
				working = append(working, workItem(w, state))
			}
		}

		for _, w := range ended {
			i := workItem(w, s.Board.StateOf(&w.Situation))
			if !slices.ContainsFunc(needs, func(n *item) bool { return n.Link == i.Link }) {
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
			i := &item{
				Kind:   "execution",
				Title:  x.WorkflowName,
				About:  "at " + x.Source,
				Link:   "/sources/executions/" + x.ExecutionID,
				Status: string(x.State),
				Since:  x.StartedAt,
			}
			if x.EndedAt == nil {
				working = append(working, i)
			} else {
				i.Since = *x.EndedAt
				recent = append(recent, i)
			}
		}
	}
	return working, recent, nil
}

func workItem(w task.Work, state board.State) *item {
	kind, about, step := "agent", w.Executor, ""
	if w.Run != nil {
		kind = "run"
		if w.Step != "" && state.Open() {
			step = w.Step
			about += ", step " + step
		}
	}
	return &item{
		Kind:    kind,
		Title:   w.Title,
		About:   about,
		step:    step,
		attempt: w.AttemptID,
		task:    w.TaskID,
		Link:    "/attempts/" + w.AttemptID,
		Status:  string(state),
		Since:   w.Since,
	}
}

// newestFirst sorts items by their times, and returns them.
func newestFirst(items []*item) []*item {
	slices.SortStableFunc(items, func(a, b *item) int { return b.Since.Compare(a.Since) })
	return items
}
