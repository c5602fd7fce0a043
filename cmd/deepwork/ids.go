package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
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

// idArgument checks that an argument can be an id of a length, the beginning of one, or latest.
func idArgument(cmd *cobra.Command, what, lister, given string, length int) error {
	if given == latest || given != "" && len(given) <= length && strings.Trim(strings.ToLower(given), "0123456789abcdef-") == "" {
		return nil
	}
	return usagef(cmd, "%q is not the id of %s, nor the beginning of one, nor latest; '%s' prints them", given, what, lister)
}

// attemptArgument checks that the one argument can name an attempt or a task.
func attemptArgument(cmd *cobra.Command, args []string) error {
	if err := takes(1, 1, "the id of an attempt or a task")(cmd, args); err != nil {
		return err
	}
	return idArgument(cmd, "an attempt or a task", tasksCommand, args[0], 36)
}

// onAttempt calls use with the board and the attempt that an argument names.
func (a *app) onAttempt(given string, use func(context.Context, *attempt.Engine, attempt.Target) error) error {
	return a.withBoard(false, func(ctx context.Context, board *attempt.Engine) error {
		id, err := oneAttempt(ctx, board, given)
		if err != nil {
			return err
		}
		return use(ctx, board, attempt.Target{AttemptID: &id})
	})
}

// oneAttempt returns the id of the attempt that an argument names by its id, the beginning of one, or
// latest; a task stands for its latest attempt.
func oneAttempt(ctx context.Context, board *attempt.Engine, given string) (string, error) {
	prefix := strings.ToLower(given)
	if given == latest {
		prefix = ""
	}
	attempts, err := board.FindAttempts(ctx, atTerminal, prefix)
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
		tasks, err := tasksOfAll(ctx, board)
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
