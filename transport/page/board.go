package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// statuses are the columns of the board.
var statuses = []string{"todo", "inprogress", "inreview", "done", "cancelled"}

// maxCards is how many tasks a column shows.
const maxCards = 15

// maxBytesOfQuery is how much of a filter is looked at.
const maxBytesOfQuery = 200

type boardPage struct {
	Project   board.Project
	Projects  []board.Project
	Columns   []column
	Reached   []board.Attention // budgets: no agent starts
	Filter    boardFilter
	Labels    []string     // of the tasks that are shown
	Only      string       // the status of the one column that is shown, "" for all
	Later     bool         // it does not begin with the newest
	Workflow  string       // of a new task, as job/workflow; "" for none yet
	Fields    []inputField // of its inputs
	New       bool         // the form for a new task is open
	Workflows []string     // of all jobs, as job/workflow
	Executors []attempt.ExecutorInfo
}

// A boardFilter selects tasks, as the URL says.
type boardFilter struct{ Text, Labels, Priority string }

// filterOf reads a filter, and drops what no task can match.
func filterOf(asked url.Values) boardFilter {
	labels := slices.DeleteFunc(strings.Fields(asked.Get("labels")), func(l string) bool {
		return len(l) > task.MaxLabel
	})
	f := boardFilter{
		Text:   strings.TrimSpace(jsontext.Clip(asked.Get("q"), maxBytesOfQuery)),
		Labels: strings.Join(labels[:min(len(labels), task.MaxLabels)], " "),
	}
	if p := asked.Get("priority"); slices.Contains(values("create_task", "priority"), p) {
		f.Priority = p
	}
	return f
}

// On reports whether it leaves out tasks.
func (f boardFilter) On() bool { return f != boardFilter{} }

// Link returns the URL of the board with its filter, and of one column from a cursor if they are not "".
func (p *boardPage) Link(status, cursor string) string {
	return p.link(p.Filter, status, cursor)
}

// Labelled adds a label to the filter, and returns the URL.
func (p *boardPage) Labelled(label string) string {
	f := p.Filter
	if all := strings.Fields(f.Labels); !slices.Contains(all, label) {
		f.Labels = strings.Join(append(all, label), " ")
	}
	return p.link(f, "", "")
}

// Unfiltered returns the URL of the board with all tasks.
func (p *boardPage) Unfiltered() string { return p.link(boardFilter{}, "", "") }

func (p *boardPage) link(f boardFilter, status, cursor string) string {
	q := url.Values{}
	for name, value := range map[string]string{
		"project":  p.Project.ProjectID,
		"q":        f.Text,
		"labels":   f.Labels,
		"priority": f.Priority,
		"status":   status,
		"cursor":   cursor,
	} {
		if value != "" && (name != "project" || !p.Project.IsRoot) {
			q.Set(name, value)
		}
	}
	return strings.TrimSuffix("/board?"+q.Encode(), "?")
}

type column struct {
	Status string
	Total  int
	Tasks  []card
	Next   string // cursor of the tasks that are left out; "" if there are none
}

type card struct {
	board.Task
	Move     []string // the other statuses
	WaitsFor []board.Task
	More     int         // tasks that it waits for, and that are not in WaitsFor
	Cost     *board.Cost // nil before an agent has ended
	Step     string      // where the workflow of its newest attempt is
	Changes  *diffstat   // of its newest attempt, nil if it is not known
}

// State returns the state of its newest attempt, "" without one.
func (c card) State() board.State { return *cmp.Or(c.LatestAttemptState, new(board.State)) }

// Folded reports whether the column is shown folded among the others.
func (c column) Folded() bool { return c.Status == "done" || c.Status == "cancelled" }

// errNoBoard refuses pages and actions of the board.
var errNoBoard = session.NotNow(codes.NoBoard,
	"This server does not offer the task board: start it with the toolset board.")

func (s *Site) board(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	all, err := s.Board.ListProjects(ctx, who, board.ListProjectsArgs{Limit: new(board.MaxLimit)})
	if err != nil {
		return nil, err
	}
	p := &boardPage{Projects: all.Projects}
	wanted := r.URL.Query().Get("project")
	for _, one := range all.Projects {
		if one.ProjectID == wanted || wanted == "" && one.IsRoot {
			p.Project = one
		}
	}
	if p.Project.ProjectID == "" {
		return nil, session.Wrong(codes.UnknownProject, "There is no project %q on this board.", wanted)
	}
	if p.Reached, err = s.Board.ReachedBudgets(ctx, who); err != nil {
		return nil, err
	}

	asked := r.URL.Query()
	if err := s.newTaskForm(ctx, who, r, p); err != nil {
		return nil, err
	}
	p.Filter = filterOf(asked)
	show, from := asked.Get("status"), asked.Get("cursor")
	if !slices.Contains(statuses, show) {
		show, from = "", ""
	}
	p.Only, p.Later = show, from != ""
	for _, status := range statuses {
		if show != "" && show != status {
			continue
		}

		args := board.ListTasksArgs{ProjectID: p.Project.ProjectID, Status: &status, Limit: new(maxCards),
			Text: p.Filter.Text, Labels: strings.Fields(p.Filter.Labels), Priority: nonEmpty(p.Filter.Priority)}
		if show != "" {
			args.Limit, args.Cursor = new(board.DefaultLimit), nonEmpty(from)
		}
		tasks, err := s.Board.ListTasks(ctx, who, args)
		if err != nil {
			return nil, err
		}
		c := column{Status: status, Total: tasks.Total}
		if tasks.NextCursor != nil {
			c.Next = *tasks.NextCursor
		}
		for _, t := range tasks.Tasks {
			c.Tasks = append(c.Tasks, card{Task: t, Move: otherStatuses(status)})
			p.Labels = append(p.Labels, t.Labels...)
		}
		p.Columns = append(p.Columns, c)
	}
	slices.Sort(p.Labels)
	p.Labels = slices.Compact(p.Labels)
	s.blockers(ctx, who, p)
	if err := s.progress(ctx, who, p); err != nil {
		return nil, err
	}

	return &shown{
		view:  "board",
		title: "Board",
		data:  p,
		topics: []string{store.TaskChanged, store.AttemptChanged, store.SessionChanged, configTopic, jobsTopic,
			changesTopic},
	}, nil
}

// newTaskForm reads what the form for a new task offers.
func (s *Site) newTaskForm(ctx context.Context, who session.Caller, r *http.Request, p *boardPage) error {
	p.Workflow = r.URL.Query().Get("workflow")
	p.Fields = inputFields(s.workflowNamed(r, p.Workflow), nil)
	p.New = p.Workflow != "" || r.URL.Query().Get("new") != ""
	p.Workflows = s.workflows(ctx)
	executors, err := s.Board.ListExecutors(ctx, who)
	if err != nil {
		return err
	}
	p.Executors = executors.Executors
	return nil
}

// workflows returns the names of all workflows, as job/workflow.
func (s *Site) workflows(ctx context.Context) (all []string) {
	for _, j := range s.Jobs(ctx).Jobs {
		for _, w := range j.Workflows {
			all = append(all, j.Name+"/"+w.Name)
		}
	}
	return all
}

// addTask adds a task and, if the form says so, starts an agent on it.
func (s *Site) addTask(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	var a board.CreateTaskArgs
	if err := cmp.Or(fill(r, &a), workflowOfTask(r, &a)); err != nil {
		return "", err
	}
	starts := r.PostForm.Get("start") != ""
	for _, name := range []string{"max_cost_usd", "max_unknown", "max_minutes"} {
		if !starts && strings.TrimSpace(r.PostForm.Get(name)) != "" {
			return "", session.Wrong(codes.InvalidArgument, "A budget is only for the run that Add and start begins: "+
				"choose that, or leave the budget blank and give it when you start the task.").With("argument", name)
		}
	}
	t, err := s.Board.CreateTask(ctx, who, a)
	if err != nil {
		return "", err
	}

	next := "/tasks/" + t.TaskID
	if !starts {
		return next, nil
	}

	start := attempt.StartArgs{TaskID: t.TaskID, Executor: r.PostForm.Get("executor")}
	err = executorAndRepos(r, &start)
	var started *attempt.AttemptReply
	if err == nil {
		started, err = s.Board.StartTaskAttempt(ctx, who, start)
	}
	if err != nil {
		why := err.Error()
		if refused, ok := errors.AsType[*session.Error](err); ok {
			why = refused.For(s.audience(ctx, who))
		}
		return s.withNotice(who, next, "The task is on the board, but no agent was started. "+why), nil
	}
	return s.withNotice(who, "/attempts/"+started.AttemptID, started.Unseen), nil
}

// progress reads the costs, the workflow steps and the changes of the tasks with agents.
func (s *Site) progress(ctx context.Context, who session.Caller, p *boardPage) error {
	sessions, err := s.sessions(ctx)
	if err != nil {
		return err
	}

	of := flowsOf(sessions)
	var ids []string
	for _, c := range p.Columns {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if t.LatestAttemptID == nil {
				continue
			}

			ids = append(ids, t.TaskID)
			if c.Folded() {
				continue
			}

			t.Changes, _ = s.changes.stat(*t.LatestAttemptID)
			if at := of[*t.LatestAttemptID]; at != nil {
				t.Step = s.stepOf(at)
			}
		}
	}
	all, err := s.Board.Costs(ctx, who, ids)
	for _, c := range p.Columns {
		for i := range c.Tasks {
			c.Tasks[i].Cost = all[c.Tasks[i].TaskID]
		}
	}

	return err
}

const (
	// maxBlockers is how many of the tasks that it waits for a card names.
	maxBlockers = 3
	// maxLookups is how many tasks that are not on the page are read to name them.
	maxLookups = 30
)

// blockers names what blocked tasks wait for.
func (s *Site) blockers(ctx context.Context, who session.Caller, p *boardPage) {
	known := map[string]*board.Task{}
	for _, c := range p.Columns {
		for i := range c.Tasks {
			known[c.Tasks[i].TaskID] = &c.Tasks[i].Task
		}
	}

	lookups := 0
	for _, column := range p.Columns {
		for i := range column.Tasks {
			c := &column.Tasks[i]
			for _, id := range c.BlockedBy {
				if _, ok := known[id]; !ok && lookups < maxLookups {
					lookups++
					known[id] = nil
					// else the caller does not see it
					if t, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: id}); err == nil {
						known[id] = &t.Task
					}
				}
				if t := known[id]; t != nil && len(c.WaitsFor) < maxBlockers {
					c.WaitsFor = append(c.WaitsFor, *t)
				} else {
					c.More++
				}
			}
		}
	}
}

// otherStatuses returns the statuses that a task can be moved to.
func otherStatuses(status string) (all []string) {
	for _, other := range statuses {
		if other != status {
			all = append(all, other)
		}
	}
	return all
}

// nonEmpty returns nil for "".
func nonEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// back returns the page that a form was on, if it says so and it is one of this site.
func back(r *http.Request, otherwise string) string {
	return localURL(r.PostForm.Get("back"), otherwise)
}
