package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/store"
)

// statuses are the columns of the board.
var statuses = []string{"todo", "inprogress", "inreview", "done", "cancelled"}

// maxCards is how many tasks a column shows.
const maxCards = 40

type boardPage struct {
	Project  attempt.Project
	Projects []attempt.Project
	Columns  []column
}

type column struct {
	Status string
	Total  int
	Tasks  []card
	Next   string // cursor of the tasks that are left out; "" if there are none
}

type card struct {
	attempt.Task
	Move []string // the other statuses
}

// errNoBoard refuses pages and actions of the board.
var errNoBoard = session.NotNow("no_board", "This server does not offer the task board: start it with the toolset board.")

func (s *Site) board(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	if s.Board == nil {
		return nil, errNoBoard
	}
	all, err := s.Board.ListProjects(ctx, who, attempt.ListProjectsArgs{Limit: new(attempt.MaxLimit)})
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
		return nil, session.Wrong("unknown_project", "There is no project %q on this board.", wanted)
	}
	show, from := r.URL.Query().Get("status"), r.URL.Query().Get("cursor")
	for _, status := range statuses {
		if show != "" && show != status {
			continue
		}
		args := attempt.ListTasksArgs{ProjectID: p.Project.ProjectID, Status: &status, Limit: new(maxCards)}
		if show != "" {
			args.Limit, args.Cursor = new(attempt.DefaultLimit), blank(from)
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
			c.Tasks = append(c.Tasks, card{t, others(status)})
		}
		p.Columns = append(p.Columns, c)
	}
	return &shown{view: "board", title: "Board", data: p, on: []string{store.TaskChanged, store.AttemptChanged, configTopic}}, nil
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

type taskPage struct {
	*attempt.TaskReply
	Attempts  []attempt.AttemptSummary
	Blocked   []attempt.Task // of depends_on, those that are not done
	Executors []attempt.ExecutorInfo
	Repos     []attempt.Repo
	Move      []string
}

func (s *Site) task(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	if s.Board == nil {
		return nil, errNoBoard
	}
	id := r.PathValue("id")
	t, err := s.Board.GetTask(ctx, who, attempt.TaskArgs{TaskID: id})
	if err != nil {
		return nil, err
	}
	p := &taskPage{TaskReply: t, Move: others(t.Status)}
	attempts, err := s.Board.ListTaskAttempts(ctx, who, attempt.ListTaskAttemptsArgs{TaskID: id, Limit: new(attempt.DefaultLimit)})
	if err != nil {
		return nil, err
	}
	p.Attempts = attempts.Attempts
	for _, by := range t.BlockedBy {
		if b, err := s.Board.GetTask(ctx, who, attempt.TaskArgs{TaskID: by}); err == nil { // else the caller does not see it
			p.Blocked = append(p.Blocked, b.Task)
		}
	}
	executors, err := s.Board.ListExecutors(ctx, who)
	if err != nil {
		return nil, err
	}
	p.Executors = executors.Executors
	repos, err := s.Board.ListRepos(ctx, who, attempt.ListReposArgs{ProjectID: t.ProjectID, Limit: new(attempt.MaxLimit)})
	if err != nil {
		return nil, err
	}
	p.Repos = repos.Repos
	return &shown{view: "task", title: t.Title, data: p, on: []string{store.TaskChanged, store.AttemptChanged, configTopic}}, nil
}

func (s *Site) createTask(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if s.Board == nil {
		return "", errNoBoard
	}
	project := r.PostForm.Get("project")
	job, workflow, _ := strings.Cut(strings.TrimSpace(r.PostForm.Get("workflow")), "/")
	t, err := s.Board.CreateTask(ctx, who, attempt.CreateTaskArgs{ProjectID: project, Title: r.PostForm.Get("title"), Description: optional(r, "description"),
		JobName: blank(job), WorkflowName: blank(workflow), DependsOn: strings.Fields(r.PostForm.Get("depends_on")), RequestID: optional(r, "request")})
	if err != nil {
		return "", err
	}
	return "/tasks/" + t.TaskID, nil
}

func (s *Site) updateTask(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if s.Board == nil {
		return "", errNoBoard
	}
	a := attempt.UpdateTaskArgs{TaskID: r.PathValue("id"), Title: optional(r, "title"), Status: optional(r, "status")}
	if _, given := r.PostForm["description"]; given {
		a.Description = new(r.PostForm.Get("description"))
	}
	if _, given := r.PostForm["depends_on"]; given {
		a.DependsOn = append([]string{}, strings.Fields(r.PostForm.Get("depends_on"))...)
	}
	if _, err := s.Board.UpdateTask(ctx, who, a); err != nil {
		return "", err
	}
	return back(r, "/tasks/"+a.TaskID), nil
}

func (s *Site) startAttempt(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if s.Board == nil {
		return "", errNoBoard
	}
	executor, variant, _ := strings.Cut(r.PostForm.Get("executor"), ":")
	a := attempt.StartArgs{TaskID: r.PathValue("id"), Executor: executor, Variant: blank(variant), Prompt: optional(r, "prompt"), RequestID: optional(r, "request")}
	for i, repo := range r.PostForm["repo"] {
		if branches := r.PostForm["branch"]; i < len(branches) && branches[i] != "" {
			a.Repos = append(a.Repos, attempt.RepoArgs{RepoID: repo, TargetBranch: branches[i]})
		}
	}
	started, err := s.Board.StartTaskAttempt(ctx, who, a)
	if err != nil {
		return "", err
	}
	return "/attempts/" + started.AttemptID, nil
}

// back returns the page that a form was on, if it says so and it is one of this site.
func back(r *http.Request, otherwise string) string {
	u, err := url.Parse(r.PostForm.Get("back"))
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsAny(u.Path, "\\") {
		return otherwise
	}
	return cmp.Or(u.RequestURI(), otherwise)
}
