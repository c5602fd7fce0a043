package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/git"
)

func (a *app) boardDiffCommand() *cobra.Command {
	var stat bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "diff ID [PATH...]",
		Short: "Print the changes of an attempt; " + idsHelp,
		Long: `Print the changes of an attempt since the commit that it started from, with those that
are not committed, as git diff does: of all files, or of these in its worktrees. ` + attemptsHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := takes(1, -1, "the id of an attempt or a task")(cmd, args); err != nil {
				return err
			}
			return attemptArgument(cmd, args[:1])
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onAttempt(args[0], func(ctx context.Context, board *attempt.Engine, t attempt.Target) error {
				return a.diff(ctx, board, attempt.DiffArgs{Target: t, Paths: args[1:], MaxBytes: new(attempt.MaxDiff)}, stat)
			})
		},
	})
	cmd.Flags().BoolVar(&stat, "stat", false, "print the changed files with the number of changed lines")
	return cmd
}

func (a *app) diff(ctx context.Context, board *attempt.Engine, args attempt.DiffArgs, stat bool) error {
	tooLong := errors.New("the diff is too long, and its end was left out; name files or folders after the id")
	r, err := board.GetAttemptDiff(ctx, atTerminal, args)
	if err == nil && stat && r.Truncated {
		err = tooLong
	}
	if err != nil {
		return err
	}
	now, err := board.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: args.Target})
	if err != nil {
		return err
	}
	for i, d := range r.Diffs {
		text := d.Diff
		if stat {
			if text, err = diffStat(ctx, now.Repos[i].WorktreePath, text); err != nil {
				return err
			}
		}
		if len(r.Diffs) > 1 && text != "" {
			text = "# repository " + inline(d.RepoName) + "\n" + text
		}
		if err := a.printDiff(text, !stat); err != nil {
			return fmt.Errorf("writing to stdout: %w", err)
		}
	}
	a.note(r.Notice)
	if r.Truncated {
		return tooLong
	}
	return nil
}

// diffStat counts the changed lines of a diff for each file. It runs git in a worktree.
func diffStat(ctx context.Context, dir, diff string) (string, error) {
	if diff == "" {
		return "", nil
	}
	out, err := git.Output(ctx, git.Command{Dir: dir, Args: []string{"apply", "--stat"}, Stdin: []byte(diff)})
	if err != nil {
		return "", fmt.Errorf("counting the changed lines: %w", err)
	}
	return out, nil
}

// printDiff prints a diff: at a terminal made safe and perhaps in colors, else unchanged, so that git
// can apply it.
func (a *app) printDiff(text string, colors bool) error {
	if _, is := terminalWidth(a.rawOut); !is {
		_, err := a.rawOut.Write([]byte(text))
		return err
	}
	text = plain(text)
	if colors && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		text = colored(text)
	}
	_, err := a.rawOut.Write([]byte(text))
	return err
}

// colored adds the colors of git diff.
func colored(diff string) string {
	var b bytes.Buffer
	inFile := false // past the lines that describe it
	for line := range strings.Lines(diff) {
		text, end := strings.CutSuffix(line, "\n")
		color := ""
		switch {
		case strings.HasPrefix(text, "diff --git "):
			color, inFile = "1", false
		case strings.HasPrefix(text, "@@"):
			color, inFile = "36", true
		case !inFile:
			color = "1"
		case strings.HasPrefix(text, "+"):
			color = "32"
		case strings.HasPrefix(text, "-"):
			color = "31"
		}
		if color != "" {
			text = "\x1b[" + color + "m" + text + "\x1b[m"
		}
		b.WriteString(text)
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
