package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/actor/telemetry"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/definition"
	"deepwork/session/notify"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/store/backend"
	"deepwork/session/workflow"
	"deepwork/transport"
)

// atTerminal is who calls the command line: the user, or an agent of the board, which has no rights.
var atTerminal = callerOf(os.Getenv)

func callerOf(getenv func(string) string) session.Caller {
	if board.ByAgent(getenv) {
		return session.Caller{Identity: session.LocalIdentity, Channel: session.ChannelTerminal}
	}
	return session.LocalCaller(session.ChannelTerminal)
}

func (a *app) notifyCommand() *cobra.Command {
	var test bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "notify",
		Short: "Show how you are notified of what needs you, and try it",
		Long: `List the ways in which servers notify you of what needs you: those of notify in your own
config. 'deepwork help howto/notify' explains them. With --test, send a notification in
each way and print what happened; exit 1 if one was not sent.`,
		Example: `  deepwork notify --test`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			own, err := config.Open(root).Own(cmd.Context())
			if err != nil {
				return err
			}
			ways := notify.Ways(own.Over(config.Default()).Notify)
			if len(ways) == 0 {
				return fmt.Errorf("there is no way to notify you: set notify in your own config, %s; "+
					"'deepwork help howto/notify' says how", config.UserFile())
			}

			item := board.Attention{Kind: "test", ID: "test", Title: "A test"}
			m, err := item.Message(state.Of(root), "This is a test. Here you read what needs you.")
			for _, w := range ways {
				way := fmt.Sprintf("%s (%s)", w.Name, w.Via)
				if !test {
					fmt.Fprintln(a.out, inline(way))
				} else if failure := w.Send(cmd.Context(), m); failure != nil {
					err = &exitError{exitFailure}
					a.out.Judge(way+": ", false, oneLine(failure.Error(), 500))
				} else {
					a.out.Judge(way+": ", true, "sent")
				}
			}
			return err
		},
	})
	cmd.Flags().BoolVar(&test, "test", false, "send a notification in each way, and print what happened")
	return cmd
}

func (a *app) boardCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "board",
		Short: "Manage a project's tasks, and have agents work on them",
		Example: `  deepwork board
  deepwork board --json`,
		Long: `Manage the tasks of a project's board, and have agents work on them. Without a command,
print what waits for you, each with the command for it: failed attempts, work to review,
a config to approve, steps that wait for a person. You don't need a server, and any
number may run at the same time.`,
	},
		a.onBoardStore(a.boardProjectsCommand()),
		a.onBoardStore(a.boardTasksCommand()),
		a.onBoardStore(a.boardAddCommand()),
		a.onBoardStore(a.boardShowCommand()),
		a.onBoardStore(a.boardStartCommand()),
		a.onBoardStore(a.tailCommand("board")),
		a.onBoardStore(a.boardSendCommand()),
		a.onBoardStore(a.boardStopCommand()),
		a.onBoardStore(a.boardDiffCommand()),
		a.onBoardStore(a.boardMergeCommand()),
		a.onBoardStore(a.boardRebaseCommand()),
		a.onBoardStore(a.boardPushCommand()),
		a.onBoardStore(a.boardTargetCommand()),
		a.onBoardStore(a.boardEditCommand()),
		a.onBoardStore(a.boardStatusCommand()),
		a.onBoardStore(a.boardCommentCommand()),
		a.onBoardStore(a.boardExecutorsCommand()),
		a.onBoardStore(a.boardPathCommand()),
		a.onBoardStore(a.boardOpenCommand()),
		a.onBoardStore(a.boardDoneCommand()),
		a.onBoardStore(a.boardRmCommand()),
	)
	cmd.RunE = func(*cobra.Command, []string) error { return a.withBoard(true, a.attention) }
	return a.onBoardStore(a.onProject("print it as JSON", cmd))
}

// withBoard opens the project's board, records how agents have ended since, calls use, and closes the board. It starts
// no agents unless use lets the engine serve. A use that only reads gets a temporary board if there is none yet.
func (a *app) withBoard(reads bool, use func(ctx context.Context, engine *attempt.Engine) error) (err error) {
	ctx, stop := interruptible(context.Background(), 0)
	defer stop()
	ctx = session.WithCaller(ctx, atTerminal)
	root, folder, err := a.boardFolder(ctx)
	if err != nil {
		return err
	}

	logger := a.logger()
	a.traced(ctx, root, logger)
	settings := approvedConfig(folder, logger)
	choice, err := a.choice(ctx, root)
	if err != nil {
		return err
	}
	if _, lerr := os.Lstat(folder.Database()); reads && choice.URL == "" && errors.Is(lerr, fs.ErrNotExist) {
		temp, err := durable.TempFolder("", "deepwork")
		if err != nil {
			return fmt.Errorf("making a folder for an empty board: %w", err)
		}
		defer os.RemoveAll(temp)
		folder = &state.Folder{
			Root: folder.Root,
			Base: temp,
			Dir:  filepath.Join(temp, "projects", state.Name(folder.Root)),
		}
	}
	stores, err := backend.Open(ctx, folder, choice, false, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close(context.WithoutCancel(ctx))) }()
	o := attempt.Options{
		Passive: true,
		Leader: transport.Leader(transport.Options{
			Store:   a.store,
			Project: a.project,
			Logger:  logger,
			Version: readBuild().Version,
		}, folder),
	}
	o.Options = board.Options{
		Root:   root,
		State:  folder,
		Stores: stores,
		Config: settings.Current,
		Logger: logger,
		Steps:  a.awaiting,
		CheckWorkflow: func(ctx context.Context, job, name string) (wf *job.Workflow, err error) {
			err = a.withCatalog(ctx, func(_ string, jobs *catalog.Catalog) (err error) {
				wf, err = definition.CheckWorkflow(ctx, jobs, job, name)
				return err
			})
			return wf, err
		},
	}
	engine, err := attempt.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("opening the task board of %s: %w", root, err)
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if left := engine.Close(bounded); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("parts of the task board did not stop: %s", strings.Join(left, ", ")))
		}
	}()
	settling, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := engine.Settle(settling); err != nil { // use reports what is wrong with the board
		logger.Debug("cannot record how agents ended", "error", err)
	}
	return use(ctx, engine)
}

// logger returns the logger of commands, for problems that do not fail them.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// traced exports this process's spans until its command ends, if the user's config or the environment says where to.
func (a *app) traced(ctx context.Context, root string, logger *slog.Logger) {
	settings := config.Open(root)
	settings.Logger = slog.New(slog.DiscardHandler) // faults of the config are reported where it is used
	to := settings.Telemetry(ctx)
	stop := telemetry.Start(telemetry.Options{
		Endpoint: to.OTLP,
		Content:  to.Content,
		Service:  "deepwork",
		Version:  readBuild().Version,
		Logger:   logger,
	})
	if stop != nil {
		a.stopTracing = stop
	}
}

// approvedConfig returns the config of a project as servers use it: without what the user has not approved.
func approvedConfig(folder *state.Folder, logger *slog.Logger) *config.Source {
	s := config.Open(folder.Root)
	s.Logger = logger
	p := &trust.Policy{Root: folder.Root, File: s.Path(), Ledger: trust.OpenLedger(folder.Grants(), folder.Root)}
	s.Approve = p.Approve
	return s
}

// allPages returns the entries of all pages of a list.
func allPages[T any](page func(cursor *string) (entries []T, next *string, err error)) ([]T, error) {
	var all []T
	for cursor := (*string)(nil); ; {
		entries, next, err := page(cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
		if cursor = next; cursor == nil {
			return all, nil
		}
	}
}

func allProjects(ctx context.Context, engine *attempt.Engine) ([]board.Project, error) {
	return allPages(func(cursor *string) ([]board.Project, *string, error) {
		r, err := engine.ListProjects(ctx, atTerminal,
			board.ListProjectsArgs{Limit: new(board.MaxLimit), Cursor: cursor})
		if err != nil {
			return nil, nil, fmt.Errorf("listing the projects: %w", err)
		}
		return r.Projects, r.NextCursor, nil
	})
}

// oneProject finds a project by its name, its id, or four or more characters that begin only this id; "" means the
// project root.
func oneProject(ctx context.Context, engine *attempt.Engine, name string) (*board.Project, error) {
	all, err := allProjects(ctx, engine)
	if err != nil {
		return nil, err
	}

	var names []string
	var found []*board.Project
	for i, p := range all {
		if p.Name == name || name == "" && p.IsRoot {
			return &all[i], nil
		}
		names = append(names, p.Name)
		if len(name) >= 4 && strings.HasPrefix(p.ProjectID, strings.ToLower(name)) {
			found = append(found, &all[i])
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return nil,
		fmt.Errorf("there is no project %q on the board; the projects are %s (those in .deepwork/config.yml need "+
			"your approval first: 'deepwork trust')", name, strings.Join(names, ", "))
}

// tasksOfAll returns the tasks of all projects.
func tasksOfAll(ctx context.Context, engine *attempt.Engine) ([]board.Task, error) {
	projects, err := allProjects(ctx, engine)
	if err != nil {
		return nil, err
	}

	var all []board.Task
	for _, p := range projects {
		tasks, err := allTasks(ctx, engine, board.ListTasksArgs{ProjectID: p.ProjectID})
		if err != nil {
			return nil, err
		}
		all = append(all, tasks...)
	}
	return all, nil
}

// attention prints what waits for the user.
func (a *app) attention(ctx context.Context, engine *attempt.Engine) error {
	r, err := engine.NeedsAttention(ctx, atTerminal)
	if err != nil {
		return err
	}
	for i, item := range r.Items {
		if item.Kind != board.AttentionBudget { // which an editor raises
			r.Items[i].Command = a.onPath(item.Command)
		}
	}
	if a.json {
		return a.printJSON(r.Items)
	}
	if len(r.Items) == 0 {
		a.out.Prose(a.here("Nothing waits for you. 'deepwork board tasks' lists the tasks."))
		return nil
	}

	var rows [][]string
	for _, i := range r.Items {
		rows = append(rows, []string{string(i.Kind), sinceText(optional(i.Since)), i.Title, optional(i.Why), i.Command})
	}
	a.out.Table([]show.Column{{Title: "KIND", State: true}, {Title: "AGE"}, {Title: "TITLE", Least: 20},
		{Title: "WHY", Least: 30, Optional: true}, {Title: "COMMAND", Below: true}}, rows)
	if r.Truncated {
		fmt.Fprintln(a.out, "Older attempts aren't listed.")
	}
	return nil
}

// awaiting returns the steps that wait for a person, of all sessions of the project and of attempts.
func (a *app) awaiting(
	ctx context.Context, who session.Caller, attempts []string,
) (steps []session.AwaitingStep, err error) {
	err = a.withEngine(ctx, true, nil, func(engine *workflow.Engine) (err error) {
		steps, err = engine.Awaiting(ctx, who, attempts)
		return err
	})
	return steps, err
}
