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
	maxItems = 40
	// maxAlone is how many a page shows of one list.
	maxAlone = 100
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
	Answer  *answerForm // nil if nobody is asked to pass outputs

	waits *session.AwaitingStep // nil if it is another kind
	rank  int                   // what is before the others has a lower one
}

// matches reports whether an item has each word of a filter.
func (i item) matches(filter string) bool {
	text := strings.ToLower(i.Kind + " " + i.Title + " " + i.About + " " + i.Status)
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(filter)), func(word string) bool { return !strings.Contains(text, word) })
}

// A nowList is a list of the page Now: what is shown of it, and how many there are.
type nowList struct {
	Name, Title, None string
	Items             []item
	Total             int
	More              int    // items that follow
	Next              string // the page with these
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
	var needs, working, recent []item
	waits, err := s.waits(ctx, who)
	if err != nil {
		return nil, err
	}
	needs = xslices.Map(waits, attentionItem)
	if s.Board != nil {
		// What stops everything is not below hundreds of others.
		slices.SortStableFunc(needs, func(a, b item) int { return cmp.Compare(a.rank, b.rank) })
	}
	for _, i := range sessions {
		switch {
		case i.AttemptID != "" || !sees(who, i): // the former is shown with its attempt
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
	p := &nowPage{Filter: strings.TrimSpace(asked.Get("q")), Only: asked.Get("list"), Empty: len(needs)+len(working)+len(recent) == 0}
	from, _ := strconv.Atoi(asked.Get("from")) // else from the first
	for _, l := range []nowList{
		{Name: "needs", Title: "Needs you", None: "Nothing waits for you.", Items: needs},
		{Name: "working", Title: "Working", None: "No session or agent is at work.", Items: working},
		{Name: "recent", Title: "Recently finished", None: "Nothing has finished yet.", Items: recent},
	} {
		if p.Only == "" || p.Only == l.Name {
			part := l.part(p.Filter, p.Only != "", from)
			for i := range part.Items {
				if it := &part.Items[i]; it.waits != nil && it.waits.Review {
					if state, err := s.Engine.Read(ctx, it.waits.SessionID); err == nil { // else it is gone
						it.Answer = answerFormOf(s.Engine, state, it.waits.Step)
					}
				}
			}
			p.Lists = append(p.Lists, part)
		}
	}
	return &shown{view: "now", title: "Now", data: p, on: []string{store.SessionChanged, store.TaskChanged, store.AttemptChanged, store.ExecutionChanged, configTopic}}, nil
}

// part returns the part of a list that a page shows: of what matches the filter, alone or among the
// others.
func (l nowList) part(filter string, alone bool, from int) nowList {
	if filter != "" {
		l.Items = slices.DeleteFunc(l.Items, func(i item) bool { return !i.matches(filter) })
		l.None = "Nothing here matches the filter."
	}
	l.Total = len(l.Items)
	most := maxItems
	if alone {
		most = maxAlone
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

func sessionItem(i *workflow.SessionInfo) item {
	about := i.Job + "/" + i.Workflow
	status := i.Status
	if i.Status == "active" {
		about += ", step " + i.Step
		if i.MovedBy != "" && !i.InUse {
			status = "paused"
			about += "; the server that moved it last has ended"
		}
	}
	return item{Kind: "session", Title: i.Goal, About: about, Link: "/sessions/" + i.ID, Status: status, Since: i.UpdatedAt}
}

// attentions say what needs a person: what it is, its status and what to do.
var attentions = map[string][3]string{
	board.AttentionFailed:    {"agent", "", "read its last messages, then send a follow-up or start another"},
	board.AttentionConflicts: {"agent", "", "resolve them, or undo the merge"},
	board.AttentionRun:       {"run", "", ""},
	board.AttentionReview:    {"agent", "", "look at its changes, then merge them or send a follow-up"},
	board.AttentionStep:      {"session", string(board.WaitingForYou), "its review failed: override it, or have the agent do it again"},
	board.AttentionUntrusted: {"project", "not approved", "read what it asks for, then approve it at a terminal"},
	board.AttentionLimit:     {"run", "", "it is tried again a few times, then it stops and asks you"},
	board.AttentionSource:    {"execution", string(board.WaitingForYou), "answer it at that system"},
	board.AttentionBudget:    {"budget", "reached", "no agent starts until you raise it"},
}

// endedRun says why a run has ended and what a person does about it. nil means that its leader is gone.
func endedRun(end *board.RunEnd) string {
	if end == nil {
		return "the process that led it is gone: resume it"
	}
	why, _, _ := strings.Cut(end.Reason, "\n")
	if end.Step != "" && !strings.HasPrefix(why, "Step ") {
		why = strings.TrimSpace("at step " + end.Step + ": " + why)
	}
	if end.State == board.Paused {
		return why + " Resume it with a larger budget"
	}
	return why + " Read what its agent said last, then resume it"
}

// attentionItem returns what needs a person, with the page that shows it.
func attentionItem(a board.Attention) item {
	words := attentions[a.Kind]
	i := item{Kind: words[0], Status: words[1], About: words[2], Title: a.Title, Command: a.Command}
	if a.Since != nil {
		i.Since, _ = time.Parse(time.RFC3339, *a.Since) // this program has written it
	}
	switch a.Kind {
	case board.AttentionFailed, board.AttentionReview, board.AttentionConflicts, board.AttentionLimit:
		i.Link, i.Command, i.Status = "/attempts/"+a.ID, "", string(*a.State)
		if a.End != nil {
			i.Kind = "run"
		}
	case board.AttentionRun:
		i.Link, i.Command, i.Status, i.About = "/attempts/"+a.ID, "", string(*a.State), endedRun(a.End)
	case board.AttentionStep:
		i.Link, i.waits = "/sessions/"+a.ID, a.Waits
		if a.Waits.Review {
			i.About = "look at its outputs, then pass or fail them"
		}
	case board.AttentionUntrusted:
		i.Link = "/trust"
	case board.AttentionSource:
		i.Link = "/sources"
	default:
		i.Link = "/board"
	}
	if a.Kind == board.AttentionUntrusted || a.Kind == board.AttentionBudget {
		i.rank = -1
	}
	return i
}

// work returns the attempts and the executions of other systems that are under way, and those that have
// ended and that no item of needs is about.
func (s *Site) work(ctx context.Context, who session.Caller, needs []item) (working, recent []item, err error) {
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
			i := item{Kind: "execution", Title: x.WorkflowName, About: "at " + x.Source, Link: "/sources/executions/" + x.ExecutionID, Status: string(x.State), Since: x.StartedAt}
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

func workItem(w task.Work, state board.State) item {
	kind, about := "agent", w.Executor
	if w.Run != nil {
		if kind = "run"; w.Step != "" && state.Open() {
			about += ", step " + w.Step
		}
	}
	return item{Kind: kind, Title: w.Title, About: about, Link: "/attempts/" + w.AttemptID, Status: string(state), Since: w.Since}
}

// newestFirst sorts items by their times, and returns them.
func newestFirst(items []item) []item {
	slices.SortStableFunc(items, func(a, b item) int { return b.Since.Compare(a.Since) })
	return items
}
