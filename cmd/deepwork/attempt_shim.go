package main

import (
	"github.com/spf13/cobra"

	"deepwork/session/attempt/runner"
)

// attemptShimCommand returns the parent process of an attempt's agent; servers start it and people
// do not. Only RunShim may use its standard output.
func attemptShimCommand() *cobra.Command {
	return &cobra.Command{
		Use:    runner.ShimCommand + " DIR",
		Short:  "Run the agent of an attempt",
		Long:   "Run the agent of an attempt as the folder DIR says, and record how it ends.\nServers start this command; it is of no use on its own.",
		Hidden: true,
		Args:   takes(1, 1, "DIR"),
		RunE:   func(_ *cobra.Command, args []string) error { return runner.RunShim(args[0]) },
	}
}
