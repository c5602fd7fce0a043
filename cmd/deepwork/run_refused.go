package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session"
)

// runRefused returns the error of a run that was not started or resumed: a usage error if other arguments
// would help, so that exit code 1 remains that of a run that stopped.
func runRefused(cmd *cobra.Command, doing string, err error) error {
	refused, is := errors.AsType[*session.Error](err)
	if is { // the board's command stops runs, too, but they have their own
		refused.Message = strings.ReplaceAll(refused.Message, "stop_attempt", "'deepwork run stop'")
	}
	if !is || refused.Kind != session.ToolError {
		return fmt.Errorf("%s: %w", doing, err)
	}
	text := inCommands(refused.Message)
	argument, rest, _ := strings.Cut(text, " ")
	if flag := flagOf(cmd, argument); flag != "" {
		text, doing = flag+" "+rest, ""
	}
	text = strings.NewReplacer("pass in_place: true", "pass --in-place", "leave in_place out", "leave --in-place out", "leave 'variant' out", "leave :VARIANT out").Replace(text)
	if text = strings.TrimSuffix(text, "."); doing != "" {
		text = doing + ": " + text
	}
	return usagef(cmd, "%s", text)
}
