// Package worktree creates, inspects, merges and removes the git worktrees of attempts without ever losing
// work: uncommitted work is saved under refs/deepwork/rescue before anything is removed (seed 004; DESIGN
// "Task board"). Git does the work. If a killed git leaves something behind, the next call names the git
// command that cleans up. The user's own checkout changes only by a merge into its checked-out branch, and
// only if none of its tracked files is changed.
//
// The saved work is what git would show as changed, as git add stores it: staged, unstaged and untracked
// files, and commits that no branch, tag or remote reaches. Ignored files are not work: a copied .env, build
// output, node_modules. Submodules, and repositories that an agent made inside, cannot be saved in a commit:
// if they have work of their own, the removal is refused.
//
// The concepts:
//
//   - Keeper: the worktrees below one folder; Tree, Made: what Create is given and returns.
//   - journal, record, phase: what was made for an attempt. Only what a journal names is ours.
//   - common, admin: git's folder of a repository, and its folder for one worktree (git's words).
//   - lock: one call at a time per attempt, and per repository for what its worktrees share.
//   - Rescue: work that was saved before a removal; source: where it is taken from.
//   - Nested: a repository in a worktree.
//   - Status, Diff, view: the changes of a worktree since the attempt's work begins; since.
//   - Landing, Landed, Way, view: merging, rebasing, updating, aborting; Push.
//   - adopt: an agent that left the worktree on another branch, or on none.
//   - checkout: a worktree that has a branch checked out, such as the user's.
//   - ConflictError, CheckedOutError, DirtyError and the Err values: why nothing was changed.
//   - Recover, Claim, Relocate, Inspect: after crashes, copies and moves.
package worktree

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"

	"deepwork/actor/durable"
	"deepwork/session/contain"
)

// Options configure a Keeper.
type Options struct {
	Dir string // absolute: <Dir>/<attempt>/<repo>
	// Journal is the folder of the journals, which record what in Dir is ours. Nobody else may write to it,
	// while Dir may be in a project or shared. Default: <Dir>/.journal, for a Dir to which nobody else
	// writes.
	Journal string
	// Project is a folder, without links, below which links on the way to Dir are not followed; "" means
	// none.
	Project string
	// Board names the board to which attempts belong: Recover and Inspect ignore other boards' attempts. ""
	// is the board of this machine.
	Board string
	// Dropping is called before the folder of a worktree, or of an attempt, is removed.
	Dropping func(path string)
	Logger   *slog.Logger // default: slog.Default()
}

// A Keeper manages the worktrees of one board. Its methods may be called from any goroutine, and by
// several processes on one folder.
type Keeper struct {
	dir      string
	journal  string
	project  string
	board    string
	dropping func(path string)
	log      *slog.Logger
	atPoint  func(point string) // lets tests end the process
}

// New returns a keeper. It does not touch the disk.
func New(o Options) *Keeper {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Journal = cmp.Or(o.Journal, filepath.Join(o.Dir, privateFolder))
	if o.Dropping == nil {
		o.Dropping = func(string) {}
	}
	return &Keeper{
		dir:      filepath.Clean(o.Dir),
		journal:  filepath.Clean(o.Journal),
		project:  o.Project,
		board:    o.Board,
		dropping: o.Dropping,
		log:      o.Logger,
		atPoint:  func(string) {},
	}
}

// A Tree describes one worktree to create.
type Tree struct {
	Attempt string `json:"attempt,omitempty"` // its id on the board, for the journal; "" means the name
	RepoID  string `json:"repo_id"`           // recorded in the journal
	Name    string `json:"name"`              // name of its folder, unique in the attempt's
	// absolute path of the repository, or of a folder in it, for Copy and Setup
	Repo         string   `json:"repo"`
	TargetBranch string   `json:"target_branch"`   // one of its branches
	Copy         []string `json:"copy,omitempty"`  // copied from Repo; missing files are skipped
	Setup        []string `json:"setup,omitempty"` // a command run in it; nil means none
	// Allowed is called before Setup is run in dir; Create returns its error. nil allows it.
	Allowed func(dir string) error `json:"-"`
	// Contain returns the plan in which Setup is run in dir; nil means that it is not contained.
	Contain func(ctx context.Context, dir string) (*contain.Plan, error) `json:"-"`
}

// A Made is a worktree that was created.
type Made struct {
	RepoID string
	Path   string // absolute
	Base   string // the commit from which it began, in hex
}

// The errors that callers distinguish; each is wrapped with its subject.
var (
	ErrNotRepo     = errors.New("not a git repository")
	ErrNoBranch    = errors.New("no such branch")
	ErrBranchTaken = errors.New("the branch exists already") // retry with another name
	ErrInUse       = errors.New("the worktree is in use")
	ErrSetup       = errors.New("the setup command failed")
	ErrOutside     = errors.New("the path leads outside")                  // of repo or worktree
	ErrNotKept     = errors.New("work in the worktree could not be kept")  // so nothing was removed
	ErrNoWorktree  = errors.New("there is no git worktree in this folder") // of Status and Diff
	ErrNotOurs     = errors.New("it was not made by deepwork")             // so it is neither used nor removed
)

// attemptName matches the valid names of attempts: each names a folder, a journal and a ref.
var attemptName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// nameEnd matches the part of a branch that can be the name of an attempt.
var nameEnd = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_-]*$`)

// NameFor returns a name for an attempt on a branch that is unused in the folder of worktrees: the end of the branch,
// such as fix-the-login-1a2b for deepwork/fix-the-login-1a2b, with at most this many characters. Words are cut for
// that, never the digits.
func NameFor(dir, branch string, most int) string {
	name := nameEnd.FindString(branch)
	if before, _ := utf8.DecodeLastRuneInString(strings.TrimSuffix(branch, name)); before >= utf8.RuneSelf {
		_, name, _ = strings.Cut(name, "-") // it begins in a word
	}
	if len(name) > most {
		digits := strings.LastIndexByte(name, '-')
		words := strings.TrimRight(name[:max(0, min(digits, most-len(name)+digits))], "-_")
		name = strings.TrimPrefix(words+name[max(0, digits):], "-")
	}
	free := name
	for n := 2; isThere(filepath.Join(dir, free)); n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	return free
}

// NameOf returns the name of the attempt with a worktree at this path.
func NameOf(path string) string { return filepath.Base(filepath.Dir(path)) }

// Items returns the names of the worktrees of items of an attempt's run, which begin with the attempt's name.
// id is the attempt's id on the board.
func (k *Keeper) Items(attempt, id string) (names []string, err error) {
	all, err := k.attempts()
	for _, name := range all {
		if !strings.HasPrefix(name, attempt+"-") {
			continue
		}
		j, damaged := k.load(name)
		err = errors.Join(err, damaged)
		if j != nil && j.attemptID() == id {
			names = append(names, name)
		}
	}
	return names, err
}

// Owner returns the board's id of the attempt to which a name belongs, or "". Nobody else may write to the
// folder.
func Owner(dir, name string) string {
	if !attemptName.MatchString(name) {
		return ""
	}
	return New(Options{Dir: dir}).owner(name)
}

func (k *Keeper) owner(name string) string {
	j, err := k.load(name)
	if err != nil || j == nil {
		return ""
	}
	return j.attemptID()
}

// Others reports whether the worktrees with this name belong to another attempt than the one with this id,
// which has the same name and no worktrees.
func (k *Keeper) Others(name, id string) bool {
	of := k.owner(name)
	return of != "" && of != id && of != name
}

// wrap adds the context of an error.
func wrap(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(format+": %w", append(args, *err)...)
	}
}

// explainOwner adds to an error about a missing permission which files of an attempt belong to another user.
func (k *Keeper) explainOwner(err *error, attempt string) {
	if *err == nil || !errors.Is(*err, fs.ErrPermission) && !strings.Contains((*err).Error(), "ermission denied") {
		return
	}
	for _, dir := range []string{k.folder(attempt), k.removalPath(attempt)} {
		if others := durable.CheckOwner(dir); others != nil {
			*err = fmt.Errorf("%w; %w", *err, others)
		}
	}
}

// Where a keeper has its things:
//
//	<dir>/<attempt>/<repo>          the worktrees
//	<dir>/<attempt>.removing        the same while it is removed
//	<journal>/<attempt>.json        what was made for an attempt
//	<journal>/locks                 locks
//
// The folder of worktrees may be in a project, where others write too: there nothing is
// used or removed but what a journal names, and no link is followed.

// privateFolder is the folder in Dir that does not belong to an attempt.
const privateFolder = ".journal"

// folder returns the attempt's folder, which contains its worktrees.
func (k *Keeper) folder(attempt string) string { return filepath.Join(k.dir, attempt) }

// removalPath returns the path to which the attempt's folder is renamed when its removal is decided.
func (k *Keeper) removalPath(attempt string) string { return k.folder(attempt) + ".removing" }

func (k *Keeper) locks() string { return filepath.Join(k.journal, "locks") }

// private reports whether nobody else writes to the folder of worktrees.
func (k *Keeper) private() bool { return k.journal == filepath.Join(k.dir, privateFolder) }

// Safe returns ErrNotOurs if one of the keeper's own folders, a worktree, or the folder of a worktree is a
// link: its target is not ours.
func (k *Keeper) Safe(paths ...string) error {
	own := []string{filepath.Join(k.dir, privateFolder), k.journal, k.locks()}
	if rel, err := filepath.Rel(k.project, k.dir); k.project != "" && err == nil && filepath.IsLocal(rel) {
		for at := k.dir; at != k.project; at = filepath.Dir(at) {
			own = append(own, at)
		}
	}
	for _, path := range paths {
		if parent := filepath.Dir(path); parent != k.dir {
			own = append(own, parent)
		}
		own = append(own, path)
	}
	for _, path := range own {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			return fmt.Errorf("%w: %s is %s; remove it, what it leads to is left alone", ErrNotOurs, path,
				durable.Kind(info.Mode()))
		} else if err != nil && !missing(err) {
			return err
		}
	}

	return nil
}

// empty deletes what was renamed to removalPath, even if folders in it are read-only, as in package caches.
func (k *Keeper) empty(attempt string) error {
	root, err := os.OpenRoot(k.dir)
	if missing(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(k.removalPath(attempt))
	if root.RemoveAll(name) == nil {
		return nil
	}
	fs.WalkDir(root.FS(), name, func(at string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			root.Chmod(filepath.FromSlash(at), 0o700) // before it is read
		}
		return nil
	})

	return root.RemoveAll(name)
}

// scratch creates a folder for temporary files; done removes it.
func (k *Keeper) scratch() (dir string, done func(), err error) {
	dir, err = durable.TempFolder(k.journal, "deepwork-git-*")
	return dir, func() { os.RemoveAll(dir) }, err
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// missing reports whether an error means that nothing exists at a path.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Locks order the calls of one or several processes. An attempt's lock is held for a whole Create or Remove,
// a repository's for the git commands that write data shared by all its worktrees. A call takes its attempt's
// lock first, then one repository's at a time, which prevents deadlocks.

func (k *Keeper) attemptLock(attempt string) string {
	return filepath.Join(k.locks(), "attempt-"+attempt+".lock")
}

// lock waits for a lock that all processes share.
func (k *Keeper) lock(ctx context.Context, path string) (*durable.FileLock, error) {
	if err := os.MkdirAll(k.locks(), 0o700); err != nil {
		return nil, err
	}

	lock, err := durable.Lock(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
	}
	return lock, nil
}

// lockRepo waits until no other call of this program writes to a repository.
func (k *Keeper) lockRepo(ctx context.Context, common string) (unlock func(), err error) {
	sum := sha256.Sum256([]byte(common))
	lock, err := k.lock(ctx, filepath.Join(k.locks(), "repo-"+hex.EncodeToString(sum[:8])+".lock"))
	if err != nil {
		return nil, err
	}
	return func() { lock.Unlock() }, nil
}

// lockAttempt waits until no other call works on an attempt. unlock removes the lock's file if the
// attempt no longer has a journal.
func (k *Keeper) lockAttempt(ctx context.Context, attempt string) (unlock func(), err error) {
	if err := k.Safe(k.folder(attempt)); err != nil {
		return nil, err
	}
	lock, err := k.lock(ctx, k.attemptLock(attempt))
	if err != nil {
		return nil, err
	}
	return func() {
		if _, err := os.Lstat(k.journalPath(attempt)); errors.Is(err, fs.ErrNotExist) {
			lock.Remove() // on failure, as where open files cannot be removed, the file stays
		} else {
			lock.Unlock()
		}
	}, nil
}

// Await waits until no other call works on an attempt, in any process.
func (k *Keeper) Await(ctx context.Context, attempt string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err == nil {
		unlock()
	}
	return err
}

// busy reports whether a call is working on an attempt. It creates no lock file.
func (k *Keeper) busy(attempt string) bool {
	locked, err := durable.Locked(k.attemptLock(attempt))
	return locked || err != nil
}
