package main

import (
	"context"
	"fmt"
	"log/slog"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/workflow"
)

// attention prints what waits for the user.
func (a *app) attention(ctx context.Context, board *attempt.Engine) error {
	r, err := board.NeedsAttention(ctx, atTerminal)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r.Items)
	}
	if len(r.Items) == 0 {
		a.out.Prose("Nothing waits for you. 'deepwork board tasks' lists the tasks.")
		return nil
	}
	var rows [][]string
	for _, i := range r.Items {
		rows = append(rows, []string{string(i.Kind), sinceText(optional(i.Since)), i.Title, i.Command})
	}
	a.out.Table([]show.Column{{Title: "KIND", State: true}, {Title: "AGE"}, {Title: "TITLE", Least: 30}, {Title: "COMMAND", Below: true}}, rows)
	if r.Truncated {
		fmt.Fprintln(a.out, "Older attempts are left out.")
	}
	return nil
}

// awaiting returns the steps that wait for a person, of all sessions of the project and of workspaces
// of attempts.
func (a *app) awaiting(ctx context.Context, _ session.Caller, workspaces []string) (steps []session.AwaitingStep, err error) {
	err = a.withArchive(func(folder *state.Folder, archive *workflow.Archive) error {
		c, err := approvedConfig(folder, slog.New(slog.DiscardHandler)).Current(ctx)
		if err == nil {
			steps, err = archive.Awaiting(ctx, &c.QualityGate)
		}
		if err == nil {
			steps, err = workflow.AwaitingIn(ctx, steps, workspaces, &c.QualityGate, slog.New(slog.DiscardHandler))
		}
		return err
	})
	return steps, err
}
