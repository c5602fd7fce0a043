package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"deepwork/actor/xslices"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/workflow"
)

// latest is what commands take in place of an id for the newest one.
const latest = "latest"

// idsHelp is how the help of commands says what they take as an id.
const idsHelp = "ID may be the beginning of an id, or latest"

// attemptsHelp is how the help of commands says what they take as the id of an attempt.
const attemptsHelp = `

ID is the id of an attempt, or of a task for its latest attempt; the beginning of one
is enough, and latest is the newest attempt.`

// A candidate is something that an argument may name by its id, and that completion offers.
type candidate struct {
	id, about string    // about describes it in one line
	created   time.Time // zero if latest does not mean it
	attempt   *string   // the latest attempt of a task
}

// An idKind is a kind of thing that arguments name by its id, the beginning of one, or latest.
type idKind struct {
	what   string // with its article
	lister string // the command that prints the ids
	length int
	list   boardList // nil for sessions
}

// A boardList lists things on the board.
type boardList func(ctx context.Context, engine *attempt.Engine) ([]candidate, error)

// tasksCommand lists tasks with their ids.
const tasksCommand = "deepwork board tasks"

var (
	taskIDs    = idKind{"a task", tasksCommand, 36, listTasks}
	attemptIDs = idKind{"an attempt or task", tasksCommand, 36, listAttempts}
	runIDs     = idKind{"a run", "deepwork run status", 36, listRuns}
	sessionIDs = idKind{"a session", "deepwork sessions list", 8, nil}
)

func listTasks(ctx context.Context, engine *attempt.Engine) (all []candidate, err error) {
	tasks, err := tasksOfAll(ctx, engine)
	return xslices.Map(tasks, func(t board.Task) candidate {
		return candidate{t.TaskID, t.Status + ": " + t.Title, timeIn(t.CreatedAt), t.LatestAttemptID}
	}), err
}

// listAttempts lists the tasks, too, which stand for their latest attempts.
func listAttempts(ctx context.Context, engine *attempt.Engine) ([]candidate, error) {
	all, err := listTasks(ctx, engine)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].created = time.Time{}
	}
	attempts, err := engine.FindAttempts(ctx, atTerminal, "")
	for _, x := range attempts {
		all = append(all, candidate{x.ID, "attempt on branch " + x.Branch, x.CreatedAt, &x.ID})
	}
	return all, err
}

func listRuns(ctx context.Context, engine *attempt.Engine) (all []candidate, err error) {
	attempts, err := engine.FindAttempts(ctx, atTerminal, "")
	for _, x := range attempts {
		if x.Run != nil {
			all = append(all, candidate{x.ID, x.Branch, x.CreatedAt, &x.ID})
		}
	}
	return all, err
}

// choose returns the candidate that is meant: the one whose id is given or begins with it, or the newest for latest.
func (k idKind) choose(given string, all []candidate) (chosen candidate, err error) {
	_, noun, _ := strings.Cut(k.what, " ")
	var found []candidate
	for _, c := range all {
		switch {
		case given == latest && c.created.After(chosen.created):
			chosen = c
		case given != latest && strings.HasPrefix(c.id, strings.ToLower(given)):
			found = append(found, c)
		}
	}
	switch {
	case given == latest && chosen.id == "":
		return chosen, fmt.Errorf("there is no %s yet, so latest names none", noun)
	case given == latest:
		return chosen, nil
	case len(found) == 0:
		return chosen, fmt.Errorf("there is no %s whose id begins with %q; '%s' lists them", noun, given, k.lister)
	case len(found) == 1:
		return found[0], nil
	}
	names := xslices.Map(found, func(c candidate) string { return fmt.Sprintf("%s (%s)", c.id, oneLine(c.about, titleWidth)) })
	return chosen, fmt.Errorf("%d %ss have an id that begins with %q; give more of it: %s", len(found), noun, given, oneLine(strings.Join(names, ", "), 800))
}

// named returns the thing on the board that an argument names.
func (k idKind) named(ctx context.Context, engine *attempt.Engine, given string) (candidate, error) {
	all, err := k.list(ctx, engine)
	if err != nil {
		return candidate{}, err
	}
	return k.choose(given, all)
}

// check checks that an argument can name one.
func (k idKind) check(cmd *cobra.Command, given string) error {
	if given == latest || given != "" && len(given) <= k.length && strings.Trim(strings.ToLower(given), "0123456789abcdef-") == "" {
		return nil
	}
	return usagef(cmd, "%q is not the id of %s, nor the beginning of one, nor latest; '%s' prints them", given, k.what, k.lister)
}

// first checks the number of arguments, as takes does, and that the first can name one.
func (k idKind) first(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := takes(least, most, names)(cmd, args); err != nil {
			return err
		}
		return k.check(cmd, args[0])
	}
}

// The arguments of commands that take one id and nothing else.
var (
	attemptArgument = attemptIDs.first(1, 1, "the id of an attempt or a task")
	taskArgument    = taskIDs.first(1, 1, "a task's id")
	runArgument     = runIDs.first(1, 1, "the id of a run")
	sessionID       = sessionIDs.first(1, 1, "a session id")
)

// onTask calls use with the board and the task that an argument names.
func (a *app) onTask(reads bool, given string, use func(context.Context, *attempt.Engine, *board.Task) error) error {
	return a.withBoard(reads, func(ctx context.Context, engine *attempt.Engine) error {
		t, err := oneTask(ctx, engine, given)
		if err != nil {
			return err
		}
		return use(ctx, engine, t)
	})
}

// oneTask returns the task of any project that an argument names.
func oneTask(ctx context.Context, engine *attempt.Engine, given string) (*board.Task, error) {
	if uuid.Validate(given) != nil {
		c, err := taskIDs.named(ctx, engine, given)
		if err != nil {
			return nil, err
		}
		given = c.id
	}
	t, err := engine.GetTask(ctx, atTerminal, board.TaskArgs{TaskID: given})
	if session.CodeOf(err) == codes.UnknownTask {
		return nil, fmt.Errorf("there is no task with the id %s; '%s' lists them", given, tasksCommand)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the task: %w", err)
	}
	return &t.Task, nil
}

// onAttempt calls use with the board and the attempt that an argument names; a task stands for its latest attempt.
func (a *app) onAttempt(given string, use func(context.Context, *attempt.Engine, board.Target) error) error {
	return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
		c, err := attemptIDs.named(ctx, engine, given)
		if err != nil {
			return err
		}
		if c.attempt == nil {
			return fmt.Errorf("task %s has no attempt; 'deepwork board start %s' makes one", c.id, c.id[:shortID])
		}
		return use(ctx, engine, board.Target{AttemptID: c.attempt})
	})
}

// onRun calls use with the board and the run that an argument names.
func (a *app) onRun(reads bool, given string, use func(context.Context, *attempt.Engine, *board.RunReply) error) error {
	return a.withBoard(reads, func(ctx context.Context, engine *attempt.Engine) error {
		c, err := runIDs.named(ctx, engine, given)
		if err != nil {
			return err
		}
		r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: c.id})
		if err != nil {
			return err
		}
		return use(ctx, engine, r)
	})
}

// withSession opens the sessions of the project, and finds the one that an argument names.
func (a *app) withSession(ctx context.Context, reads bool, given string, use func(engine *workflow.Engine, id string) error) error {
	return a.withEngine(ctx, reads, nil, func(engine *workflow.Engine) error {
		if _, err := hex.DecodeString(given); err == nil && len(given) == sessionIDs.length {
			return use(engine, given)
		}
		all, err := listSessions(ctx, engine)
		if err != nil {
			return err
		}
		c, err := sessionIDs.choose(given, all)
		if err != nil {
			return err
		}
		return use(engine, c.id)
	})
}

func listSessions(ctx context.Context, engine *workflow.Engine) (all []candidate, err error) {
	listed, err := engine.List(ctx)
	return xslices.Map(listed, func(s workflow.SessionInfo) candidate {
		return candidate{id: s.ID, about: s.Status + ": " + s.Goal, created: s.StartedAt}
	}), err
}
