package page

import (
	"context"
	"net/http"
	"slices"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// statuses are the columns of the board.
var statuses = []string{"todo", "inprogress", "inreview", "done", "cancelled"}

// maxCards is how many tasks a column shows.
const maxCards = 15

type boardPage struct {
	Project  board.Project
	Projects []board.Project
	Columns  []column
	Reached  []board.Attention // budgets: no agent starts
	Only     string            // the status of the one column that is shown, "" for all
	Later    bool              // it does not begin with the newest
	Workflow string            // of a new task, as job/workflow; "" for none yet
	Fields   []inputField      // of its inputs
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
}

// errNoBoard refuses pages and actions of the board.
var errNoBoard = session.NotNow(codes.NoBoard, "This server does not offer the task board: start it with the toolset board.")

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
	p.Workflow = r.URL.Query().Get("workflow")
	p.Fields = inputFields(s.workflowNamed(r, p.Workflow), nil)
	show, from := r.URL.Query().Get("status"), r.URL.Query().Get("cursor")
	if !slices.Contains(statuses, show) {
		show, from = "", ""
	}
	p.Only, p.Later = show, from != ""
	for _, status := range statuses {
		if show != "" && show != status {
			continue
		}
		args := board.ListTasksArgs{ProjectID: p.Project.ProjectID, Status: &status, Limit: new(maxCards)}
		if show != "" {
			args.Limit, args.Cursor = new(board.DefaultLimit), blank(from)
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
			c.Tasks = append(c.Tasks, card{Task: t, Move: others(status)})
		}
		p.Columns = append(p.Columns, c)
	}
	s.blockers(ctx, who, p)
	if err := s.costs(ctx, who, p); err != nil {
		return nil, err
	}
	return &shown{view: "board", title: "Board", data: p, on: []string{store.TaskChanged, store.AttemptChanged, configTopic}}, nil
}

// costs reads what the tasks with agents have cost.
func (s *Site) costs(ctx context.Context, who session.Caller, p *boardPage) error {
	var ids []string
	for _, c := range p.Columns {
		for _, t := range c.Tasks {
			if t.LatestSessionID != nil {
				ids = append(ids, t.TaskID)
			}
		}
	}
	all, err := s.Board.Costs(ctx, who, ids)
	if err != nil {
		return err
	}
	for _, c := range p.Columns {
		for i := range c.Tasks {
			c.Tasks[i].Cost = all[c.Tasks[i].TaskID]
		}
	}
	return nil
}

const (
	// maxBlockers is how many of the tasks that it waits for a card names.
	maxBlockers = 3
	// maxLookups is how many tasks that are not on the page are read for that.
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
				if _, is := known[id]; !is && lookups < maxLookups {
					lookups++
					known[id] = nil
					if t, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: id}); err == nil { // else the caller does not see it
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

// others returns the statuses that a task can be moved to.
func others(status string) (all []string) {
	for _, other := range statuses {
		if other != status {
			all = append(all, other)
		}
	}
	return all
}

// blank returns nil for "".
func blank(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// back returns the page that a form was on, if it says so and it is one of this site.
func back(r *http.Request, otherwise string) string { return here(r.PostForm.Get("back"), otherwise) }
