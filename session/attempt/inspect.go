package attempt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// Inspect looks at the task board of the project at root, and at what belongs to
// it: executions and who sees to them, worktrees, branches and rescue refs (issue
// 8, "deepwork check"). cfg says where worktrees are made. It changes nothing (of
// SQLite, whoever reads makes board.db-shm and an empty board.db-wal), may run
// beside servers, runs git and blocks for it and the disk. A project without a
// board is well. What is under way may be among the findings: inspect again, and
// see session.Report.Confirmed.
func Inspect(ctx context.Context, root string, cfg *config.Config, logger *slog.Logger) (session.Report, error) {
	// Opened by nobody: an engine that holds no board and runs nothing knows the paths.
	e := &Engine{o: Options{Root: root}.withDefaults(), log: logger, home: filepath.Join(root, ".deepwork")}
	e.member = session.NewMember(filepath.Join(e.home, "tmp"), logger)
	i := &inspection{engine: e, usual: e.worktreesDir(cfg), dirs: map[string][]worktree.Expected{}}
	i.dirs[i.usual] = nil
	if err := i.run(ctx); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the task board: %w", err)
	}
	return i.report, nil
}

type inspection struct {
	engine *Engine
	usual  string                         // the folder of worktrees, as configured
	dirs   map[string][]worktree.Expected // by the folder that they have their worktrees in
	repos  []string
	kept   int // rescue refs
	report session.Report
}

func (i *inspection) run(ctx context.Context) error {
	var stock task.Stock
	known := true
	if _, err := os.Stat(i.engine.boardPath()); !errors.Is(err, fs.ErrNotExist) || exists(i.engine.boardPath()+"-wal") {
		if known, err = i.board(ctx, &stock); err != nil {
			return err
		}
	}
	if known {
		if err := i.disk(ctx); err != nil {
			return err
		}
	}
	i.report.Counts = []session.Count{
		{N: stock.Tasks, What: "task"},
		{N: stock.Attempts, What: "attempt", Of: fmt.Sprintf("%d waiting or running", stock.Open)},
	}
	if i.kept > 0 {
		i.report.Counts = append(i.report.Counts, session.Count{N: i.kept, What: "rescue ref"})
	}
	return nil
}

// board looks at the rows; known tells that it could.
func (i *inspection) board(ctx context.Context, stock *task.Stock) (known bool, err error) {
	path := i.engine.boardPath()
	db, err := sqlite.Open(ctx, sqlite.Options{Path: path, ReadOnly: true, Logger: i.engine.log})
	if err != nil {
		return false, i.unusable(ctx, err)
	}
	defer db.Close() // of what was only read
	b := db.Board()
	found, s, err := b.Inspect(ctx)
	if err != nil {
		return false, i.unusable(ctx, err)
	}
	*stock = s
	for _, f := range found {
		i.report.Fault(path, f.What, f.Do)
	}
	all, err := b.AllAttempts(ctx)
	if err != nil {
		return false, i.unusable(ctx, err)
	}
	deleting, err := b.Deleting(ctx)
	if err != nil {
		return false, i.unusable(ctx, err)
	}
	if i.repos, err = b.RepoPaths(ctx); err != nil {
		return false, i.unusable(ctx, err)
	}
	for _, id := range deleting {
		i.report.Fault(path, fmt.Sprintf("task %s is half deleted", id), "call delete_task for it again")
	}
	for _, a := range all {
		i.expect(a, slices.Contains(deleting, a.TaskID))
	}
	open, err := b.OpenExecutions(ctx)
	if err != nil {
		return false, i.unusable(ctx, err)
	}
	others, _ := i.engine.member.Others()
	i.report.Live = len(others) > 0
	for _, x := range open {
		if err := i.execution(ctx, b, x); err != nil {
			return false, err
		}
	}
	return true, nil
}

// unusable tells of a board that cannot be read; the end of ctx is an error.
func (i *inspection) unusable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	do := "see that it can be read, and check again"
	switch {
	case errors.Is(err, task.ErrDamaged):
		do = "restore it from a copy, or save what can be read with `sqlite3 board.db .recover`"
	case errors.Is(err, task.ErrNewer):
		do = "check it with the deepwork that wrote it"
	}
	i.report.Fault(i.engine.boardPath(), fmt.Sprintf("the task board cannot be read: %v", err), do)
	return nil
}

// expect notes the worktrees that an attempt is to have.
func (i *inspection) expect(a task.Attempt, deleting bool) {
	x := worktree.Expected{
		Attempt: a.ID, Branch: a.Branch, Open: a.State.Open(), Made: made(&a),
		Deleting: deleting,
	}
	dir := i.usual
	if len(a.Repos) > 0 {
		dir = worktreesOf(&a)
	} else {
		i.report.Fault(i.engine.boardPath(), fmt.Sprintf("attempt %s has no repository", a.ID), "delete its task with delete_task")
	}
	for _, r := range a.Repos {
		if !filepath.IsAbs(dir) || filepath.Dir(r.Worktree) != filepath.Join(dir, a.ID) {
			i.report.Fault(i.engine.boardPath(), fmt.Sprintf("attempt %s is to have a worktree at %s, which is in no folder of its own", a.ID, r.Worktree), "restore the board from a copy")
			dir, x.Trees = i.usual, nil
			break
		}
		t := worktree.ExpectedTree{Repo: r.RepoPath, Path: r.Worktree}
		if r.BaseCommit != nil {
			t.Base = *r.BaseCommit
		}
		x.Trees = append(x.Trees, t)
	}
	i.dirs[dir] = append(i.dirs[dir], x)
}

// execution looks whether somebody sees to an execution that has not ended.
func (i *inspection) execution(ctx context.Context, b store.Board, x task.Execution) error {
	if x.Owner == "" || i.engine.member.Alive(x.Owner) {
		return nil // without one is what the board's own inspection tells
	}
	dir := local{home: i.engine.home}.run(x.AttemptID, x.ID)
	switch running, err := runner.Alive(dir); {
	case err != nil:
		return err
	case running:
		i.report.Note(dir, fmt.Sprintf("execution %s of attempt %s runs, and its server is gone", x.ID, x.AttemptID), "start a server on the project (deepwork serve): it takes it over")
		return nil
	}
	i.report.Fault(i.engine.boardPath(), fmt.Sprintf("execution %s of attempt %s is %s, and neither its server nor its agent runs", x.ID, x.AttemptID, x.State),
		"start a server on the project (deepwork serve): it records how the execution ended, or begins it")
	return nil
}

// disk looks at the worktrees and the repositories.
func (i *inspection) disk(ctx context.Context) error {
	for dir, expected := range i.dirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && len(expected) == 0 {
			continue
		}
		k, err := worktree.Open(worktree.Options{Dir: dir, Owner: i.engine.owner(), Logger: i.engine.log})
		if err != nil {
			return err
		}
		r, err := k.Inspect(ctx, expected)
		if err != nil {
			return err
		}
		i.report.Findings = append(i.report.Findings, r.Findings...)
	}
	k, err := worktree.Open(worktree.Options{Dir: filepath.Join(i.engine.home, "worktrees"), Logger: i.engine.log})
	if err != nil {
		return err
	}
	for _, path := range i.repos {
		r, kept, err := k.InspectRepo(ctx, path)
		if err != nil {
			return err
		}
		i.kept += kept
		i.report.Findings = append(i.report.Findings, r.Findings...)
	}
	return nil
}
