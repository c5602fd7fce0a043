package attempt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store"
)

// Inspect checks the task board of a project, and what belongs to it: executions and the servers that lead
// them, worktrees, branches and rescue refs ("deepwork check"). cfg says where worktrees are created. It
// changes nothing, may run while servers do, runs git and blocks for it and the disk. A missing board is not
// an error. Findings may include work in progress, so inspect again, and see session.Report.Confirmed.
func Inspect(
	ctx context.Context, f *state.Folder, stores *store.Stores, cfg *config.Config, logger *slog.Logger,
) (session.Report, error) {
	// This engine opens no board and runs nothing, but knows the paths.
	e := newEngine(Options{Options: board.Options{Root: f.Root, State: f, Stores: stores, Logger: logger}})
	i := &inspection{
		engine:        e,
		others:        stores.Others,
		defaultFolder: e.worktreesDir(cfg),
		dirs:          map[string][]worktree.Expected{},
	}
	i.dirs[i.defaultFolder] = nil
	if e.Shared != nil { // its repositories have no paths
		for _, p := range board.ProjectSpecs(f.Root, board.TopLevel(f.Root), cfg) {
			for _, r := range p.Repos {
				i.configured = append(i.configured, r.Path)
			}
		}
	}
	if err := i.run(ctx); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the task board: %w", err)
	}
	return i.report, nil
}

type inspection struct {
	engine        *Engine
	others        func(context.Context) (bool, error)
	defaultFolder string                         // the folder of worktrees, as configured
	dirs          map[string][]worktree.Expected // by the folder of their worktrees
	rescues       int                            // number of rescue refs
	report        session.Report

	// The rows of the board.
	flaws           []session.Finding
	totals          task.Totals
	attempts        []task.Attempt
	deleting, repos []string
	open            []task.Execution

	configured []string // the configured repositories, if machines share the store
}

func (i *inspection) run(ctx context.Context) error {
	path := i.engine.Database.Where()
	var err error
	if i.engine.Database.Exists() || Exists(path+"-wal") {
		err = i.read(ctx)
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		if err := i.judge(ctx, path); err != nil {
			return err
		}
	} else {
		do := "see that it can be read, and check again"
		switch {
		case errors.Is(err, task.ErrDamaged):
			do = "restore it from a copy, save what can be read with `sqlite3 board.db .recover`, or set it aside " +
				"with `deepwork check --set-aside`"
		case errors.Is(err, task.ErrVersion):
			do = "use the deepwork that wrote it, or set it aside with `deepwork check --set-aside`"
		}
		i.report.Fault(path, fmt.Sprintf("the database cannot be read: %v", err), do)
	}
	i.report.Counts = []session.Count{
		{N: i.totals.Tasks, What: "task"},
		{N: i.totals.Attempts, What: "attempt", Of: fmt.Sprintf("%d waiting or running", i.totals.Open)},
	}
	if i.rescues > 0 {
		i.report.Counts = append(i.report.Counts, session.Count{N: i.rescues, What: "rescue ref"})
	}
	return nil
}

// read reads the board.
func (i *inspection) read(ctx context.Context) (err error) {
	b := i.engine.Database.Board()
	for _, read := range []func(){
		func() { i.flaws, i.totals, err = b.Inspect(ctx) },
		func() { i.attempts, err = b.AllAttempts(ctx) },
		func() { i.deleting, err = b.Deleting(ctx) },
		func() { i.repos, err = b.RepoPaths(ctx, i.engine.Here) },
		func() { i.open, err = b.OpenExecutions(ctx) },
	} {
		read()
		if err != nil {
			return err
		}
	}

	return nil
}

// judge checks the rows, the worktrees and the repositories.
func (i *inspection) judge(ctx context.Context, path string) error {
	i.report.Findings = append(i.report.Findings, i.flaws...)
	for _, id := range i.deleting {
		i.report.Fault(path, fmt.Sprintf("task %s is half deleted", id), "remove it again: 'deepwork board rm "+id+"'")
	}

	for _, a := range i.attempts {
		if i.engine.Shared != nil && !a.Is(i.engine.Here) {
			continue // its own machine inspects it
		}
		i.expect(a, slices.Contains(i.deleting, a.TaskID))
	}

	var err error
	if i.report.Live, err = i.others(ctx); err != nil {
		return err
	}

	for _, x := range i.open {
		if x.Elsewhere(i.engine.Here) {
			continue
		}
		if err := i.execution(x); err != nil {
			return err
		}
	}
	return i.disk(ctx)
}

// expect records the worktrees that an attempt should have.
func (i *inspection) expect(a task.Attempt, deleting bool) {
	dir := i.defaultFolder
	if i.engine.Shared != nil && !a.Made() && a.Workspace == "" {
		return // no server of this machine has chosen its paths
	}
	if InPlace(&a) {
		return // it works in the project itself
	}

	if len(a.Repos) > 0 {
		dir = worktreesOf(&a)
	} else {
		i.report.Fault(i.engine.Database.Where(), fmt.Sprintf("attempt %s has no repository", a.ID),
			"remove its task: 'deepwork board rm "+a.TaskID+"'")
	}
	if err := misplaced(&a); err != nil && len(a.Repos) > 0 {
		i.report.Fault(i.engine.Database.Where(), err.Error(), restore)
		dir, a.Repos = i.defaultFolder, nil
	}
	i.dirs[dir] = append(i.dirs[dir], worktree.Expected{Attempt: a, Deleting: deleting})
}

// execution checks whether a server leads an unfinished execution.
func (i *inspection) execution(x task.Execution) error {
	if x.Owner == "" || x.Elsewhere(i.engine.Here) || i.engine.Members.Alive(x.Owner) {
		return nil // the board's own inspection reports executions without an owner
	}
	dir := executors.Local{Logs: i.engine.State().Logs()}.Run(x.AttemptID, x.ID)
	switch running, err := runner.Alive(dir); {
	case err != nil:
		return err
	case running:
		i.report.Note(dir, fmt.Sprintf("execution %s of attempt %s runs, and its server is gone", x.ID, x.AttemptID),
			"start a server on the project ('deepwork serve'): it takes it over")
		return nil
	}
	i.report.Fault(i.engine.Database.Where(),
		fmt.Sprintf("execution %s of attempt %s is %s, and neither its server nor its agent runs", x.ID,
			x.AttemptID, x.State),
		"start a server on the project ('deepwork serve'): it records how the execution ended, or begins it")
	return nil
}

// disk checks the worktrees and the repositories.
func (i *inspection) disk(ctx context.Context) error {
	for dir, expected := range i.dirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && len(expected) == 0 {
			continue
		}
		r, err := i.engine.keeper(dir).Inspect(ctx, expected)
		if err != nil {
			return err
		}
		i.report.Findings = append(i.report.Findings, r.Findings...)
	}

	repos := append(i.repos, i.configured...)
	slices.Sort(repos)
	for _, path := range slices.Compact(repos) {
		r, rescues, err := worktree.InspectRepo(ctx, path)
		if err != nil {
			return err
		}
		i.rescues += rescues
		i.report.Findings = append(i.report.Findings, r.Findings...)
	}

	return nil
}
