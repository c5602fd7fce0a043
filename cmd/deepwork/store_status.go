package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/backend"
	"deepwork/session/workflow"
)

func (a *app) storeStatusCommand() *cobra.Command {
	return a.onProject("print it as JSON", &cobra.Command{
		Use:   "status",
		Short: "Show which store the project is in, what it has, and who uses it",
		Long: `Show the store of the project: files, or a database with its schema, the name of the
project there and the repository to which it is bound; how many sessions, tasks,
attempts and executions it has; and the servers that use it. It changes nothing.
Exit 1 if the store cannot be used.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, choice, err := a.chosen(cmd.Context())
			if err != nil {
				return err
			}
			s, err := backend.Look(cmd.Context(), folder, choice, workflow.RecordOptions(true, nil))
			if err != nil {
				return err
			}
			return a.printStatus(s)
		},
	})
}

// chosen returns the project's state and the store that was chosen for it.
func (a *app) chosen(ctx context.Context) (*state.Folder, backend.Choice, error) {
	root, err := a.projectRoot()
	if err != nil {
		return nil, backend.Choice{}, err
	}
	folder, err := state.Find(root)
	if err != nil {
		return nil, backend.Choice{}, err
	}
	choice, err := a.choice(ctx, root)
	return folder, choice, err
}

func (a *app) printStatus(s backend.Status) (err error) {
	if a.json {
		err = a.printJSON(s)
	} else {
		a.describeStatus(s)
	}
	if err == nil && s.Problem != "" {
		err = &reportedError{}
	}
	return err
}

func (a *app) describeStatus(s backend.Status) {
	a.out.Prose(s.Where)
	if s.Project != "" {
		bound := ""
		if s.Repository != "" {
			bound = ", bound to " + s.Repository
		}
		a.out.Field(9, "project", oneLine(s.Project+bound, 700))
		if s.Schema > 0 {
			a.out.Field(9, "schema", fmt.Sprintf("version %d; this deepwork knows version %d", s.Schema, s.Knows))
		}
	}
	if s.Problem != "" {
		a.out.Field(9, "problem", oneLine(s.Problem, 2000))
	}
	if len(s.Counts) > 0 {
		var all []string
		for _, what := range []string{"active sessions", "ended sessions", "tasks", "attempts", "executions"} {
			all = append(all, count(s.Counts[what], strings.TrimSuffix(what, "s")))
		}
		a.out.Field(9, "contents", strings.Join(all, ", "))
	}
	for _, m := range s.Servers {
		text := m.Text
		if m.Machine != "" {
			text += fmt.Sprintf(" (machine %s), lease ends in %.1f s unless it is renewed", m.Machine, m.Lease)
		}
		if !m.Since.IsZero() {
			text += ", connected for " + session.Ago(time.Since(m.Since))
		}
		a.out.Field(9, "server", oneLine(text, 1000))
	}
	if len(s.Servers) == 0 && s.Problem == "" {
		a.out.Field(9, "server", "none")
	}
}
