package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/transport/web"
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
	Kind    string // what it is, in a word or two
	Title   string
	Project string // its name, on a page of several projects
	About   string
	Others  int // how many more things of the same piece of work need a person
	Link    string
	Status  string
	Since   time.Time
	// Command is what a person runs in a terminal or says to an agent, "" if the page behind the link is enough.
	Command string
	Do      *personAction // what a person can do about it in its row, nil if nothing
	Step    string        // where its workflow is, such as step notes, 2 of 5
	Changes *diffstat
	Cost    *board.Cost

	piece         string                // the id of its piece of work, which has one row
	attempt, task string                // ids, "" if it has none
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

// matches reports whether an item has each word of a filter.
func (i *item) matches(filter string) bool {
	text := strings.ToLower(i.Kind + " " + i.Title + " " + i.About + " " + i.Status)
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(filter)), func(word string) bool {
		return !strings.Contains(text, word)
	})
}

// A nowList is a list of the page Now: what is shown of it, and how many there are.
type nowList struct {
	Name, Title, Hint string
	None              string // said of an empty one, which without it is not shown
	Items             []*item
	Total             int
	More              int    // items that follow
	Next              string // the page with these, or with all
	Alone             bool   // other lists are not shown
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
	// Connect is the URL for the clients of a caller with a token who has nothing yet, else "".
	Connect string
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

	of := flowsOf(sessions)
	needs := needsOf(waits, of)
	taken := map[string]bool{} // the pieces of work that need a person
	for _, i := range needs {
		taken[i.piece] = true
	}

	var working, idle, recent []*item
	for _, i := range sessions {
		switch row := sessionItem(i); {
		case i.AttemptID != "" || taken[of.piece(i.ID)] || of.nested(i) || !sees(who, i): // shown with another row
		case row.Status == idleStatus:
			idle = append(idle, row)
		case i.Status == "active":
			working = append(working, row)
		default:
			recent = append(recent, row)
		}
	}
	under, over, err := s.work(ctx, who, taken)
	if err != nil {
		return nil, err
	}
	working, recent = newestFirst(append(working, under...)), newestFirst(append(recent, over...))
	asked := r.URL.Query()
	p := &nowPage{
		Filter: strings.TrimSpace(asked.Get("q")),
		Only:   asked.Get("list"),
		Empty:  len(needs)+len(working)+len(idle)+len(recent) == 0,
	}
	if p.Empty && !who.Owner {
		p.Connect = mcpURL(r)
	}
	from, _ := strconv.Atoi(asked.Get("from")) // else from the first
	for _, l := range []nowList{
		{Name: "needs", Title: "Needs you", None: "Nothing waits for you.", Items: needs},
		{Name: "working", Title: "Working", None: "No session or agent is at work.", Items: working},
		{Name: "idle", Title: "Idle", Hint: "No server is open for these. To go on, say to your agent:", Items: idle},
		{Name: "recent", Title: "Recently finished", None: "Nothing has finished yet.", Items: recent},
	} {
		if p.Only == l.Name || p.Only == "" && (l.None != "" || len(l.Items) > 0) {
			p.Lists = append(p.Lists, l.part(p.Filter, p.Only != "", from))
		}
	}
	if err := s.detail(ctx, who, p.Lists, of); err != nil {
		return nil, err
	}
	return &shown{
		view:  "now",
		title: titled("Now", len(needs)),
		data:  p,
		topics: []string{store.SessionChanged, store.TaskChanged, store.AttemptChanged, store.RemoteRunChanged,
			configTopic, changesTopic},
	}, nil
}

// titled returns the title of a page for a browser's tab, with how many items need a person.
func titled(title string, needs int) string {
	if needs == 0 {
		return title
	}
	return fmt.Sprintf("(%d) %s", needs, title)
}

// mcpURL returns the URL at which clients connect to the server, as the browser reaches it.
func mcpURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host + web.Link(r, "/mcp")
}

// flows are sessions by their ids and, by the ids of attempts, the root session of each that moved last.
type flows map[string]*workflow.SessionInfo

func flowsOf(newest []*workflow.SessionInfo) flows {
	of := make(flows, len(newest))
	for _, i := range newest {
		of[i.ID] = i
		if i.AttemptID != "" && i.Parent == "" && of[i.AttemptID] == nil {
			of[i.AttemptID] = i
		}
	}
	return of
}

// piece returns the id of the piece of work that a session or an attempt belongs to: the attempt's or, without one,
// that of the outermost session.
func (f flows) piece(id string) string {
	for up := f[id]; up != nil && up.ID != up.Parent; up = f[up.Parent] {
		id = cmp.Or(up.AttemptID, up.ID)
		if up.AttemptID != "" {
			break
		}
	}
	return id
}

// nested reports whether a session is shown with the one that it is nested in: not if only that has ended.
func (f flows) nested(i *workflow.SessionInfo) bool {
	root := f.piece(i.ID)
	return root != i.ID && (i.Status != "active" || f[root].Status == "active")
}

// detail adds to the shown items where their workflows are, what they changed and what they cost.
func (s *Site) detail(
	ctx context.Context, who session.Caller, lists []nowList, of flows,
) error {
	var tasks []string
	for _, l := range lists {
		for _, i := range l.Items {
			if at := cmp.Or(i.flow, of[i.attempt]); at != nil {
				i.Step = s.stepOf(at)
			}
			if i.task != "" {
				tasks = append(tasks, i.task)
			}
			if l.Name == "needs" && i.attempt != "" && s.Board != nil {
				var current bool
				i.Changes, current = s.changes.stat(i.attempt)
				if current && i.Changes != nil && i.group >= toReview {
					i.counted()
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
	l.Alone, l.Total = alone, len(l.Items)
	most := maxItems
	if alone {
		most = maxAlone
	} else if l.Name == "recent" {
		most = maxRecent
	}
	from = min(max(from, 0), l.Total)
	to := min(from+most, l.Total)
	l.Items, l.More = l.Items[from:to], l.Total-to
	if l.More == 0 {
		return l
	}
	next := url.Values{"list": {l.Name}, "q": {filter}}
	if alone {
		next.Set("from", strconv.Itoa(to))
	}
	l.Next = "/?" + next.Encode()
	return l
}

// idleStatus is the status of a session whose server has ended.
const idleStatus = "idle"

func sessionItem(i *workflow.SessionInfo) *item {
	row := &item{
		Kind:   "session",
		Title:  i.Goal,
		About:  i.Job + "/" + i.Workflow,
		Link:   "/sessions/" + i.ID,
		Status: i.Status,
		Since:  i.UpdatedAt,
		flow:   i,
	}
	if i.Status == "active" && i.MovedBy != "" && !i.InUse {
		row.Status, row.Command = idleStatus, "Go on with session "+i.ID
	}
	return row
}

// work returns the attempts and remote executions in progress, and those that have ended, without what is taken:
// shown in another list.
func (s *Site) work(
	ctx context.Context, who session.Caller, taken map[string]bool,
) (working, recent []*item, err error) {
	if s.Board != nil {
		open, ended, err := s.Board.Work(ctx, who)
		if err != nil {
			return nil, nil, err
		}
		for _, w := range open {
			if state := s.Board.StateOf(&w.Situation); state.Open() && !taken[w.AttemptID] {
				working = append(working, workItem(w, state))
			}
		}

		for _, w := range ended {
			if !taken[w.AttemptID] {
				recent = append(recent, workItem(w, s.Board.StateOf(&w.Situation)))
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
			switch {
			case taken[x.ExecutionID]:
			case x.EndedAt == nil:
				working = append(working, i)
			default:
				i.Since = *x.EndedAt
				recent = append(recent, i)
			}
		}
	}
	return working, recent, nil
}

func workItem(w task.Work, state board.State) *item {
	kind := "agent"
	if w.Run != nil {
		kind = "run"
	}
	return &item{
		Kind:    kind,
		Title:   w.Title,
		About:   w.Executor,
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
