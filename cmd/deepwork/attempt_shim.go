package main

import (
	"github.com/spf13/cobra"

	"deepwork/session/attempt/runner"
)

// attemptShimCommand is what an attempt's agent runs under; servers start it and
// people do not. Its standard output belongs to RunShim alone.
func attemptShimCommand() *cobra.Command {
	return &cobra.Command{
		Use:    runner.ShimCommand + " DIR",
		Short:  "Run the agent of an attempt",
		Long:   "Run the agent of an attempt as the folder DIR says, and record how it ends.\nServers start this command; it is of no use by itself.",
		Hidden: true,
		Args:   takes(1, 1, "DIR"),
		RunE:   func(_ *cobra.Command, args []string) error { return runner.RunShim(args[0]) },
	}
}
