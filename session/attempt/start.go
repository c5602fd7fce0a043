package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/git"
	"deepwork/session/store"
)

// StartTaskAttempt creates an attempt of a task (seed 004, start_task_attempt). It returns when the attempt
// is on the board; when a slot is free, its workspace is created and its agent started. It checks what it can
// first, and a refused call creates nothing. Repeating a request_id returns the same attempt.
func (e *Engine) StartTaskAttempt(ctx context.Context, who session.Caller, a StartArgs) (*AttemptReply, error) {
	named := a.RequestID
	a.RequestID = nil
	taskID, err := board.CheckID("task_id", a.TaskID)
	if err != nil {
		return nil, err
	}
	if err := board.CheckOptional("prompt", a.Prompt, board.MaxPrompt); err != nil {
		return nil, err
	}

	b, cfg, err := e.View(ctx, who)
	if err != nil {
		return nil, err
	}

	if err := e.MayStart(b.Who); err != nil {
		return nil, err
	}

	request, created, err := b.Repeated(ctx, "start_task_attempt", named, a)
	if err != nil {
		return nil, err
	}
	if created != "" {
		r, err := e.attemptReply(ctx, b, created)
		if session.CodeOf(err) == codes.UnknownAttempt {
			err = board.Deleted(err)
		}
		return r, err
	}

	t, err := b.Task(ctx, taskID)
	if err != nil {
		return nil, board.TaskFault("reading the task", err, taskID)
	}

	if err := e.WithinBudget(ctx, b.Who, cfg); err != nil {
		return nil, err
	}
	agent, err := e.agentFor(ctx, b.Who, cfg, a.Executor, a.Variant)
	if err != nil {
		return nil, err
	}

	if len(a.Repos) == 0 {
		var without string
		if a.Repos, without, err = e.checkedOut(ctx, b.View, t.ProjectID); err != nil {
			return nil, err
		} else if without != "" {
			return nil, session.NotNow(codes.NoBranch,
				"%s. Check out a branch there, or name the one to start from (%s).", without,
				"repos").
				Next("see the ids for repos", "list_repos").With("argument", "repos")
		}
	}
	made, first, err := e.plan(ctx, b, cfg, &t.Task, agent, a.Prompt, a.Repos)
	if err != nil {
		return nil, err
	}
	if t.Lead == task.ServerLeads {
		if made.Run, err = e.runOfTask(ctx, &t.Task, a.Prompt, a.Budget); err != nil {
			return nil, err
		}
	} else if a.Budget != nil {
		return nil, session.NotNow(codes.InvalidArgument, "One agent does this task, and only runs have limits of "+
			"their own. Leave them blank, or make a task that the server leads.")
	}
	kept, err := b.CreateAttempt(ctx, *made, first, request)
	if err != nil {
		return nil, board.TaskFault("making the attempt", err, taskID)
	}
	e.Log.InfoContext(telemetry.Under(ctx, RefOf(kept)), "attempt made", "attempt", kept.ID, "task", taskID, "executor",
		kept.Executor, "caller", b.Who.Identity)

	e.wakeUp()
	r, err := e.attemptReply(ctx, b, kept.ID)
	if err == nil {
		if r.Unseen = unseen(ctx, made.Repos); r.Unseen != "" {
			r.Notice = new(strings.TrimSpace(board.OrEmpty(r.Notice) + " " + r.Unseen))
		}
	}
	return r, board.Midway(err)
}

// unseen says which files of repositories are not committed, and so not in new worktrees, or returns "".
func unseen(ctx context.Context, repos []task.AttemptRepo) string {
	var files []string
	for _, r := range repos {
		if r.RepoPath == "" {
			continue // it is on the machine that claims the attempt
		}
		changed, _, _ := git.Changes(ctx, git.Command{Dir: r.RepoPath}, "normal") // without it, nobody is told
		for _, names := range changed {
			files = append(files, names...)
		}
	}
	if files == nil {
		return ""
	}
	slices.Sort(files)
	return fmt.Sprintf("What is not committed is not in the worktree: %s.",
		jsontext.Clip(strings.Join(files, ", "), 500))
}

// plan returns an attempt of a task with its first execution, neither of which is on the board yet. It
// returns an error for what could not be run.
func (e *Engine) plan(
	ctx context.Context, b board.View, cfg *config.Config, t *task.Task, agent *choice, more *string, repos []RepoArgs,
) (a *task.Attempt, first task.Execution, err error) {
	first = task.Execution{ID: uuid.NewString(), Prompt: taskPrompt(t, more) + aboutWorktree, Variant: agent.variant}
	if err := agent.check(ctx, first.Prompt); err != nil && !e.isLocalError(err) {
		return nil, first, err
	}

	a = &task.Attempt{
		ID:       uuid.NewString(),
		TaskID:   t.ID,
		Executor: agent.name,
		Variant:  agent.variant,
		Prompt:   more,
		Trace:    telemetry.Text(telemetry.Parent(ctx)),
	}
	if a.Repos, err = e.attemptRepos(ctx, b, t, repos); err != nil {
		return nil, first, err
	}
	if a.Branch, err = newBranch(ctx, b, cfg.Attempts.BranchPrefix, t.Title, a.Repos); err != nil {
		return nil, first, err
	}
	if e.Shared != nil {
		for i := range a.Repos {
			a.Repos[i].RepoPath = "" // each machine has its own
		}
	} else {
		setWorkspace(ctx, a, e.newFolder(cfg, a))
	}

	return a, first, nil
}

// attemptRepos checks the repositories on which an attempt should work.
func (e *Engine) attemptRepos(
	ctx context.Context, b board.View, t *task.Task, args []RepoArgs,
) ([]task.AttemptRepo, error) {
	switch {
	case len(args) == 0:
		return nil, session.Wrong(codes.NoRepos,
			"The project is not in a git repository. Have git init run and something committed there, or its "+
				"repositories named in .deepwork/config.yml.").With("argument", "repos").With("value", 0)
	case len(args) > MaxRepos:
		return nil, session.Wrong(codes.TooManyRepos, "repos names %d repositories, and at most %d are allowed.",
			len(args), MaxRepos).With("argument", "repos").With("value", len(args)).With("max", MaxRepos)
	}

	hidden, err := e.HiddenBranches(ctx, b)
	if err != nil {
		return nil, err
	}

	seen := make(map[string]bool)
	var all []task.AttemptRepo
	for i, arg := range args {
		field := fmt.Sprintf("repos[%d].repo_id", i)
		id, err := board.CheckID(field, arg.RepoID)
		if err != nil {
			return nil, err
		}
		if seen[id] {
			return nil, session.Wrong(codes.RepoTwice, "repos names the repository %s twice. Name each once.",
				id).With("argument", field).With("value", id)
		}
		seen[id] = true
		repo, err := b.Repo(ctx, id)
		if err != nil {
			return nil, board.FaultOf("reading the repository", err, codes.UnknownRepo, field, id, "list_repos")
		}
		if repo.ProjectID != t.ProjectID {
			return nil, session.Wrong(codes.ForeignRepo,
				"The repository %s (%s) belongs to project %s, but the task to project %s.",
				id, repo.Name, repo.ProjectID, t.ProjectID).
				Next("see those of the task's project", "list_repos", "project_id", t.ProjectID).
				With("argument", field).With("value", id)
		}

		branch := strings.TrimSpace(arg.TargetBranch)
		if repo.Path == "" && branch != "" {
			// On another machine, which checks the branch when it claims the attempt.
		} else if err := CheckBranch(ctx, repo, branch, hidden, fmt.Sprintf("repos[%d].", i)); err != nil {
			return nil, err
		} else if err := git.CheckFilters(ctx, git.Command{Dir: repo.Path}); err != nil {
			return nil, GitFailed("The repository "+repo.Name+" cannot be worked on", err)
		}

		all = append(all, task.AttemptRepo{
			RepoID:       repo.ID,
			RepoName:     repo.Name,
			RepoPath:     repo.Path,
			TargetBranch: branch,
		})
	}
	return all, nil
}

// HiddenBranches returns a function that reports whether a branch is hidden from the caller: it has the name
// of an attempt's branch, but belongs to no attempt that the caller sees. The attempt may be deleted.
func (e *Engine) HiddenBranches(ctx context.Context, b board.View) (func(string) bool, error) {
	if b.Who.Owner {
		return func(string) bool { return false }, nil
	}

	seen, err := b.VisibleBranches(ctx)
	if err != nil {
		return nil, board.Fault("reading the branches of attempts", err)
	}

	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}
	return func(name string) bool {
		like := func(prefix string) bool {
			return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
		}
		return (like(cfg.Attempts.BranchPrefix) || like(config.Default().Attempts.BranchPrefix)) &&
			!slices.Contains(seen, name) && !slices.Contains(seen, worktree.Main(name))
	}, nil
}

// CheckBranch asks git whether a worktree can be created from a branch. in is the prefix of the arguments'
// names.
func CheckBranch(ctx context.Context, repo *task.Repo, branch string, isHidden func(string) bool, in string) error {
	err := worktree.CheckRepo(ctx, repo.Path, branch)
	if err == nil && isHidden(branch) {
		err = worktree.ErrNoBranch
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, worktree.ErrNotRepo):
		return session.Wrong(codes.NotARepository,
			"%s (%s) is not a git repository: %v. Run git init there and commit something, or correct its path in "+
				".deepwork/config.yml.",
			repo.Path, repo.Name, err).With("argument", in+"repo_id").With("value", repo.ID).Because(err)
	case errors.Is(err, worktree.ErrNoBranch):
		names, listing := worktree.Branches(ctx, repo.Path)
		if listing != nil {
			names = nil // the error does not list them
		}
		return session.Wrong(codes.UnknownBranch, "The repository %s has no branch %q. Its branches: %s.",
			repo.Name, board.Clip(branch),
			board.Enumerate(slices.DeleteFunc(names, isHidden), "none; commit something first")).
			With("argument", in+"target_branch").With("value", board.Clip(branch)).Because(err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("looking at the repository %s: %w", repo.Path, err)
	}
	return GitFailed("Repository "+repo.Name+" cannot be looked at", err)
}

// newBranch chooses a branch name that neither the repositories nor another attempt uses.
func newBranch(ctx context.Context, b store.View, prefix, title string, repos []task.AttemptRepo) (string, error) {
	const tries = 100
	for at, c := range prefix {
		for _, repo := range repos {
			if c == '/' && repo.RepoPath != "" && worktree.CheckRepo(ctx, repo.RepoPath, prefix[:at]) == nil {
				return "", session.NotNow(codes.NoBranchLeft,
					"The repository %s has a branch %q, and with it git allows no branch %s…, as attempts have. "+
						"Rename it (git -C %s branch -m %s NEW-NAME), or set attempts.branch_prefix in the config, "+
						"such as to agents/.",
					repo.RepoName, prefix[:at], prefix, session.InShell(repo.RepoPath), prefix[:at])
			}
		}
	}

	for range tries {
		branch := worktree.BranchFor(prefix, title)
		taken, err := b.BranchTaken(ctx, branch)
		if err != nil {
			return "", board.Fault("looking for a free branch", err)
		}
		for _, repo := range repos {
			taken = taken || repo.RepoPath != "" && worktree.CheckRepo(ctx, repo.RepoPath, branch) == nil
		}
		if !taken {
			return branch, nil
		}
	}

	return "", session.NotNow(codes.NoBranchLeft,
		"No branch is left for attempts of this task: %d names were tried, such as %s. Delete branches of old "+
			"attempts, or change the task's title, and try again.", tries, worktree.BranchFor(prefix, title))
}

// shortPath is how many characters the path of a new worktree has below the state of all projects, if the names of the
// project and the repository are short enough: programs make sockets there, whose paths have at most 107.
const shortPath = 50

// newFolder returns the folder of the worktrees of a new attempt.
func (e *Engine) newFolder(cfg *config.Config, a *task.Attempt) string {
	dir, most := e.worktreesDir(cfg), shortPath
	if rel, err := filepath.Rel(e.State().Base, dir); err == nil && filepath.IsLocal(rel) {
		longest := 0
		for _, r := range a.Repos {
			longest = max(longest, len(r.RepoName))
		}
		most -= len(rel) + len("//") + longest
	}
	return filepath.Join(dir, worktree.NameFor(dir, a.Branch, most))
}

// setWorkspace sets the paths of an attempt's workspace in its folder. Agents start in the worktree, in the
// project's folder within its repository, or in the folder around several worktrees.
func setWorkspace(ctx context.Context, a *task.Attempt, folder string) {
	setWorktrees(folder, a.Repos)
	a.Workspace = folder
	if len(a.Repos) == 1 {
		a.Workspace = filepath.Join(a.Repos[0].Worktree, worktree.Folder(ctx, a.Repos[0].RepoPath))
	}
}

// setWorktrees sets the path of each worktree of an attempt: a folder with the repository's name, made valid
// and unique.
func setWorktrees(folder string, repos []task.AttemptRepo) {
	taken := make(map[string]bool)
	for i := range repos {
		name := strings.Trim(notInNames.ReplaceAllString(repos[i].RepoName, "-"), ".-")
		name = cmp.Or(name[:min(len(name), 60)], "repo")
		free := name
		for n := 2; taken[strings.ToLower(free)]; n++ {
			free = fmt.Sprintf("%s-%d", name, n)
		}
		taken[strings.ToLower(free)] = true
		repos[i].Worktree = filepath.Join(folder, free)
	}
}

// notInNames matches the characters that some file systems do not allow in names.
var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)
