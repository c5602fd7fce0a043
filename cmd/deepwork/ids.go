package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/board"
)

// latest is what commands take in place of an id for the newest one.
const latest = "latest"

// idsHelp is how the help of commands says what they take as an id.
const idsHelp = "ID may be the beginning of an id, or latest"

// attemptsHelp is how the help of commands says what they take as the id of an attempt.
const attemptsHelp = `

ID is the id of an attempt, or of a task for its latest attempt; the beginning of one
is enough, and latest is the newest attempt.`

// A candidate is something that an argument may name by its id.
type candidate struct {
	id, about string // about describes it in one line
	created   time.Time
}

// choose returns the index of the candidate that is meant: the one whose id is given or begins with
// it, or the newest for latest. what names its kind, and lister is the command that lists them.
func choose(what, lister, given string, all []candidate) (int, error) {
	if given == latest {
		newest := -1
		for i, c := range all {
			if newest < 0 || c.created.After(all[newest].created) {
				newest = i
			}
		}
		if newest < 0 {
			return 0, fmt.Errorf("there is no %s yet, so latest names none", what)
		}
		return newest, nil
	}
	var found []int
	for i, c := range all {
		if strings.HasPrefix(c.id, strings.ToLower(given)) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("there is no %s whose id begins with %q; '%s' lists them", what, given, lister)
	case 1:
		return found[0], nil
	}
	const shown = 10
	names := make([]string, 0, shown)
	for _, i := range found[:min(len(found), shown)] {
		names = append(names, fmt.Sprintf("%s (%s)", all[i].id, oneLine(all[i].about, titleWidth)))
	}
	if more := len(found) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return 0, fmt.Errorf("%d %ss have an id that begins with %q; give more of it: %s", len(found), what, given, strings.Join(names, ", "))
}

// An idKind is a kind of thing that arguments name by its id, the beginning of one, or latest.
type idKind struct {
	what, lister string // lister is the command that prints the ids
	length       int
}

var (
	attemptIDs = idKind{"an attempt or a task", tasksCommand, 36}
	taskIDs    = idKind{"a task", tasksCommand, 36}
	sessionIDs = idKind{"a session", sessionsCommandList, 8}
)

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

// onAttempt calls use with the board and the attempt that an argument names.
func (a *app) onAttempt(given string, use func(context.Context, *attempt.Engine, board.Target) error) error {
	return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
		id, err := oneAttempt(ctx, engine, given)
		if err != nil {
			return err
		}
		return use(ctx, engine, board.Target{AttemptID: &id})
	})
}

// oneAttempt returns the id of the attempt that an argument names by its id, the beginning of one, or
// latest; a task stands for its latest attempt.
func oneAttempt(ctx context.Context, engine *attempt.Engine, given string) (string, error) {
	prefix := strings.ToLower(given)
	if given == latest {
		prefix = ""
	}
	attempts, err := engine.FindAttempts(ctx, atTerminal, prefix)
	if err != nil {
		return "", err
	}
	if given == latest && len(attempts) == 0 {
		return "", errors.New("there is no attempt yet; 'deepwork board start ID' makes one of a task")
	}
	var all []candidate
	of := map[string]*string{} // the attempt that an id stands for
	for _, x := range attempts {
		all, of[x.ID] = append(all, candidate{x.ID, "attempt on branch " + x.Branch, x.CreatedAt}), &x.ID
	}
	if given != latest {
		tasks, err := tasksOfAll(ctx, engine)
		if err != nil {
			return "", err
		}
		for _, t := range tasks {
			all, of[t.TaskID] = append(all, candidate{t.TaskID, "task " + t.Title, time.Time{}}), t.LatestAttemptID
		}
	}
	i, err := choose("attempt or task", tasksCommand, given, all)
	if err != nil {
		return "", err
	}
	id := of[all[i].id]
	if id == nil {
		return "", fmt.Errorf("task %s has no attempt; 'deepwork board start %s' makes one", all[i].id, all[i].id[:shortID])
	}
	return *id, nil
}
