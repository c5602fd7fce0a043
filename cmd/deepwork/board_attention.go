package main

import (
	"context"
	"fmt"
	"log/slog"
	"text/tabwriter"

	"deepwork/session"
	"deepwork/session/attempt"
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
		fmt.Fprintln(a.out, "Nothing waits for you.")
		return nil
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tAGE\tTITLE\tCOMMAND")
	for _, i := range r.Items {
		age := "-"
		if i.Since != nil {
			age = sinceText(*i.Since)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", i.Kind, age, oneLine(i.Title, titleWidth), oneLine(i.Command, 200))
	}
	if r.Truncated {
		fmt.Fprintln(table, "…\t\tolder attempts are left out\t")
	}
	return table.Flush()
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
