package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
)

func (a *app) boardTailCommand() *cobra.Command {
	var follow bool
	var n int
	cmd := a.onProject("print each message, or with --raw each line, as JSON on a line of its own", &cobra.Command{
		Use:   "tail ID",
		Short: "Print what the agent of an attempt said and did",
		Long: `Print what the agents of an attempt said and did, in their last -n lines. With -f it goes
on until the attempt ends, with the exit code of 'deepwork board start'; an attempt that
waits is started if there is room.` + attemptsHelp,
		Args: attemptArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > attempt.MaxTail {
				return usagef(cmd, "-n %d is out of range; expected 1 to %d", n, attempt.MaxTail)
			}
			return a.onAttempt(args[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
				return a.tail(ctx, engine, t, n, follow)
			})
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the attempt ends")
	cmd.Flags().BoolVar(&a.raw, "raw", false, "print each byte as the agent wrote it")
	cmd.Flags().IntVarP(&n, "lines", "n", attempt.DefaultTail, "`number` of the agent's last lines to begin with")
	return cmd
}

func (a *app) tail(ctx context.Context, engine *attempt.Engine, t board.Target, n int, follow bool) error {
	r, err := engine.TailAttempt(ctx, atTerminal, attempt.TailArgs{Target: t, Limit: &n, Raw: &a.raw})
	if err == nil {
		err = a.printMessages(r)
	}
	if err != nil {
		return err
	}
	if follow {
		if r.State.Open() {
			engine.ServeOnly(*t.AttemptID)
		}
		return a.follow(ctx, engine, *t.AttemptID, r.NextIndex)
	}
	if len(r.Messages)+len(r.Entries) == 0 {
		fmt.Fprintf(a.err, "deepwork: the attempt is %s, and its agent has written nothing\n", r.State.Words())
	}
	return nil
}

// labels are the names that people see for the kinds of messages.
var labels = map[string]string{"message": "agent", "reasoning": "thinks", "tool_call": "calls", "tool_result": "result", "system": "deepwork"}

// labelWidth is the length of a label with the space after it.
const labelWidth = 10

// printMessages prints the messages, or raw lines, of a reply.
func (a *app) printMessages(r *attempt.TailReply) error {
	for _, x := range r.Entries {
		if err := a.printEntry(x); err != nil {
			return err
		}
	}
	width := max(cmp.Or(a.out.Width(), 100), 2*labelWidth)
	for _, m := range r.Messages {
		if a.json {
			if err := a.printLine(m); err != nil {
				return err
			}
			continue
		}
		text := strings.TrimSpace(plain(m.Text))
		label := cmp.Or(labels[m.Kind], m.Kind)
		switch m.Kind {
		case "tool_call", "tool_result", "reasoning":
			if m.Tool != "" {
				text = m.Tool + " " + text
			}
			if m.Failed {
				text = "failed: " + text
			}
			text = oneLine(text, width-labelWidth-1)
		default:
			text = indentRest(a.out.Colored(strings.TrimSpace(m.Text)), strings.Repeat(" ", labelWidth))
			if m.Cut {
				text += " …"
			}
		}
		if err := a.out.Safe(fmt.Sprintf("%-*s%s\n", labelWidth, plain(label), text)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printEntry(x runner.Entry) error {
	if a.json {
		return a.printLine(x)
	}
	if x.Stream == runner.System {
		_, err := fmt.Fprintln(a.err, "deepwork: "+x.Text)
		return err
	}
	_, err := a.rawOut.Write(x.Bytes())
	return err
}

// printLine prints a value as JSON on one line.
func (a *app) printLine(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(a.out, "%s\n", text)
	}
	return err
}
