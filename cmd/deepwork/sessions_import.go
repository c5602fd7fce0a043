package main

import (
	"context"
	"errors"
	"fmt"

	"deepwork/catalog"
	"deepwork/catalog/jsontext"
	"deepwork/session/export"
	"deepwork/session/show"
	"deepwork/session/workflow"

	"github.com/spf13/cobra"
)

func (a *app) sessionsImportCommand() *cobra.Command {
	all := false
	cmd := a.onProject("", &cobra.Command{
		Use:   "import FILE...|--all",
		Short: "Make sessions of files that were exported, after asking at the terminal",
		Long: `Show what is in files of sessions, such as those in .deepwork/tmp, and ask at the
terminal whether to make sessions of this project of them: after its database was lost,
or for sessions of another project. Anybody can have written such a file, and what it
says reaches agents as if it were their own work. Import what you know the origin of.

A session that the project has is not replaced. Verdicts of reviewers and decisions of
people stay for you to read, marked as imported, and pass nothing: steps that are not
finished are reviewed again. If the definition of a session's job is not stored here,
the job as it is now counts.`,
		Example: `  deepwork sessions import .deepwork/tmp/session_1a2b3c4d.json
  deepwork sessions import --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return argumentCount(0, 0, "")(cmd, args)
			}
			return argumentCount(1, -1, "the file of a session, or --all")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := byPerson(); err != nil {
				return err
			}
			return a.withCatalog(cmd.Context(), func(_ string, jobs *catalog.Catalog) error {
				return a.importSessions(cmd.Context(), jobs, args)
			})
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "all files of sessions in .deepwork/tmp")
	return cmd
}

// importSessions imports files, by default the project's own. Without any to import it makes no database.
func (a *app) importSessions(ctx context.Context, jobs *catalog.Catalog, files []string) error {
	var found []*export.Import
	err := a.withEngine(ctx, true, jobs, func(engine *workflow.Engine) (err error) {
		if len(files) == 0 {
			if files, err = engine.Importer().All(); err != nil {
				return fmt.Errorf("looking for files of sessions: %w", err)
			}
		}
		found, err = engine.Importer().Examine(ctx, files)
		return err
	})
	if err != nil {
		return err
	}
	n := a.showImports(found)
	switch {
	case len(found) == 0:
		fmt.Fprintln(a.out, "There are no files of sessions in .deepwork/tmp.")
		return nil
	case n == 0:
		return errors.New("nothing can be imported")
	}

	if err := confirm(fmt.Sprintf("\nMay agents go on with %s? Type yes: ", count(n, "session")),
		"nothing was imported", ""); err != nil {
		return err
	}
	return a.withEngine(ctx, false, jobs, func(engine *workflow.Engine) error {
		made, err := engine.Importer().Import(ctx, found)
		if made > 0 || err == nil {
			fmt.Fprintf(a.out, "Imported %s.\n", count(made, "session"))
		}
		return err
	})
}

// showImports prints what is in files, and returns how many can be imported.
func (a *app) showImports(found []*export.Import) (n int) {
	root, _ := a.projectRoot()
	for _, i := range found {
		fmt.Fprintf(a.out, "%s  %d bytes\n", oneLine(a.display(root, i.Path), 400), i.Size)
		if s := i.State; s != nil {
			a.out.Text("  ", fmt.Sprintf("session %s, %s: %s/%s, at step %s, of %s, moved last %s", s.SessionID,
				s.Status, oneLine(s.JobName, 100), oneLine(s.WorkflowName, 100),
				oneLine(s.CurrentStepID, 100), oneLine(s.Identity, 100), show.Ago(s.UpdatedAt)))
			a.out.Text("  ", "goal: "+show.IndentRest(jsontext.Clip(plain(s.Goal), 4000), "    "))
			a.out.Text("  ", claimed(i))
		}
		if i.Err != nil {
			a.out.Text("  ", "refused: "+oneLine(i.Err.Error(), 1000))
			continue
		}
		if i.AsNow {
			a.out.Text("  ", "Its definition is not stored here: the job as it is now counts.")
		}
		n++
	}
	return n
}

// claimed says what a file claims to be done.
func claimed(i *export.Import) string {
	c := export.ClaimOf(i.State)
	text := count(c.Steps, "step") + " finished"
	if c.Reviews+c.Decisions > 0 {
		text += fmt.Sprintf(", with %s and %s that count as imported, not as evidence", count(c.Reviews, "verdict"),
			count(c.Decisions, "decision"))
	}
	if up := i.State.ParentSessionID; up != nil {
		text += ", nested in " + oneLine(*up, 100)
	}
	return text
}
