package attempt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/state"
)

// InPlace reports whether an attempt is a run that works in the project itself.
func InPlace(at *task.Attempt) bool { return at.Run != nil && len(at.Repos) == 0 }

// Where the board keeps its things, in the state folder of the project:
//
//	board.db                                          the board
//	worktrees/<words>-<4 hex>/<repo>                  the worktrees, or as configured
//	worktrees/.journal                                what of them is ours
//	logs/attempts/<attempt>/log                       what the attempt's agents wrote
//	logs/attempts/<attempt>/runs/<execution>

func (e *Engine) boardPath() string { return e.State().Database() }

// journalOf returns the folder of the journals of the worktrees below a folder. If others may write to that
// folder, it is outside of it. "" means worktree's default.
func (e *Engine) journalOf(dir string) string {
	if own := e.State().Worktrees(); dir != own {
		sum := sha256.Sum256([]byte(dir))
		return filepath.Join(own, ".journal", "of-"+hex.EncodeToString(sum[:6]))
	}
	return ""
}

// worktreesDir returns the folder of the worktrees of new attempts.
func (e *Engine) worktreesDir(cfg *config.Config) string {
	dir := filepath.FromSlash(cfg.Attempts.Worktrees)
	switch {
	case dir == "":
		return e.State().Worktrees()
	case !filepath.IsAbs(dir):
		dir = filepath.Join(e.State().Root, dir)
	}
	return filepath.Clean(dir)
}

// worktreesOf returns the folder of an attempt's worktrees; the config may have named another one when the
// attempt was made.
func worktreesOf(a *task.Attempt) string {
	if len(a.Repos) == 0 {
		return "" // it works in the project itself
	}
	return filepath.Dir(filepath.Dir(a.Repos[0].Worktree))
}

// nameOf returns the name of the folder of an attempt's worktrees, which identifies the attempt to their
// keeper.
func nameOf(a *task.Attempt) string { return worktree.NameOf(a.Repos[0].Worktree) }

// restore is the remedy for a board with wrong data.
const restore = "restore the board from a copy"

// checkLayout returns an error with the remedy if misplaced does.
func checkLayout(a *task.Attempt) error {
	if err := misplaced(a); err != nil {
		return fmt.Errorf("%w; %s", err, restore)
	}
	return nil
}

// misplaced returns an error if the board's paths of an attempt's workspace and worktrees are not where they belong:
// nothing may run elsewhere.
func misplaced(a *task.Attempt) error {
	if uuid.Validate(a.ID) != nil || len(a.Repos) == 0 {
		return fmt.Errorf("the board has an attempt %q with %d repositories", a.ID, len(a.Repos))
	}

	folder := filepath.Dir(a.Repos[0].Worktree)
	inside := a.Workspace == folder
	if len(a.Repos) == 1 {
		rel, err := filepath.Rel(a.Repos[0].Worktree, a.Workspace)
		inside = err == nil && filepath.IsLocal(rel)
	}
	for _, r := range a.Repos {
		if !filepath.IsAbs(folder) || filepath.Dir(r.Worktree) != folder || !inside {
			return fmt.Errorf("the board has the worktree %q and the workspace %q of attempt %s, which are not in "+
				"one folder", r.Worktree, a.Workspace, a.ID)
		}
	}

	return nil
}

// checkWorkspace returns an error if the workspace of an attempt was not created for it: an entry on the
// board is not enough reason to run an agent there.
func (e *Engine) checkWorkspace(a *task.Attempt) error {
	if err := checkLayout(a); err != nil {
		return err
	}
	return e.Worktrees(a).Check(nameOf(a), a.ID,
		xslices.Map(a.Repos, func(r task.AttemptRepo) string { return r.Worktree }))
}

// dropState removes the state of the servers that worked in a workspace that is about to be removed.
func (e *Engine) dropState(workspace string) {
	if !Exists(workspace) {
		return
	}

	f, err := state.Find(workspace)
	if err == nil {
		err = os.RemoveAll(f.Dir)
	}
	if err != nil {
		e.Log.Warn("cannot remove the state of a workspace", "workspace", workspace, "error", err)
	}
}

// ignore hides worktrees from the project's repository: a folder of worktrees inside the project gets its own
// .gitignore.
func ignore(root, worktrees string) error {
	if rel, err := filepath.Rel(root, worktrees); err != nil || rel == "." || !filepath.IsLocal(rel) {
		return nil // it is not inside
	}
	_, err := session.Ignore(filepath.Join(worktrees, ".gitignore"), []string{"*"})
	return err
}
