package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/xslices"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/workflow"
)

// latest, in place of an id, means the newest one.
const latest = "latest"

// idsHelp explains ids in the help of commands.
const idsHelp = "ID may be the beginning of an id, or latest"

// related are ids that belong together: a task stands for its latest attempt, an attempt for its task and its session.
// A missing one is "".
type related struct{ task, attempt, run, session string }

// A candidate is something that an argument may name by its id, and that completions offer.
type candidate struct {
	kind      string // task, attempt, run or session
	id, about string // about describes it in one line
	created   time.Time
	related
}

// An idKind is the kind of thing that a command is about. An argument names one by its id, by the id of something
// related, by the beginning of either, or as latest.
type idKind struct {
	what   string // with its article
	lister string // the command that prints the ids
	length int
	kinds  string // kinds of candidates that latest considers
	id     func(related) string
}

// tasksCommand lists tasks with their ids.
const tasksCommand = "deepwork board tasks"

var (
	taskIDs    = idKind{"a task", tasksCommand, 36, "task", func(r related) string { return r.task }}
	attemptIDs = idKind{"an attempt", tasksCommand, 36, "attempt run", func(r related) string { return r.attempt }}
	runIDs     = idKind{"a run", "deepwork run list", 36, "run", func(r related) string { return r.run }}
	sessionIDs = idKind{"a session", "deepwork sessions list", 36, "session", func(r related) string {
		return r.session
	}}
)

// help explains the id in the help of a command.
func (k idKind) help() string {
	_, noun, _ := strings.Cut(k.what, " ")
	others := slices.DeleteFunc([]string{"task", "attempt", "run", "session"}, func(other string) bool {
		return other == noun
	})
	return fmt.Sprintf("\n\nID is that of %s, or of its %s. The first characters are enough, and\nlatest is the "+
		"newest %s.", k.what, choices(others), noun)
}

// onTheBoard lists the tasks and the attempts.
func onTheBoard(ctx context.Context, engine *attempt.Engine) (all []candidate, err error) {
	tasks, err := tasksOfAll(ctx, engine)
	if err != nil {
		return nil, err
	}

	attempts, err := engine.FindAttempts(ctx, atTerminal, "")
	of := map[string]related{} // by attempt
	for _, x := range attempts {
		kind, r := "attempt", related{task: x.TaskID, attempt: x.ID, session: optional(x.WorkflowSessionID)}
		if x.Run != nil {
			kind, r.run = "run", x.ID
		}
		of[x.ID] = r
		all = append(all, candidate{kind, x.ID, "on branch " + x.Branch, x.CreatedAt, r})
	}
	for _, t := range tasks {
		r := of[optional(t.LatestAttemptID)]
		r.task = t.TaskID
		all = append(all, candidate{"task", t.TaskID, t.Status + ": " + t.Title, timeIn(t.CreatedAt), r})
	}
	return all, err
}

// inSessions lists the sessions, related to what is on the board.
func inSessions(ctx context.Context, engine *workflow.Engine, board []candidate) (all []candidate, err error) {
	listed, err := engine.List(ctx)
	for _, s := range listed {
		r := related{session: s.ID}
		for _, c := range board {
			if c.kind != "task" && c.id == s.AttemptID {
				r.task = c.task
				r.attempt = c.attempt
				r.run = c.run
			}
		}
		all = append(all, candidate{"session", s.ID, s.Status + ": " + s.Goal, s.StartedAt, r})
	}
	return all, err
}

// choose returns the id that an argument means: of the candidate whose id is or begins with it, or of what is related
// to that candidate; for latest, of the newest.
func (k idKind) choose(given string, all []candidate) (id string, err error) {
	_, noun, _ := strings.Cut(k.what, " ")
	var found, own []candidate
	newest := candidate{}
	for _, c := range all {
		if strings.Contains(k.kinds, c.kind) {
			own = append(own, c)
			if c.created.After(newest.created) {
				newest = c
			}
		}

		if strings.HasPrefix(c.id, strings.ToLower(given)) {
			found = append(found, c)
		}
	}
	switch {
	case given == latest && newest.id == "":
		return "", fmt.Errorf("there is no %s yet", noun)
	case given == latest:
		return newest.id, nil
	case len(found) == 0 && len(own) == 0:
		return "", fmt.Errorf("there is no %s whose id begins with %q, and no other one", noun, given)
	case len(found) == 0:
		return "", fmt.Errorf("there is no %s whose id begins with %q; '%s' lists them: %s", noun, given, k.lister,
			names(own, shortID))
	case len(found) > 1:
		return "", fmt.Errorf("%d ids begin with %q; give more characters: %s", len(found), given,
			names(found, max(shortID, len(given)+2)))
	}
	if id = k.id(found[0].related); id != "" {
		return id, nil
	}
	none := fmt.Errorf("the %s %s has no %s", found[0].kind, board.Short(found[0].id), noun)
	if k.id(related{attempt: "x"}) != "" && found[0].task != "" {
		none = fmt.Errorf("%w; 'deepwork board start %s' makes one", none, board.Short(found[0].task))
	}
	return "", none
}

// names lists candidates for an error, with the first characters of their ids.
func names(all []candidate, length int) string {
	return oneLine(strings.Join(xslices.Map(all, func(c candidate) string {
		return fmt.Sprintf("%s (%s, %s)", c.id[:min(length, len(c.id))], c.kind, oneLine(c.about, titleWidth))
	}), ", "), 800)
}

// named returns the id on the board that an argument means.
func (a *app) named(ctx context.Context, engine *attempt.Engine, k idKind, given string) (string, error) {
	all, err := onTheBoard(ctx, engine)
	if err != nil {
		return "", err
	}
	if given != latest && len(given) <= shortID { // it may be a session's, too
		err = a.withEngine(ctx, true, nil, func(sessions *workflow.Engine) error {
			more, err := inSessions(ctx, sessions, all)
			all = append(all, more...)
			return err
		})
	}
	if err != nil {
		return "", err
	}
	return k.choose(given, all)
}

// check refuses an argument that cannot be an id.
func (k idKind) check(cmd *cobra.Command, given string) error {
	if given == latest || given != "" && len(given) <= k.length &&
		strings.Trim(strings.ToLower(given), "0123456789abcdef-") == "" {
		return nil
	}
	return usagef(cmd, "%q is not the id of %s, nor the beginning of one, nor latest; '%s' prints them", given,
		k.what, k.lister)
}

// first checks the number of arguments, as argumentCount does, and that the first can be an id.
func (k idKind) first(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := argumentCount(least, most, names)(cmd, args); err != nil {
			return err
		}
		return k.check(cmd, args[0])
	}
}

// The arguments of commands that take one id only.
var (
	attemptArgument = attemptIDs.first(1, 1, "the id of an attempt or a task")
	taskArgument    = taskIDs.first(1, 1, "a task's id")
	runArgument     = runIDs.first(1, 1, "the id of a run")
	sessionID       = sessionIDs.first(1, 1, "a session id")
)

// onTask calls use with the board and the task that an argument names.
func (a *app) onTask(reads bool, given string, use func(context.Context, *attempt.Engine, *board.Task) error) error {
	return a.withBoard(reads, func(ctx context.Context, engine *attempt.Engine) error {
		t, err := a.oneTask(ctx, engine, given)
		if err != nil {
			return err
		}
		return use(ctx, engine, t)
	})
}

// oneTask returns the task of any project that an argument names.
func (a *app) oneTask(ctx context.Context, engine *attempt.Engine, given string) (*board.Task, error) {
	id, err := a.named(ctx, engine, taskIDs, given)
	if err != nil {
		return nil, err
	}
	t, err := engine.GetTask(ctx, atTerminal, board.TaskArgs{TaskID: id})
	if err != nil {
		return nil, fmt.Errorf("reading the task: %w", err)
	}
	return &t.Task, nil
}

// onAttempt calls use with the board and the attempt that an argument names.
func (a *app) onAttempt(given string, use func(context.Context, *attempt.Engine, board.Target) error) error {
	return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
		id, err := a.named(ctx, engine, attemptIDs, given)
		if err != nil {
			return err
		}
		return use(ctx, engine, board.Target{AttemptID: &id})
	})
}

// onRun calls use with the board and the run that an argument names.
func (a *app) onRun(reads bool, given string, use func(context.Context, *attempt.Engine, *board.RunReply) error) error {
	return a.withBoard(reads, func(ctx context.Context, engine *attempt.Engine) error {
		id, err := a.named(ctx, engine, runIDs, given)
		if err != nil {
			return err
		}
		r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: id})
		if err != nil {
			return err
		}
		return use(ctx, engine, r)
	})
}

// withSession opens the sessions of the project, and finds the one that an argument names.
func (a *app) withSession(
	ctx context.Context, reads bool, given string, use func(engine *workflow.Engine, id string) error,
) error {
	return a.withEngine(ctx, reads, nil, func(engine *workflow.Engine) error {
		all, err := inSessions(ctx, engine, nil)
		if err != nil {
			return err
		}

		_, exported := os.Lstat(filepath.Join(engine.Root, ".deepwork", "tmp", "session_"+filepath.Base(given)+".json"))
		if exported == nil || slices.ContainsFunc(all, func(c candidate) bool { return c.id == given }) {
			return use(engine, given) // if there is none, it says how to import it
		}

		if given != latest {
			if err := a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
				more, err := onTheBoard(ctx, board)
				all = append(all, more...)
				return err
			}); err != nil {
				return err
			}
		}
		id, err := sessionIDs.choose(given, all)
		if err != nil {
			return err
		}
		return use(engine, id)
	})
}
