package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/contain"
	"deepwork/session/store"
)

// launch returns the process of the run, or the reason why there is none. It continues what this server or a
// dead one has begun.
func (r *execution) launch() (executors.Process, *outcome) {
	proc, end := r.find()
	switch {
	case proc != nil || end != nil:
		return proc, end
	case r.row.State == task.Running:
		return nil, recordsGone()
	}
	agent, work, end := r.prepare()
	if end != nil {
		return nil, end
	}
	if r.making.Err() != nil {
		return nil, r.notRun()
	}
	return r.start(agent, work)
}

// find returns the process of the run if one was started. If both results are nil, none was and none will be.
// It retries until it knows: a running agent must never be mistaken for one that does not run.
func (r *execution) find() (executors.Process, *outcome) {
	for {
		proc, err := r.executor().Find(r.ctx, r.row.LogID, r.row.ID)
		switch {
		case err == nil:
			r.stateUnknown.Store(nil)
			return proc, nil
		case errors.Is(err, executors.ErrNoRun):
			return nil, nil
		case r.ctx.Err() != nil, wait.For(r.engine.serving, time.Second) != nil:
			return nil, &outcome{fate: left} // the next server finds out
		}
		r.lastFailure.log(r, "cannot tell whether an agent runs; looking again until that is known", err)
	}
}

// couldNot returns the outcome of an error that is unrelated to the agent. If the server is closing, or the
// store does not answer, the execution waits again; if it belongs to another server by now, it is left to
// that one; otherwise it has failed for that reason.
func (r *execution) couldNot(doing string, err error) *outcome {
	if r.ctx.Err() != nil || errors.Is(err, task.ErrEnded) {
		return &outcome{fate: left}
	}
	if r.making.Err() != nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPending) {
		return r.notRun()
	}

	why := err.Error()
	if e, ok := errors.AsType[*session.Error](err); ok {
		why = e.For(session.Anyone) // without kind and code: the caller is long gone
	}
	return failed("%s failed: %s", strings.ToUpper(doing[:1])+doing[1:], why)
}

// prepare creates the workspace if it does not exist, and returns what to run in it.
func (r *execution) prepare() (agent *choice, w executors.Work, end *outcome) {
	ctx, e := r.making, r.engine
	cfg, err := e.Config(ctx)
	if err != nil {
		// This is not the attempt's fault: like all others, it waits for a readable configuration.
		return nil, w, r.notRun()
	}

	b, err := e.Store(ctx)
	if err != nil {
		return nil, w, r.couldNot("opening the board", err)
	}

	// The row may be outdated: an execution that has ended meanwhile must not run.
	now, err := b.Execution(ctx, r.row.ID)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return nil, w, r.couldNot("reading the board", err)
	}
	if err != nil || now.State != task.Starting || now.Owner != e.Members.ID() {
		return nil, w, &outcome{fate: left}
	}

	a, err := b.Attempt(ctx, r.row.AttemptID)
	if err != nil {
		return nil, w, r.couldNot("reading the attempt", err)
	}
	if agent, err = e.choose(ctx, a.Executor, cmp.Or(r.row.Variant, a.Variant)); err != nil {
		return nil, w, r.couldNot("choosing the agent's command", err)
	}
	w = executors.Work{
		Log:       r.row.LogID,
		Execution: r.row.ID,
		Variant:   agent.variant,
		Prompt:    r.row.Prompt,
		OfProject: e.ofProject(a),
		Env:       e.environment(cfg, a.ID),
		Contain:   e.containIn(a),
	}
	if err := agent.Check(ctx, w); err != nil {
		return nil, w, r.couldNot("starting the agent", err)
	}

	// A deepwork in the workspace finds the project through this folder, even if it holds nothing else.
	if err := e.State().Make(); err != nil {
		return nil, w, r.couldNot("making the state folder of the project", err)
	}
	if r.row.FollowUp && !a.Made() {
		return nil, w, failed("The attempt has no workspace: its agent never ran. Start a new attempt.")
	}
	if end := r.workspace(b, cfg, a, w.Env); end != nil {
		return nil, w, end
	}
	if err := e.endGivenUpAgents(ctx, b, r.row); err != nil {
		return nil, w, r.couldNot("ending the agent that another machine had given up", err)
	}
	w.Workspace, w.Env = a.Workspace, append(w.Env, telemetry.Environment(AgentRef(a, r.row.ID))...)
	if r.row.FollowUp {
		r.note("follow-up: " + board.Clip(r.row.Prompt))
		if w.Continue, w.Prompt, err = e.continued(ctx, b, a, agent, r.row); err != nil {
			return nil, w, r.couldNot("reading what was done before", err)
		}
	}
	return agent, w, nil
}

// ofProject reports whether an attempt works in the project itself, or in a worktree of only the project.
func (e *Engine) ofProject(a *task.Attempt) bool {
	return len(a.Repos) == 0 || len(a.Repos) == 1 && a.Repos[0].RepoPath == e.Root()
}

// workspace makes the workspace of an attempt unless it exists. env is for the setup commands.
func (r *execution) workspace(b store.Board, cfg *config.Config, a *task.Attempt, env []string) *outcome {
	ctx, e := r.making, r.engine
	if e.Shared != nil && !a.Made() {
		if err := e.choosePaths(ctx, b, cfg, a); err != nil {
			return r.couldNot("choosing where the attempt works", err)
		}
	}
	if err := checkLayout(a); err != nil {
		return r.couldNot("checking the workspace", err)
	}
	if !a.Made() {
		if err := e.makeWorkspace(ctx, b, cfg, a, env); err != nil {
			return r.couldNot("making the workspace", err)
		}
	}

	// A removal in progress either finds this execution on the board and gives up, or has removed the
	// workspace when Await returns.
	if err := e.Worktrees(a).Await(ctx, nameOf(a)); err != nil {
		return r.couldNot("waiting for the workspace", err)
	}
	if fi, err := os.Lstat(a.Workspace); errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode().IsRegular() {
		return failed("The workspace %s is gone. Start a new attempt; commits of this one are on the branch %s.",
			a.Workspace, a.Branch)
	}
	if err := e.checkWorkspace(a); err != nil {
		return r.couldNot("checking the workspace", err)
	}

	return nil
}

// makeWorkspace creates all worktrees of an attempt or none. After a crash it finishes that.
func (e *Engine) makeWorkspace(
	ctx context.Context, b store.Board, cfg *config.Config, a *task.Attempt, env []string,
) error {
	base, err := e.makeWorktrees(ctx, b, cfg, a, env)
	if err != nil {
		return err
	}

	// The worktrees exist: a board that is full for now must not fail the attempt.
	for {
		err = b.SetWorkspace(context.WithoutCancel(ctx), a, base)
		if !errors.Is(err, task.ErrFull) {
			break
		}

		e.Log.Warn("the board does not take a new workspace; trying again", "attempt", a.ID, "error", err)
		if wait.For(ctx, time.Second) != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("recording the workspace: %w", err)
	}

	return nil
}

// makeWorktrees creates the worktrees of an attempt, or of an item of its run. It returns the commits from
// which they begin, by repository.
func (e *Engine) makeWorktrees(
	ctx context.Context, b store.Board, cfg *config.Config, a *task.Attempt, env []string,
) (map[string]string, error) {
	t, err := b.Task(ctx, a.TaskID)
	if err != nil {
		return nil, err
	}

	project, err := b.Project(ctx, t.ProjectID)
	if err != nil {
		return nil, err
	}

	dir := worktreesOf(a)
	if now := e.worktreesDir(cfg); dir != now && dir != e.State().Worktrees() {
		return nil,
			fmt.Errorf("its worktrees were to be in %s, and by now attempts.worktrees says %s; start a new attempt",
				dir, now)
	}
	if err := e.keeper(dir).Safe(); err != nil {
		return nil, err
	}

	if err := ignore(e.Root(), dir); err != nil {
		e.Log.Warn("git may take the worktrees for the project's own files", "error", err)
	}
	k, trees := e.keeper(dir), make([]worktree.Tree, len(a.Repos))
	for i, repo := range a.Repos {
		files, setup := provision(cfg, project, repo.RepoName)
		if len(setup) > 0 {
			program, err := trust.Program(e.Root(), cfg.Approval, setup)
			if errors.Is(err, trust.ErrChanged) {
				return nil, session.Changed(e.Root(), err)
			}
			if err == nil && !strings.ContainsAny(setup[0], `/\`) { // a path is relative to the worktree
				setup = append([]string{program}, setup[1:]...)
			}
		}
		trees[i] = worktree.Tree{
			Attempt:      a.ID,
			RepoID:       repo.RepoID,
			Name:         filepath.Base(repo.Worktree),
			Repo:         repo.RepoPath,
			TargetBranch: repo.TargetBranch,
			Copy:         files,
			Setup:        setup,
		}
		if cfg.Contained(a.Executor, a.Run != nil).Mode == config.ContainRequired {
			trees[i].Contain = func(ctx context.Context, dir string) (*contain.Plan, error) {
				return e.planSetup(ctx, cfg, a, dir)
			}
		}

		if repo.RepoPath == e.Root() { // where files were approved; a branch may contain others
			trees[i].Allowed = func(dir string) error {
				if err := trust.Check(dir, cfg.Approval, setup); err != nil {
					return session.Changed(e.Root(), err)
				}
				return nil
			}
		}
	}

	base := make(map[string]string, len(trees))
	for tries := 0; ; tries++ {
		all, err := k.Create(ctx, nameOf(a), a.Branch, trees, env)
		for _, m := range all {
			base[m.RepoID] = m.Base
		}
		if err == nil {
			return base, nil
		}

		// Another server may have chosen the same name at the same moment.
		if !errors.Is(err, worktree.ErrBranchTaken) || tries == branchTries {
			return nil, err
		}

		if a.Branch, err = newBranch(ctx, b, cfg.Attempts.BranchPrefix, t.Title, a.Repos); err != nil {
			return nil, err
		}
		if err = b.SetBranch(ctx, a.ID, a.Branch); err != nil {
			return nil, fmt.Errorf("recording the branch: %w", err)
		}
	}
}

// branchTries limits how often another name is chosen for an attempt's branch.
const branchTries = 5

func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// provision returns the files to copy into new worktrees of a repository, and the command to run in them.
func provision(cfg *config.Config, project *task.Project, repo string) (files, setup []string) {
	if project.Root {
		return cfg.Attempts.Copy, cfg.Attempts.Setup
	}

	for _, p := range cfg.Projects {
		if p.Name != project.Name {
			continue
		}

		for _, r := range p.Repos {
			if board.RepoName(r) == repo {
				return r.Copy, r.Setup
			}
		}
	}

	return nil, nil
}
