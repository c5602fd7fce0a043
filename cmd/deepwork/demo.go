package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"deepwork/cmd/deepwork/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show everything at work on an example project",
		Long: `Lay out an example project in a temporary directory, with scripted agents, and use
everything once: an MCP client goes through a workflow on a real server, an agent does a
task of the board in a git worktree, and 'deepwork run' runs agents through a workflow.
It fails if anything does not work here. It ends with what to try next. It changes nothing
outside of that directory, and removes it.`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			defer surviveBrokenPipes()() // it stops and cleans up
			ctx, stop := interruptible(context.Background(), 0)
			defer stop()
			return a.demo(ctx, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the example project and print where it is")
	for name, work := range demo.Agents {
		cmd.AddCommand(&cobra.Command{Use: name, Short: "Be the " + name + " of the demo", Hidden: true, Args: takes(0, 0, ""), RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), demo.Timeout)
			defer stop()
			return work(ctx, a.in, a.out)
		}})
	}
	return cmd
}

func (a *app) demo(ctx context.Context, keep bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, which is the server: %w", err)
	}
	dir, err := os.MkdirTemp("", "deepwork-demo-*")
	if err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	if keep {
		a.out.Prose("The example project is kept in " + dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	began := time.Now()
	if err := demo.Run(ctx, a.out, dir, self); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	a.out.Prose(fmt.Sprintf("\nAll of it works here. It took %.1fs.", time.Since(began).Seconds()))
	demo.Next(a.out)
	return nil
}
