package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/store"
)

type taskPage struct {
	*board.TaskReply
	Attempts  []board.AttemptSummary
	Changes   map[string]*diffstat // of the newest attempts, by their ids
	Compared  []compared           // the newest attempts side by side, none if the page does not compare
	Workflows []string             // of all jobs, as job/workflow
	Notice    *string              // why those that wait do not start
	Needs     []dependency
	Others    []board.Task // that it could wait for
	Executors []attempt.ExecutorInfo
	Last      string // the executor of its newest attempt, with the variant
	Repos     []startRepo
	Move      []string
	Fields    []inputField // of the inputs of its workflow
	Long      bool         // the description is clipped, and edited on a page of its own
}

// A compared is an attempt beside others of its task.
type compared struct {
	*attempt.FullAttemptReply
	Changes *diffstat
}

// Took returns how long its agent last worked, "" before it has ended.
func (c compared) Took() string { return took(c.StartedAt, c.EndedAt) }

// took returns how long something lasted, by its formatted times, or "" before it has ended.
func took(began, ended *string) string {
	from, _ := time.Parse(time.RFC3339Nano, board.OrEmpty(began)) // this program has written them
	to, _ := time.Parse(time.RFC3339Nano, board.OrEmpty(ended))
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return duration(from, &to)
}

// Files returns the files that it has changed.
func (c compared) Files() (all []string) {
	for _, r := range c.Repos {
		all = append(all, r.ChangedFiles...)
	}
	return all
}

// maxCompared is how many attempts are shown side by side, and maxStats how many diffstats are shown.
const (
	maxCompared = 4
	maxStats    = 20
)

// maxDescription is how many bytes of a description a page shows outside of the editor.
const maxDescription = 20_000

// A dependency is a task that must be done first.
type dependency struct {
	board.Task
	Left string // the ids of the others
}

// A startRepo is a repository with the branch that is checked out.
type startRepo struct {
	board.Repo
	Branch string
}

// Workflow returns the workflow of the task, as job/workflow, "" if it has none.
func (p *taskPage) Workflow() string {
	if p.JobName == nil {
		return ""
	}
	return *p.JobName + "/" + *p.WorkflowName
}

// Open returns the newest attempt if its agent waits or runs, else nil.
func (p *taskPage) Open() *board.AttemptSummary {
	if a := p.Latest(); a != nil && a.State.Open() {
		return a
	}
	return nil
}

// Latest returns the newest attempt, or nil.
func (p *taskPage) Latest() *board.AttemptSummary {
	if len(p.Attempts) == 0 {
		return nil
	}
	return &p.Attempts[0]
}

func (s *Site) task(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	id := r.PathValue("task_id")
	t, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: id})
	if err != nil {
		return nil, err
	}

	p := &taskPage{TaskReply: t, Move: otherStatuses(t.Status), Changes: map[string]*diffstat{}}
	size := len(board.OrEmpty(t.Description))
	for _, in := range t.Inputs {
		size += len(strings.Join(in.Value.Paths, "\n"))
	}
	p.Fields = inputFields(s.workflowNamed(r, p.Workflow()), t.Inputs)
	p.Long = size > maxDescription && r.URL.Query().Get("edit") == ""

	attempts, err := s.Board.ListTaskAttempts(ctx, who,
		board.ListTaskAttemptsArgs{TaskID: id, Limit: new(board.MaxLimit)})
	if err != nil {
		return nil, err
	}
	if p.Attempts, p.Notice = attempts.Attempts, attempts.Notice; len(p.Attempts) > 0 {
		p.Last = p.Attempts[0].Executor
		if v := p.Attempts[0].Variant; v != nil {
			p.Last += ":" + *v
		}
	}
	p.Workflows = s.workflows(ctx)
	for _, a := range p.Attempts[:min(len(p.Attempts), maxStats)] {
		p.Changes[a.AttemptID], _ = s.changes.stat(a.AttemptID)
	}

	if r.URL.Query().Get("compare") != "" {
		for _, a := range p.Attempts[:min(len(p.Attempts), maxCompared)] {
			full, err := s.Board.GetAttempt(ctx, who,
				attempt.AttemptArgs{Target: board.Target{AttemptID: &a.AttemptID}})
			if err != nil {
				return nil, err
			}
			p.Compared = append(p.Compared, compared{full, p.Changes[a.AttemptID]})
		}
	}
	if err := s.dependencies(ctx, who, p); err != nil {
		return nil, err
	}

	executors, err := s.Board.ListExecutors(ctx, who)
	if err != nil {
		return nil, err
	}
	p.Executors = executors.Executors
	repos, err := s.Board.ListRepos(ctx, who, board.ListReposArgs{ProjectID: t.ProjectID, Limit: new(board.MaxLimit)})
	if err != nil {
		return nil, err
	}
	for _, repo := range repos.Repos {
		branch := ""
		if repo.Path != "" {
			branch, _ = worktree.CurrentBranch(ctx, repo.Path) // starting explains an error
		}
		p.Repos = append(p.Repos, startRepo{repo, branch})
	}

	return &shown{
		view:   "task",
		title:  t.Title,
		data:   p,
		topics: []string{configTopic, changesTopic, store.TaskChanged, store.AttemptChanged},
	}, nil
}

// dependencies reads the tasks that a task waits for or could wait for.
func (s *Site) dependencies(ctx context.Context, who session.Caller, p *taskPage) error {
	for _, id := range p.DependsOn {
		by, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: id})
		if err != nil {
			continue // the caller does not see it
		}
		left := slices.DeleteFunc(slices.Clone(p.DependsOn), func(other string) bool { return other == id })
		p.Needs = append(p.Needs, dependency{by.Task, strings.Join(left, " ")})
	}
	for _, status := range statuses[:3] { // the others are over
		some, err := s.Board.ListTasks(ctx, who,
			board.ListTasksArgs{ProjectID: p.ProjectID, Status: &status, Limit: new(board.MaxLimit)})
		if err != nil {
			return err
		}
		for _, t := range some.Tasks {
			if t.TaskID != p.TaskID && !slices.Contains(p.DependsOn, t.TaskID) &&
				!slices.Contains(t.DependsOn, p.TaskID) {
				p.Others = append(p.Others, t)
			}
		}
	}

	return nil
}

func workflowOfTask(r *http.Request, a *board.CreateTaskArgs) error {
	a.JobName, a.WorkflowName = workflowOf(r)
	a.Inputs = inputsOf(r)
	return nil
}

// workflowOf returns the workflow that a form names as job/workflow: empty texts if the field is blank, nil if there is
// none.
func workflowOf(r *http.Request) (job, workflow *string) {
	given, ok := r.PostForm["workflow"]
	if !ok {
		return nil, nil
	}
	j, w, _ := strings.Cut(strings.TrimSpace(given[0]), "/")
	return &j, &w
}

// changesOfTask adds what fill does not set. A description may be blank.
func changesOfTask(r *http.Request, a *board.UpdateTaskArgs) error {
	a.JobName, a.WorkflowName = workflowOf(r)
	a.Inputs = inputsOf(r)
	if _, given := r.PostForm["description"]; given {
		a.Description = new(r.PostForm.Get("description"))
	}
	if r.PostForm.Has("group") {
		a.Group = new(r.PostForm.Get("group"))
	}
	return nil
}

func (s *Site) deleteTask(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	t, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: r.PathValue("task_id")})
	if err != nil {
		return "", err
	}

	done, err := s.Board.DeleteTask(ctx, who, attempt.DeleteArgs{TaskID: t.TaskID})
	if err != nil {
		return "", err
	}

	said := []string{fmt.Sprintf("Deleted: %s", t.Title)}
	for _, kept := range done.Rescued {
		said = append(said, fmt.Sprintf("Work that was in no commit is kept: git -C %s show --first-parent %s",
			session.InShell(kept.RepoPath), kept.Ref))
	}
	if done.Notice != nil {
		said = append(said, *done.Notice)
	}
	return s.withNotice(who, "/board?project="+t.ProjectID, strings.Join(said, "\n")), nil
}

func executorAndRepos(r *http.Request, a *attempt.StartArgs) error {
	executor, variant, _ := strings.Cut(a.Executor, ":")
	a.Executor, a.Variant = executor, nonEmpty(variant)
	for _, repo := range r.PostForm["repo"] {
		a.Repos = append(a.Repos, attempt.RepoArgs{
			RepoID:       repo,
			TargetBranch: strings.TrimSpace(r.PostForm.Get("branch-" + repo)),
		})
	}
	budget, err := budgetOf(r)
	if budget.MaxCostUSD != nil || budget.MaxUnknown != nil || budget.MaxTime > 0 {
		a.Budget = budget
	}
	return err
}
