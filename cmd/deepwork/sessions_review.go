package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/machine"
	"deepwork/session/show"
	"deepwork/session/workflow"
)

func (a *app) sessionsReviewCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "review [ID [STEP]]",
		Short: "Look at what waits for your review, and pass or fail it; " + idsHelp,
		Long: `Show what a step has handed in that waits for a person (a review with by: human): the
question, and each file with its path and its content, or what has changed since you
failed it; if something else refused it before you saw it, both. Long texts are shown by
$PAGER. Then you decide, at the terminal:

  pass [WORDS]   the step goes on
  fail [WORDS]   the agent works on it again, and gets your words; without words,
                 you are asked for them
  view           show the whole content again
  edit           change a file with $EDITOR; what you judge is read again afterwards
  quit           decide nothing

If the rounds of a step are used up, you say how it goes on:

  more [WORDS]   one more round, whose agent gets your words
  go WHY         as it is, which the session records as your override
  stop WHY       the session is aborted

Without an ID it takes what has waited longest, and then offers the next. Your verdict
counts only for the content that you were shown.`,
		Example: "deepwork sessions review\ndeepwork sessions review 1a2b3c4d",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := argumentCount(0, 2, "a session id and a step")(cmd, args); err != nil || len(args) == 0 {
				return err
			}
			return sessionIDs.check(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := byPerson(); err != nil {
				return err
			}

			if len(args) == 0 {
				return a.withEngine(cmd.Context(), false, nil, func(engine *workflow.Engine) error {
					return a.reviewAll(cmd.Context(), engine, "", "")
				})
			}
			return a.withSession(cmd.Context(), false, args[0], func(engine *workflow.Engine, id string) error {
				return a.reviewAll(cmd.Context(), engine, id, strings.Join(args[1:], ""))
			})
		},
	})
}

// byPerson refuses to take a person's decision from an agent's shell. It does not stop an agent that means to deceive,
// since that runs as the same user: the terminal and the session's record say who answered.
func byPerson() error {
	for _, name := range []string{config.AttemptEnv, config.StepEnv, config.MCPURLEnv} {
		if os.Getenv(name) != "" {
			return fmt.Errorf("an agent of deepwork started this shell (%s is set), and only a person decides this: "+
				"run it in a terminal of your own", name)
		}
	}
	return nil
}

// reviewAll goes through what waits in the project, a session or one step, the oldest first, until the person quits.
func (a *app) reviewAll(ctx context.Context, engine *workflow.Engine, id, stepID string) error {
	if stepID != "" {
		_, err := a.review(ctx, engine, session.AwaitingStep{SessionID: id, Step: stepID})
		return err
	}

	tried := map[session.AwaitingStep]bool{}
	var failed error
	for {
		waiting, err := engine.ToReview(ctx)
		if err != nil {
			return err
		}
		waiting = slices.DeleteFunc(waiting, func(s session.AwaitingStep) bool {
			return tried[s] || id != "" && s.SessionID != id
		})
		switch {
		case len(waiting) == 0 && len(tried) == 0:
			fmt.Fprintln(a.out, "Nothing waits for your review.")
			return nil
		case len(waiting) == 0:
			return failed
		case len(tried) > 0:
			next, err := show.Ask(fmt.Sprintf("\nWaiting for your review: %d more. Look at the next one? Type yes: ",
				len(waiting)))
			next = strings.ToLower(next)
			if err != nil || next != "yes" && next != "y" {
				return failed
			}
		}
		tried[waiting[0]] = true
		quit, err := a.review(ctx, engine, waiting[0])
		switch {
		case err != nil && len(waiting) > 1:
			failed = &exitError{a.report(err)} // the others can still be reviewed
		case err != nil:
			return err
		case quit:
			return failed
		}
	}
}

// review shows what was handed in for a step, and records what the person decides.
func (a *app) review(ctx context.Context, engine *workflow.Engine, s session.AwaitingStep) (quit bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("reviewing step %s of session %s: %w", s.Step, s.SessionID, err)
		}
	}()
	state, info, err := readBoth(ctx, engine, s.SessionID)
	if err != nil {
		return false, err
	}
	if err := workflow.AsHandedIn(ctx, info.Root, state, s.Step, ""); err != nil { // before it is shown
		return false, err
	}
	h, err := engine.HandIn(ctx, s.SessionID, s.Step)
	if err != nil {
		return false, err
	}
	a.showHandIn(ctx, h, placeElsewhere(&info.Session, engine.Place), false)
	if h.About != "" {
		return a.goOn(ctx, engine, h, info.AttemptID)
	}
	for {
		typed, err := show.Ask("\npass, fail, view, edit or quit? ")
		if err != nil {
			return false, noTerminal(err)
		}
		word, words, _ := strings.Cut(typed, " ")
		switch words = strings.TrimSpace(words); strings.ToLower(word) {
		case "pass", "p":
			return false, a.decide(ctx, engine, h, info.AttemptID, machine.Answer{Passed: true, Feedback: words})
		case "fail", "f":
			if words == "" {
				words, err = show.AskText("What should the agent change? An empty line ends it.\n> ")
			}
			if err != nil {
				return false, err
			}
			if words != "" {
				return false, a.decide(ctx, engine, h, info.AttemptID, machine.Answer{Feedback: words})
			}
			fmt.Fprintln(a.out, "Nothing was recorded: a fail needs words for the agent.")
		case "view", "v":
			a.showHandIn(ctx, h, "", true)
		case "edit", "e":
			if h, err = a.edit(ctx, engine, h); err != nil {
				return false, err
			}
		case "quit", "q":
			fmt.Fprintln(a.out, "Nothing was recorded.")
			return true, nil
		}
	}
}

func noTerminal(err error) error {
	return fmt.Errorf("there is no terminal to ask at: run this in one (%w)", err)
}

// goOn asks how a step whose rounds are used up goes on, and records that.
func (a *app) goOn(
	ctx context.Context, engine *workflow.Engine, h *workflow.HandIn, attemptID string,
) (quit bool, err error) {
	for {
		typed, err := show.Ask("\nmore, go, stop, view or quit? ")
		if err != nil {
			return false, noTerminal(err)
		}
		word, words, _ := strings.Cut(typed, " ")
		word, words = strings.ToLower(word), strings.TrimSpace(words)
		if words == "" && (word == "go" || word == "stop") {
			if words, err = show.AskText("Why? An empty line ends it.\n> "); err != nil {
				return false, err
			}
		}
		switch {
		case word == "view":
			a.showHandIn(ctx, h, "", true)
		case word == "quit":
			fmt.Fprintln(a.out, "Nothing was recorded.")
			return true, nil
		case word == "more", word == "go" && words != "":
			return false, a.decide(ctx, engine, h, attemptID, machine.Answer{Passed: word == "go", Feedback: words})
		case word == "stop" && words != "":
			if err := engine.AbortFor(ctx, h.SessionID, words); err != nil {
				return false, err
			}
			fmt.Fprintf(a.out, "Stopped: session %s is aborted.\n", h.SessionID)
			return false, nil
		}
	}
}

// decide records a person's decision, and says what to do now.
func (a *app) decide(
	ctx context.Context, engine *workflow.Engine, h *workflow.HandIn, attemptID string, answer machine.Answer,
) error {
	now := a.afterReview(h, attemptID)
	answer.Identity, answer.Channel = session.LocalIdentity, session.ChannelTerminal
	if err := engine.ReviewFor(ctx, h.SessionID, h.Step, h.Digest, answer); err != nil {
		return err
	}
	switch {
	case h.About != "":
		fmt.Fprintf(a.out, "Recorded. %s\n", now)
	case answer.Passed:
		fmt.Fprintf(a.out, "Passed. %s\n", now)
	default:
		fmt.Fprintf(a.out, "Failed. %s It gets your words.\n", now)
	}

	return nil
}

// afterReview says how a step goes on after its review.
func (a *app) afterReview(h *workflow.HandIn, attemptID string) string {
	now := "Now tell your agent to go on."
	if attemptID != "" {
		now = fmt.Sprintf("Now tell the agent of attempt %s to go on, with a follow-up.", board.Short(attemptID))
	}
	err := a.withBoard(true, func(ctx context.Context, tasks *attempt.Engine) error {
		runs, err := tasks.Runs(ctx, atTerminal)
		for _, r := range runs {
			switch {
			case !slices.ContainsFunc(r.Waits, func(w board.RunWaits) bool {
				return w.SessionID == h.SessionID && w.StepID == h.Step
			}):
			case r.State.Open():
				now = "The run goes on automatically."
			default:
				now = fmt.Sprintf("Its run is %s; to go on: %s.", r.State.Words(),
					a.onPath("deepwork run resume "+board.Short(r.RunID)+r.Kept.LargerBudget(r.Cost)))
			}
		}

		return err
	})
	if err != nil {
		a.err.Fail("deepwork", fmt.Sprintf("looking whether a run waits for it: %v", err))
	}
	return now
}

// edit has the person edit a file of a hand-in, and returns the new hand-in.
func (a *app) edit(ctx context.Context, engine *workflow.Engine, h *workflow.HandIn) (*workflow.HandIn, error) {
	files := slices.DeleteFunc(slices.Clone(h.Files), func(f workflow.HandedFile) bool {
		return f.Full == "" || f.Text == ""
	})
	if len(files) == 0 {
		fmt.Fprintln(a.out, "There is no file that can be edited here.")
		return h, nil
	}

	n := 1
	if len(files) > 1 {
		var list strings.Builder
		for i, f := range files {
			fmt.Fprintf(&list, "%d  %s\n", i+1, show.Inline(f.Path))
		}
		typed, err := show.Ask(fmt.Sprintf("%sWhich file, 1 to %d? ", list.String(), len(files)))
		if err != nil {
			return nil, err
		}
		n, _ = strconv.Atoi(typed)
		if n < 1 || n > len(files) {
			return h, nil
		}
	}
	if err := a.out.Edit(ctx, files[n-1].Full); err != nil {
		fmt.Fprintf(a.out, "%v\n", err)
		return h, nil
	}

	state, info, err := readBoth(ctx, engine, h.SessionID)
	if err != nil {
		return nil, err
	}
	if workflow.AsHandedIn(ctx, info.Root, state, h.Step, h.Digest) != nil {
		if err := engine.HandInAgain(ctx, h.SessionID, h.Step); err != nil {
			return nil, err
		}
	}
	next, err := engine.HandIn(ctx, h.SessionID, h.Step)
	if err != nil {
		return nil, err
	}
	a.showHandIn(ctx, next, "", false)
	return next, nil
}

// showHandIn shows what waits for a person: only the changes to what they failed before, or the whole content.
func (a *app) showHandIn(ctx context.Context, h *workflow.HandIn, elsewhere string, whole bool) {
	var text strings.Builder
	page := &app{out: show.NewScreen(&text, func(name string) string {
		if width := a.out.Width(); name == "COLUMNS" && width > 0 {
			return strconv.Itoa(width)
		}
		return ""
	})}
	ask := func(a *app) {
		a.out.Fields(9, "session", fmt.Sprintf("%s (%s)", h.SessionID, h.Workflow), "goal", h.Goal, "step", h.Step,
			"place", elsewhere)
		if h.About != "" {
			a.out.Field(9, "question", "How is it to go on? "+h.About)
		}
		for _, r := range h.Reviews {
			if h.About == "" {
				a.criteria("question", r)
			}
		}
	}
	ask(page)
	page.out.Field(9, "notes", h.Notes)
	for _, f := range h.Files {
		name := f.Full
		if name == "" {
			name = f.Name()
		}
		page.out.Field(9, "output", show.Inline(name))
		if f.Note != "" {
			page.line("(%s)", f.Note)
		}
		switch {
		case f.Kind == workflow.ImageFile:
			page.line("(An image: open it yourself.)")
		case !whole && h.Judged && f.Diff != "":
			page.out.Text("    ", f.Diff)
		case f.Text != "" && (whole || !h.Judged || !f.Old):
			page.out.Text("    ", f.Text)
			if !h.Judged && f.Diff != "" {
				page.line("(What has changed since the %s:)", h.Since())
				page.out.Text("    ", f.Diff)
			}
		}
	}
	for _, name := range h.Gone {
		page.line("(%s is no longer handed in.)", show.Inline(name))
	}

	if a.out.Page(ctx, text.String()) {
		ask(a) // beside the answer, too
	}
}

// readBoth reads a session's state and its info.
func readBoth(ctx context.Context, engine *workflow.Engine, id string) (*machine.State, *workflow.SessionInfo, error) {
	s, err := engine.Read(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	info, err := engine.Info(ctx, id)
	return s, info, err
}

// line prints a line about the step.
func (a *app) line(format string, args ...any) { a.out.Text("  ", fmt.Sprintf(format, args...)) }

// describe prints which step waits for a decision, and its place if that is not this one.
func (a *app) describe(s *machine.State, stepID, elsewhere string) {
	a.out.Fields(9, "session", fmt.Sprintf("%s (%s/%s)", s.SessionID, s.JobName, s.WorkflowName), "goal", s.Goal,
		"step", stepID, "place", elsewhere)
}

// criteria prints a review of the step.
func (a *app) criteria(what string, r job.Review) {
	a.out.Field(9, what, "the review of "+r.RunEach)
	for _, q := range r.Criteria {
		a.out.Text("            ", q.Name+": "+indentRest(q.Question, "  "))
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
