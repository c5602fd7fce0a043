package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

func (a *app) sessionsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a session: its steps, outputs, review attempts, verdicts and overrides",
		Args:  sessionID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withArchive(func(_ string, archive *workflow.Archive) error {
				return a.showSession(cmd.Context(), archive, args[0], asJSON)
			})
		},
	}
	a.pathFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the record as it is on disk")
	return cmd
}

func (a *app) showSession(ctx context.Context, archive *workflow.Archive, id string, asJSON bool) error {
	if asJSON {
		raw, err := archive.Show(ctx, id)
		if err != nil {
			return fmt.Errorf("reading session %s: %w", id, err)
		}
		_, err = fmt.Fprintf(a.out, "%s\n", strings.TrimRight(string(raw), "\n"))
		return err
	}
	s, err := archive.Read(id)
	if err != nil {
		return fmt.Errorf("reading session %s: %w", id, err)
	}
	a.printSession(s)
	return nil
}

func (a *app) printSession(s *machine.State) {
	field := func(name, value string) {
		if value = plain(value); value != "" {
			fmt.Fprintf(a.out, "%-9s %s\n", name+":", strings.TrimLeft(indent(value, strings.Repeat(" ", 10)), " "))
		}
	}
	field("session", s.SessionID)
	field("status", string(s.Status))
	field("workflow", s.JobName+"/"+s.WorkflowName)
	field("goal", s.Goal)
	field("instance", optional(s.InstanceID))
	field("branch", s.BranchName)
	field("parent", optional(s.ParentSessionID))
	if s.Status == machine.Active {
		field("step", s.CurrentStepID)
	}
	field("started", stamp(s.StartedAt))
	field("moved", stamp(s.UpdatedAt))
	if s.CompletedAt != nil {
		field("ended", stamp(*s.CompletedAt))
	}
	field("aborted", optional(s.AbortReason))
	field("caller", s.Identity)
	field("server", s.Owner)
	field("job_dir", s.Definition.JobDir)
	fmt.Fprintln(a.out, "\nsteps:")
	a.printProgress(s.StepProgress)
	for _, h := range s.History {
		fmt.Fprintf(a.out, "\nwithdrawn %s, going back from %s to %s:\n", stamp(h.At), plain(h.From), plain(h.To))
		a.printProgress(h.Progress)
	}
}

func (a *app) printProgress(steps machine.OrderedMap[*machine.StepProgress]) {
	for _, step := range steps {
		p := step.Value
		fmt.Fprintf(a.out, "  %s\n", plain(step.Key))
		detail := func(format string, args ...any) {
			fmt.Fprint(a.out, indent(plain(fmt.Sprintf(format, args...))+"\n", "    "))
		}
		switch {
		case p.CompletedAt != nil:
			detail("started %s, finished %s (%s)", stamp(p.StartedAt), stamp(*p.CompletedAt),
				p.CompletedAt.Sub(p.StartedAt).Round(time.Millisecond))
		case p.Unreported:
			detail("started %s, never reported: its group went on without it", stamp(p.StartedAt))
		default:
			detail("started %s, in progress", stamp(p.StartedAt))
		}
		for _, o := range p.Outputs {
			detail("output %s: %s", o.Key, strings.Join(o.Value.Paths, ", "))
		}
		if notes := optional(p.Notes); notes != "" {
			detail("notes: %s", notes)
		}
		printAttempts(detail, p.Attempts)
		for _, o := range p.Overrides {
			detail("review overridden %s by %s (skipped: %s): %s", stamp(o.At), o.Identity, strings.Join(o.Skipped, ", "), o.Reason)
		}
	}
}

func optional(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
