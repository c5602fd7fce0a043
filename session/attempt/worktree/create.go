package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/session"
	"deepwork/session/contain"
	"deepwork/session/git"
)

// setupOutput limits a setup command's standard output.
const setupOutput = 64 << 20

// Create creates the worktrees of an attempt on the new branch, all or none: after a failure it undoes
// everything before it returns. If two of the trees belong to one repository, the second one's branch ends
// with "-2", as a branch can be checked out only once. If a crash interrupted Create, calling it again starts
// over. Once the worktrees exist, it returns them. env is added to the environment of setup commands, which
// run in the worktree, in the folder of Tree.Repo. Hooks of the repository do not run.
//
// It blocks until everything is done, setup commands included, and waits for other calls that work on this
// attempt or, briefly, on one of its repositories. Errors are ErrNotRepo, ErrNoBranch, ErrBranchTaken,
// ErrSetup (with the exit code and the last lines; a *process.Error is in the chain), ErrOutside (a copy that
// leads out of the repository), or of git or the system.
func (k *Keeper) Create(
	ctx context.Context, attempt, branch string, trees []Tree, env []string,
) (out []Made, err error) {
	defer wrap(&err, "making the worktrees of attempt %s", attempt)
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil {
		return nil, err
	}
	if j != nil && len(trees) > 0 && j.attemptID() != cmp.Or(trees[0].Attempt, attempt) {
		return nil, fmt.Errorf("%s is in the way, and belongs to attempt %s; start a new attempt", k.folder(attempt),
			j.attemptID())
	}
	if j != nil && j.Phase == made && !isThere(k.removalPath(attempt)) {
		same := func(e *record, t Tree) bool { // and no worktree was deleted by hand
			return e.RepoID == t.RepoID && e.Name == t.Name && e.Repo == t.Repo && e.TargetBranch == t.TargetBranch &&
				isThere(e.Path)
		}
		if j.Branch == branch && slices.EqualFunc(j.Trees, trees, same) {
			return j.made(), nil
		}
		return nil, fmt.Errorf("it has worktrees already, on the branch %s; remove them first", j.Branch)
	}
	if j != nil {
		if err := k.drop(ctx, j); err != nil {
			return nil, err
		}
	}
	if j, err = k.plan(ctx, attempt, branch, trees); err != nil {
		return nil, err
	}
	for _, e := range j.Trees {
		if err = k.build(ctx, j, e, env); err != nil {
			err = fmt.Errorf("repository %s: %w", e.Name, err)
			break
		}
	}
	if err == nil {
		j.Phase = made
		err = k.save(j)
		k.atPoint("made")
	}
	if err == nil {
		return j.made(), nil
	}

	// Nobody has worked in them yet. They must not stay incomplete when the caller's context ends.
	if undo := k.drop(context.WithoutCancel(ctx), j); undo != nil {
		k.log.Error("worktrees that could not be made could not be undone; the next start tries again", "attempt",
			attempt, "error", undo)
	}

	return nil, err
}

// plan records what to create. It creates nothing if any repository or branch is wrong.
func (k *Keeper) plan(ctx context.Context, attempt, branch string, trees []Tree) (*journal, error) {
	j := &journal{Attempt: attempt, Branch: branch, Phase: creating, MadeAt: time.Now().Unix() - 1}
	uses := map[string]int{}
	for _, t := range trees {
		common, base, err := findBase(ctx, t.Repo, t.TargetBranch)
		if err != nil {
			return nil, fmt.Errorf("repository %s: %w", t.Name, err)
		}

		own := branch
		uses[common]++
		if uses[common] > 1 {
			own = fmt.Sprintf("%s-%d", branch, uses[common])
		}
		j.Trees = append(j.Trees, &record{
			Tree:   t,
			Common: common,
			Path:   filepath.Join(k.folder(attempt), t.Name),
			Branch: own,
			Base:   base,
			Folder: Folder(ctx, t.Repo),
		})
	}
	if err := k.Safe(j.paths()...); err != nil {
		return nil, err
	}
	for _, at := range []string{k.folder(attempt), k.removalPath(attempt)} {
		if list, err := os.ReadDir(at); err == nil && len(list) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is in the way; move it elsewhere", at)
		}
	}

	return j, k.save(j)
}

func (j *journal) made() []Made {
	return xslices.Map(j.Trees, func(e *record) Made { return Made{RepoID: e.RepoID, Path: e.Path, Base: e.Base} })
}

// build creates one worktree.
func (k *Keeper) build(ctx context.Context, j *journal, e *record, env []string) error {
	if err := k.add(ctx, j, e); err != nil {
		return err
	}

	// The checkout takes longest and concerns only this worktree. worktree add would do the same, but by the
	// repository's config for its main checkout. No hook runs here.
	admin := adminOf(e.Common, e.Path)
	if admin == "" {
		return fmt.Errorf("the worktree %s is gone already", e.Path) // otherwise git would find another one
	}
	if _, err := git.Output(ctx,
		call(e.Path, admin, "reset", "--hard", "--quiet", "--no-recurse-submodules")); git.NotFetched(err) {
		return fmt.Errorf("%s is a partial clone, and files of the branch %s were not fetched yet, which deepwork "+
			"does not do. This fetches them: git -C %s diff --shortstat %s %.12s",
			e.Repo, e.TargetBranch, session.InShell(e.Repo), emptyTrees[len(e.Base)/64], e.Base)
	} else if err != nil {
		return fmt.Errorf("checking the files out: %w", err)
	}

	if e.Folder != "" { // a branch may lack it
		root, err := os.OpenRoot(e.Path)
		if err == nil {
			err = errors.Join(root.MkdirAll(e.Folder, 0o755), root.Close())
		}
		if err != nil {
			return fmt.Errorf("making the folder %s of the project in the worktree: %w", e.Folder, err)
		}
	}

	k.atPoint("checked out " + e.Name)
	if err := k.copyAll(ctx, e); err != nil {
		return err
	}
	k.atPoint("copied " + e.Name)
	if err := k.setup(ctx, j, e, env); err != nil {
		return err
	}
	return git.CheckFilters(ctx, call(e.Path, admin)) // the setup may have made them, as git lfs install --local does
}

// add creates the branch and the worktree, without its files.
func (k *Keeper) add(ctx context.Context, j *journal, e *record) error {
	unlock, err := k.lockRepo(ctx, e.Common)
	if err != nil {
		return err
	}
	defer unlock()

	e.Begun = true
	if err := k.save(j); err != nil {
		return err
	}
	if err := makeBranch(ctx, e.Common, e.Branch, e.Base); err != nil {
		if errors.Is(err, ErrBranchTaken) {
			e.Begun = false // it is not ours, so it must not be deleted
		}
		return err
	}

	k.atPoint("branch " + e.Name)
	if err := os.MkdirAll(filepath.Dir(e.Path), 0o755); err != nil {
		return err
	}
	c := inRepo(e.Common, "worktree", "add", "--quiet", "--no-checkout", e.Path, e.Branch)
	c.Dir = filepath.Dir(e.Path)

	if _, err := git.Output(ctx, c); err != nil {
		return fmt.Errorf("adding the worktree: %w", err)
	}

	k.atPoint("worktree " + e.Name)
	return nil
}

// setup runs the setup command in its own process group, or contained.
func (k *Keeper) setup(ctx context.Context, j *journal, e *record, env []string) error {
	if len(e.Setup) == 0 {
		return nil
	}

	dir := filepath.Join(e.Path, e.Folder)
	if e.Allowed != nil {
		if err := e.Allowed(dir); err != nil {
			return err
		}
	}
	spec := process.Spec{Command: e.Setup, Dir: dir, Env: process.With(git.Environ(), env...), StdoutLimit: setupOutput}
	var err error
	if e.Contain == nil {
		_, err = process.Run(ctx, spec)
	} else {
		err = k.setupContained(ctx, j, e, spec)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}

	k.atPoint("setup " + e.Name)
	return nil
}

func (k *Keeper) setupContained(ctx context.Context, j *journal, e *record, spec process.Spec) error {
	p, err := e.Contain(ctx, spec.Dir)
	if err != nil {
		return err
	}
	v, err := j.view(ctx, e.Path)
	if err == nil {
		err = k.containOne(ctx, p, v, false)
	}
	if err != nil {
		return err
	}
	if filepath.IsAbs(spec.Command[0]) {
		spec.Command = append([]string{p.Program(spec.Command[0])}, spec.Command[1:]...)
	}
	_, err = p.Run(ctx, spec, func(r contain.Refusal) {
		k.log.Warn("the setup command was "+r.Note(), "repo", e.Name)
	})
	return errors.Join(err, k.take(ctx, j, e))
}

// A copier copies files of a checkout into one of its worktrees. Both are opened as roots, so that no symlink
// leads out of them.
type copier struct {
	log      *slog.Logger // with the repository's name
	real     string       // the checkout's folder, without symlinks
	prefix   string       // the folder in it that serves as the repository
	from, to *os.Root
}

// copyAll copies the files of the repository's copy list from the folder that serves as the repository to the
// same place in the worktree. It skips missing files with a warning, replaces existing copies, and returns
// ErrOutside for files outside.
func (k *Keeper) copyAll(ctx context.Context, e *record) (err error) {
	if len(e.Copy) == 0 {
		return nil
	}
	defer wrap(&err, "copying files")

	c := &copier{log: k.log.With("repo", e.Name), prefix: e.Folder}
	top, err := git.TopLevel(ctx, e.Repo)
	if git.ExitCode(err) > 0 {
		c.log.Warn("a bare repository has no files to copy", "copy", e.Copy)
		return nil
	} else if err != nil {
		return err
	}

	c.real = canonical(top)
	if c.from, err = os.OpenRoot(c.real); err != nil {
		return err
	}
	defer c.from.Close()
	if c.to, err = os.OpenRoot(e.Path); err != nil {
		return err
	}
	defer c.to.Close()

	e.Copy = slices.Concat(xslices.Map(e.Copy, c.matches)...)
	for _, name := range e.Copy {
		if err := c.copy(ctx, name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}

	return nil
}

// matches returns the files that an element of the copy list means: that of its name or, if there is none, those that
// match it as a pattern, such as .env*, without git's own and those that the worktree has already, since they are
// tracked. If none matches it returns the name.
func (c *copier) matches(name string) []string {
	prefix := cmp.Or(filepath.ToSlash(c.prefix), ".")
	if _, err := c.from.Lstat(path.Join(prefix, name)); err == nil {
		return []string{name}
	}
	in, err := fs.Sub(durable.FolderFS{Root: c.from}, prefix)
	if err != nil {
		return []string{name}
	}

	all, _ := fs.Glob(in, path.Clean(filepath.ToSlash(name)))
	if len(all) == 0 { // it may be no pattern
		return []string{name}
	}
	return slices.DeleteFunc(all, func(match string) bool {
		info, err := c.to.Lstat(path.Join(prefix, match))
		return inGit(match) || err == nil && !info.IsDir()
	})
}

// copy copies a configured file or folder with its content, except git's own files: those would let
// a worktree write to the checkout's repositories.
func (c *copier) copy(ctx context.Context, name string) error {
	local := filepath.FromSlash(strings.TrimRight(name, "/"))
	dest := filepath.ToSlash(filepath.Join(c.prefix, local))
	if !filepath.IsLocal(local) || dest == "." || inGit(dest) {
		return fmt.Errorf("%w of the repository; copy takes paths below it, and not git's own", ErrOutside)
	}
	source, err := c.resolve(dest)
	if errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("a file to copy into a new worktree is missing", "file", name)
		return nil
	} else if err != nil {
		return err
	}
	if err := c.to.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return fmt.Errorf("%w of the worktree, or a file is in the way: %w", ErrOutside, err)
	}

	return fs.WalkDir(c.from.FS(), source, func(at string, d fs.DirEntry, err error) error {
		if err = cmp.Or(ctx.Err(), err); err == nil {
			err = c.one(at, path.Join(dest, strings.TrimPrefix(at, source)), d)
		}
		if at != source && errors.Is(err, fs.ErrNotExist) {
			return nil // just removed
		}
		return err
	})
}

// one copies a file, a folder without its content, or a symlink.
func (c *copier) one(source, dest string, d fs.DirEntry) error {
	switch {
	case inGit(source):
		c.log.Warn("a repository's own files are not copied into a new worktree", "file", source)
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	case d.IsDir():
		info, err := d.Info()
		if err != nil {
			return err
		}

		if err := c.to.Mkdir(dest, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return c.to.Chmod(dest, info.Mode().Perm()|0o700) // so that it can be filled
	case d.Type().IsRegular():
		return c.file(source, dest)
	case d.Type() == fs.ModeSymlink:
		return c.link(source, dest)
	}

	c.log.Warn("what is neither file, folder nor symlink is not copied into a new worktree", "file", source)
	return nil
}

// resolve follows the symlinks of a path in the checkout and returns a path in it.
func (c *copier) resolve(name string) (string, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(c.real, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(c.real, real)
	if err != nil || !filepath.IsLocal(rel) || inGit(filepath.ToSlash(rel)) {
		return "", fmt.Errorf("%w of the repository: it is %s", ErrOutside, real)
	}
	return filepath.ToSlash(rel), nil
}

// inGit reports whether a path belongs to git itself.
func inGit(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.EqualFold(part, ".git")
	})
}

// link copies a symlink in a folder as a symlink, unless it leads outside or nowhere.
func (c *copier) link(source, dest string) error {
	target, err := c.from.Readlink(source)
	if err != nil {
		return err
	}
	if _, err := c.resolve(source); err != nil || filepath.IsAbs(target) {
		c.log.Warn("a symlink that leads out of the repository is not copied into a new worktree", "file", source,
			"target", target)
		return nil
	}

	if err := c.to.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return c.to.Symlink(target, dest)
}

func (c *copier) file(source, dest string) error {
	in, info, err := durable.OpenRegularIn(c.from, source, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()

	if err := c.to.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := c.to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close())
}
