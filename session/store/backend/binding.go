package backend

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/git"
	"deepwork/session/state"
)

// A binding says that a folder uses a project's name in a database. Somebody can make a folder look like a
// clone of the project's repository, so a matching remote or commit is enough only for a new name. This
// machine remembers the folders that the user has bound to a name.
type binding struct {
	folder *state.Folder
	name   string
	where  string // the database
	place  task.Place
	given  bool // the user gave this folder the project's name
}

// key is the key of the binding in the folder's record.
func (b *binding) key() string { return b.name + " in " + b.where }

// remember binds the folder to the name.
func (b *binding) remember(ctx context.Context) error {
	return trust.OpenLedger(b.folder.Grants(), b.folder.Root).Bind(ctx, b.key())
}

// admit returns why the folder may not use the name, or nil. It remembers a folder that the user has named,
// or that is the first anywhere to use the name.
func (b *binding) admit(ctx context.Context, first, readOnly bool) error {
	is, err := b.remembered(b.folder)
	switch {
	case is || err != nil || readOnly && b.given:
		return err
	case first || b.given:
		return b.remember(ctx)
	}
	if dir := mainWorktree(ctx, b.folder.Root); dir != "" {
		if main, err := state.Find(dir); err == nil {
			is, err = b.remembered(main)
			if is || err != nil {
				return err
			}
		}
	}

	path := session.InShell(b.folder.Root)
	return session.NotNow(codes.Untrusted,
		"The project %q in %s is used elsewhere, and no person has said that the folder %s belongs to it: any folder "+
			"can have the same remote and commits. Nothing was read or changed. Where there is no terminal, --project "+
			"%s says it, or the folder under worker.projects in the user's own config.",
		b.name, b.where, path, session.InShell(b.name)).
		Ask("run `deepwork trust --path %s` in a terminal, with the --store of the server if it has one, then "+
			"try again", path)
}

func (b *binding) remembered(f *state.Folder) (bool, error) {
	record, err := trust.OpenLedger(f.Grants(), f.Root).Read()
	return slices.Contains(record.Bound, b.key()), err
}

// mainWorktree returns the folder in a repository's main worktree that corresponds to one in a worktree that
// git has linked to it, or "". Anybody who prepares a folder can write its .git file. Only the link back, in
// the repository's own git folder, proves that git made the worktree.
func mainWorktree(ctx context.Context, dir string) string {
	out, err := git.Output(ctx, git.Command{Dir: dir, Args: []string{
		"rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel",
	}})
	lines := strings.Split(strings.TrimSpace(filepath.FromSlash(out)), "\n")
	if err != nil || len(lines) != 3 {
		return ""
	}
	own := lines[0]
	common := lines[1]
	top := lines[2]
	back, _, err := durable.Read(filepath.Join(own, "gitdir"), 64<<10)
	if err != nil || filepath.Dir(own) != filepath.Join(common, "worktrees") ||
		strings.TrimSpace(string(back)) != filepath.Join(top, ".git") {
		return ""
	}

	below, err := filepath.Rel(top, dir)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(common), below)
}
