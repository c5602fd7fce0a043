package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/cmd/deepwork/demo"
	"deepwork/session/show"
)

func (a *app) demoCommand() *cobra.Command {
	var keep, noPause bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show everything at work on an example project",
		Example: `  deepwork demo
  deepwork demo --no-pause --keep`,
		Long: `Tell a story on an example project in a temporary folder: a workflow in a chat, a task of
the board, and a run. Scripts play the agents, so it needs no API key and costs nothing. At a
terminal it waits for Enter between chapters, and at the end offers to open the project in
your browser. It fails if anything doesn't work here. It changes nothing outside of its
folder, and removes that.`,
		Args: argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			defer surviveBrokenPipes()() // it stops and cleans up
			ctx, stop := interruptible(context.Background(), 0)
			defer stop()
			_, _, person := show.TerminalSize(a.rawOut)
			return a.demo(ctx, keep, person && !noPause)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the example project and print where it is")
	cmd.Flags().BoolVar(&noPause, "no-pause", false, "don't wait for Enter between chapters")
	for name, work := range demo.Agents {
		cmd.AddCommand(&cobra.Command{
			Use:    name,
			Short:  "Be the " + name + " of the demo",
			Hidden: true,
			Args:   argumentCount(0, 0, ""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				return work(cmd.Context(), a.in, a.out)
			},
		})
	}

	return cmd
}

// demo plays the demo, for a person who reads along, or as a check.
func (a *app) demo(ctx context.Context, keep, person bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, which is the server: %w", err)
	}

	dir, err := durable.TempFolder("", "deepwork-demo-*")
	if err != nil {
		return fmt.Errorf("making a folder for the demo: %w", err)
	}
	if keep {
		a.out.Prose("The example project is kept in " + dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	d := &demo.Demo{Out: a.out, Dir: dir, Self: self, Turn: func() {}}
	typed := make(chan string)
	ask := func(question string) string { // ask returns "" when ctx or stdin ends
		fmt.Fprint(a.out, question)
		select {
		case line := <-typed:
			return line
		case <-ctx.Done():
			return ""
		}
	}
	if person {
		go func() {
			defer close(typed)
			for lines := bufio.NewScanner(a.in); lines.Scan(); {
				typed <- lines.Text()
			}
		}()
		d.Turn = func() { ask("Enter to go on ") }
	}
	if err := d.Run(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return fmt.Errorf("demo: %w", err)
	}

	a.out.Prose("\nAll of it works here.")
	if person && ask("Type yes to look at the project in your browser, or Enter to end: ") == "yes" {
		d.Browse(ctx)
	}
	return nil
}
