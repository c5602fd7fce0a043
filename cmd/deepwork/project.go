package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/standard"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/git"
	"deepwork/session/pin"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/transport"
)

// onProject adds to cmd the --path that all commands on a project share, and --json if asJSON
// describes it.
func (a *app) onProject(asJSON string, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.path, "path", "", "project root `directory` (default: that of the current directory)")
	_ = cmd.MarkFlagDirname("path")
	if asJSON != "" {
		cmd.Flags().BoolVar(&a.json, "json", false, asJSON)
	}
	return cmd
}

// projectRoot returns the project's root, absolute; it must be a directory. Without --path it is the project
// that the current directory is in, which a note names.
func (a *app) projectRoot() (string, error) {
	if here, err := os.Getwd(); err == nil && a.path == "" {
		if found := state.Upwards(here); found != here {
			a.path, a.found = relative(here, found), true
			fmt.Fprintf(a.err, "deepwork: note: using the project %s around this folder; --path . uses this folder\n",
				inline(found))
		}
	}
	return a.givenRoot()
}

// projectCommand matches a command on a project in a text: in quotes, or one that a person decides with.
var projectCommand = regexp.MustCompile("'deepwork " +
	"(?:board|check|contain|init|jobs|run|serve|sessions|store|token|trust|validate|where)\\b[^'\\n]*'|`deepwork " +
	"(?:check|serve|sessions|trust|validate|where)\\b[^`\\n]*`|deepwork sessions (?:review|override) [0-9a-f]{8} " +
	"(?:'[^'\\n]*'|[^\\s'`]+)(?: --reason TEXT)?(?: --path )?")

// here adds this command's project to the commands in a text.
func (a *app) here(text string) string {
	return projectCommand.ReplaceAllStringFunc(text, func(command string) string {
		if quote := command[:1]; quote != "d" {
			return quote + a.onPath(command[1:len(command)-1]) + quote
		}
		return a.onPath(command)
	})
}

// onPath adds this command's --path to a command, and its --store and --project if it takes them. It leaves out a URL
// with a password.
func (a *app) onPath(command string) string {
	if strings.HasSuffix(command, " --help") || strings.HasSuffix(command, " --path ") { // its folder follows
		return command
	}

	path := a.path
	store := a.store
	of := strings.Fields(command)[1]
	if a.found {
		path = ""
	}
	if u, err := url.Parse(store); err != nil || strings.Contains(store, "password") {
		store = "URL"
	} else if _, secret := u.User.Password(); secret {
		store = "URL"
	}
	for _, f := range []struct{ flag, value, commands string }{
		{" --path ", path, of}, {" --store ", store, "board check run serve sessions store trust ui where"},
		{" --project ", a.project, "check serve sessions store ui where"},
	} {
		if f.value != "" && slices.Contains(strings.Fields(f.commands), of) && !strings.Contains(command, f.flag) {
			command += f.flag + session.InShell(f.value)
		}
	}
	return command
}

// givenRoot is projectRoot without a search: --path, or the current directory.
func (a *app) givenRoot() (string, error) {
	root, err := filepath.Abs(a.path)
	if err != nil {
		return "",
			fmt.Errorf("finding the current folder: %w; change to a folder that exists, or give --path an "+
				"absolute path", err)
	}
	info, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the project root %s does not exist; create it or name another with --path", root)
	case err != nil:
		return "", fmt.Errorf("looking at the project root: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("the project root %s is not a directory; name one with --path", root)
	}
	if _, err := state.Find(root); !errors.Is(err, state.ErrInside) { // the home folder has the user's own programs
		process.Avoid(root)
	}
	return root, nil
}

// findFolder returns the state of the project, and does not move it; see checkOtherFolders.
func (a *app) findFolder(ctx context.Context) (*state.Folder, error) {
	root, err := a.projectRoot()
	if err != nil {
		return nil, err
	}
	folder, err := state.Find(root)
	if err == nil {
		err = a.checkOtherFolders(ctx, folder)
	}
	return folder, cmp.Or(canBegin(root), err)
}

// display formats a path in the project for people: relative to the --path argument, after that argument.
func (a *app) display(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.Join(a.path, rel)
}

// withCatalog loads the project's jobs for use, as the server would see them.
func (a *app) withCatalog(ctx context.Context, use func(root string, jobs *catalog.Catalog) error) (err error) {
	root, err := a.projectRoot()
	if err != nil {
		return err
	}
	folder := state.Of(root)
	a.standard = folder.StandardJobs()
	jobs, err := catalog.Open(ctx, catalog.Options{
		Root:       root,
		Additional: config.JobsFolders(),
		Standard:   standard.FS(), StandardDir: a.standard, MakeState: func() error {
			return session.MakeState(folder)
		},
		// The catalog would log the load errors, which are printed instead.
		Logger:  slog.New(slog.DiscardHandler),
		NoWatch: true,
	})
	if err != nil {
		return fmt.Errorf("loading the jobs of %s: %w", root, err)
	}
	defer func() { err = errors.Join(err, jobs.Close(context.WithoutCancel(ctx))) }()
	return use(root, jobs)
}

// boardFolder returns the root and the state of the project whose board commands use. In the workspace of an attempt it
// is the attempt's project, which a note names.
func (a *app) boardFolder(ctx context.Context) (root string, folder *state.Folder, err error) {
	if root, err = a.projectRoot(); err != nil {
		return "", nil, err
	}
	if folder, err = a.stateOf(ctx, root); err != nil {
		return "", nil, err
	}
	if real, err := state.Canonical(root); err == nil && real != folder.Root && !a.saidProject {
		a.saidProject = true
		fmt.Fprintf(a.err, "deepwork: note: this is the worktree of an attempt; using the board of its project %s\n",
			inline(folder.Root))
	}

	return folder.Root, folder, nil
}

// stateOf returns the state that has the sessions of a folder: in the workspace of an attempt, its project's.
func (a *app) stateOf(ctx context.Context, root string) (*state.Folder, error) {
	folder := state.Of(root)
	w, err := transport.Workspace(ctx, transport.Options{Store: a.store, Project: a.project}, folder, os.Getenv,
		a.logger())
	if err != nil {
		return folder, err
	} else if w != nil {
		return w.State()
	}

	if of := ofWorktree(ctx, folder.Root); of != nil {
		return of, nil
	}

	if err := cmp.Or(canBegin(root), folder.Usable()); errors.Is(err, state.ErrInside) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("the state of the project cannot be read: %w", err)
	}

	return folder, a.checkOtherFolders(ctx, folder)
}

// checkOtherFolders returns an error if only another state folder has state of the project. It prints a note if another
// one has some too, or if the project was moved and has none here yet. Stores other than files do not depend on it.
func (a *app) checkOtherFolders(ctx context.Context, folder *state.Folder) error {
	if old := folder.MovedFrom(); old != "" && !a.saidElsewhere {
		a.saidElsewhere = true
		fmt.Fprintln(a.err,
			a.here(fmt.Sprintf("deepwork: note: this project has no state here yet. If it was moved here from %s, "+
				"which is gone, 'deepwork where --adopt %s' takes over what it had there", inline(old),
				session.InShell(old))))
	}

	dir, file := folder.Elsewhere()
	if choice, err := a.choice(ctx, folder.Root); dir == "" || err != nil || choice.URL != "" {
		return nil
	}
	base := filepath.Dir(filepath.Dir(dir))
	if _, err := folder.ID(); errors.Is(err, state.ErrMissing) {
		return fmt.Errorf("the state of the project is in %s, and this command looks in %s: set %s=%s (or HOME and "+
			"XDG_STATE_HOME as its servers have them); to begin another state here, remove %s", inline(dir),
			folder.Base, state.Env, session.InShell(inline(base)), file)
	}
	if !a.saidElsewhere {
		a.saidElsewhere = true
		fmt.Fprintf(a.err, "deepwork: note: another state of the project is in %s, with sessions and a board of its "+
			"own; %s=%s uses that\n", inline(dir), state.Env, session.InShell(inline(base)))
	}

	return nil
}

// ofWorktree returns the state of the project whose attempt has a worktree around root, in a folder that
// attempts.worktrees names, or nil.
func ofWorktree(ctx context.Context, root string) *state.Folder {
	top := board.TopLevel(root)
	if info, err := os.Lstat(filepath.Join(top, ".git")); top == "" || err != nil || !info.Mode().IsRegular() {
		return nil
	}
	common, err := git.Line(ctx,
		git.Command{Dir: top, Args: []string{"rev-parse", "--path-format=absolute", "--git-common-dir"}})
	if err != nil {
		return nil
	}

	below, _ := filepath.Rel(top, root) // top is a prefix of root
	project, err := state.Find(state.Upwards(filepath.Join(filepath.Dir(filepath.FromSlash(common)), below)))
	if err != nil {
		return nil
	}
	journals, _ := filepath.Glob(filepath.Join(project.Worktrees(), ".journal", "of-*"))
	for _, dir := range journals {
		// a branch cannot contain it
		if _, err := os.Lstat(filepath.Join(dir, worktree.NameOf(top)+".json")); err == nil {
			return project
		}
	}

	return nil
}

// openEngine opens the sessions of the project and of its attempts, without reviewers, with or without jobs. The caller
// must call done. A reader makes no database.
func (a *app) openEngine(
	ctx context.Context, reads bool, jobs *catalog.Catalog,
) (engine *workflow.Engine, done func() error, err error) {
	root, err := a.projectRoot()
	if err != nil {
		return nil, nil, err
	}
	folder, err := a.stateOf(ctx, root)
	if err != nil {
		return nil, nil, err
	}

	a.traced(ctx, root, a.logger())
	return a.engineOf(ctx, folder, reads, jobs)
}

// engineOf is openEngine for the project with this state.
func (a *app) engineOf(
	ctx context.Context, folder *state.Folder, reads bool, jobs *catalog.Catalog,
) (engine *workflow.Engine, done func() error, err error) {
	logger := a.logger()
	stores, err := a.stores(ctx, folder, reads, logger)
	if err != nil {
		return nil, nil, err
	}
	if engine, err = passive(ctx, folder, stores, jobs, logger); err != nil {
		return nil, nil, errors.Join(err, stores.Close(ctx))
	}
	return engine, func() (err error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if left := engine.Close(bounded); len(left) > 0 {
			err = fmt.Errorf("parts of the sessions did not stop: %s", strings.Join(left, ", "))
		}
		return errors.Join(err, stores.Close(bounded))
	}, nil
}

// passive returns the engine of commands on the sessions in a project's stores.
func passive(
	ctx context.Context, folder *state.Folder, stores *store.Stores, jobs *catalog.Catalog, logger *slog.Logger,
) (*workflow.Engine, error) {
	settings := approvedConfig(folder, slog.New(slog.DiscardHandler))
	engine, err := workflow.Open(ctx, workflow.Options{
		Root:    folder.Root,
		State:   folder,
		Stores:  stores,
		Place:   stores.Place,
		Catalog: jobs,
		Logger:  logger,
		Reviews: true,
		Reviewing: func(ctx context.Context) (pin.Reviewing, error) {
			c, err := settings.Current(ctx)
			if err != nil {
				return pin.Reviewing{}, err
			}
			q := c.QualityGate
			return pin.Reviewing{MaxTries: q.DefaultMaxAttempts, Override: q.Override, Pin: q.Pin}, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions of %s: %w", folder.Root, err)
	}
	return engine, nil
}

// withEngine opens the sessions of the project, with or without jobs, calls use, and closes them; see openEngine.
func (a *app) withEngine(
	ctx context.Context, reads bool, jobs *catalog.Catalog, use func(engine *workflow.Engine) error,
) (err error) {
	engine, done, err := a.openEngine(ctx, reads, jobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	return use(engine)
}

// clientFolderEnv is the variable in which Claude Code passes the folder of its project to the servers that it starts.
const clientFolderEnv = "CLAUDE_PROJECT_DIR"

// servedRoot returns the project of a server: --path, or the project around the folder in which the client started it,
// else the client's own. notice tells agents that it is another folder. refusal says why no project begins there: a
// client may start its server in any folder, which does not make that a project.
func (a *app) servedRoot() (root, notice string, refusal error, err error) {
	here, err := a.givenRoot()
	if err != nil || a.path != "" && filepath.Clean(a.path) != "." || board.ByAgent(os.Getenv) {
		return here, "", nil, err
	}

	root = here
	for _, dir := range []string{here, os.Getenv(clientFolderEnv)} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
			continue
		}
		found := state.Upwards(dir)
		if isProject(found) {
			root = found
			break
		}
		if refusal := notAProject(root); refusal != nil {
			root = dir
		}
	}

	if root != here {
		notice = fmt.Sprintf("This server was started in %s, and serves the project %s: paths are relative to that.",
			here, root)
		process.Avoid(root)
	}
	if !isProject(root) {
		refusal = notAProject(root)
	}
	if refusal != nil {
		notice = "Tell the user: " + refusal.Error() + "."
	}
	return root, notice, refusal, nil
}

// isProject reports whether a folder is a project already.
func isProject(dir string) bool {
	if folder, err := state.Find(dir); err == nil {
		if _, err := folder.ID(); err == nil {
			return true
		}
	}
	return fileExists(filepath.Join(dir, ".deepwork")) && !aroundHome(dir)
}

// notAProject returns why a folder that is no project does not become one, or nil.
func notAProject(dir string) error {
	where := "in the home folder or above it"
	if top := board.TopLevel(dir); !aroundHome(dir) {
		if top == "" || top == dir || aroundHome(top) {
			return nil
		}
		where = "in a folder of the repository " + inline(top)
	}
	return fmt.Errorf("%s is not a project, and none begins %s without being asked for: start the server with --path "+
		"and the folder of a project", inline(dir), where)
}

// aroundHome reports whether a folder is or contains the home folder.
func aroundHome(dir string) bool {
	return process.Inside(process.Resolved(dir), process.Resolved(process.Home()))
}
