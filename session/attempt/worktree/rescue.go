package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A Rescue is the work saved from a worktree before its removal: a commit whose first parent is the
// worktree's HEAD and whose tree has the files. If other content was staged, the second parent
// holds the index; commits that nothing else reaches are further parents. A repository inside the
// worktree is saved as files, and its git directory, if it has commits that are on no remote, as
// .deepwork-git.tar next to them.
type Rescue struct {
	Repo   string // the repository of its ref, as the caller of Rescues named it; else ""
	Path   string // the worktree, or the attempt's folder for files next to the worktrees
	Ref    string // refs/deepwork/rescue/<attempt>; "" if there was no work
	Commit string // hex; "" likewise
}

// rescueRefs is the prefix of rescue refs. A second one of an attempt in the same repository has a
// suffix, since a ref cannot be a folder for others.
const rescueRefs = "refs/deepwork/rescue/"

// keptOf and keptBeside begin the messages of rescue commits, before and after the attempt's name.
const (
	keptOf     = "Work of attempt "
	keptIn     = " in "
	keptBeside = " beside its worktrees"
)

// Rescues lists the work of an attempt that this or an earlier Remove saved in these repositories:
// if a crash interrupts a Remove its reply is lost, but its refs are not. Each repository is read
// once, whichever of its worktrees are named; one that is gone has none. It changes nothing, runs
// git and waits for it. The result is in the order of repos and then by ref.
func (k *Keeper) Rescues(ctx context.Context, attempt string, repos []string) (out []Rescue, err error) {
	defer wrap(&err, "listing what was kept of attempt %s", attempt)
	seen := map[string]bool{}
	for _, path := range repos {
		common, err := findRepo(ctx, path)
		if errors.Is(err, ErrNotRepo) || seen[common] {
			continue
		} else if err != nil {
			return nil, err
		}
		seen[common] = true
		text, err := git.Output(ctx, inRepo(common, "for-each-ref", "--format=%(refname) %(objectname) %(contents:subject)",
			rescueRefs+attempt, rescueRefs+attempt+"-*"))
		if err != nil {
			return nil, fmt.Errorf("in %s: %w", path, err)
		}
		for line := range strings.Lines(text) {
			ref, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
			commit, subject, _ := strings.Cut(rest, " ")
			from := k.folder(attempt) // if the subject names no worktree
			if name, ok := strings.CutPrefix(subject, keptOf+attempt+keptIn); ok && filepath.IsLocal(name) {
				from = filepath.Join(from, name)
			}
			out = append(out, Rescue{Repo: path, Path: from, Ref: ref, Commit: commit})
		}
	}
	return out, nil
}

// keep saves the work of a worktree, if any, under a rescue ref, and sets it in the record. It uses
// its own index and changes nothing in the worktree.
func (k *Keeper) keep(ctx context.Context, j *journal, e *record, mode keeping) error {
	admin, err := e.admin()
	there := isDir(e.Path)
	switch {
	case err != nil && isDir(admin) && halfOf(admin) == "":
		return fmt.Errorf("%w: %w", ErrNotKept, err)
	case admin == "" && !there, !there && e.Step == dropping:
		return nil
	case !isDir(e.Common):
		return fmt.Errorf("%w: its repository %s is gone; put it back, or remove %s by hand", ErrNotKept, e.Common, e.Path)
	case mode == keepPresent && (!there || bare(e.Path)):
		return nil // no file was checked out yet
	case !there:
		mode = keepPresent // it was removed by hand: no files are left to save
	}
	ref, commit, err := k.keepScan(ctx, &scan{k: k, common: e.Common, admin: admin, root: e.Path, record: e, keeping: mode}, j.Attempt,
		keptOf+j.Attempt+keptIn+e.Name+"\n\nKept before the worktree was removed.\n", j.Attempt, j.Attempt+"-"+slug(e.Name, "repo"))
	if ref != "" {
		e.Ref, e.Commit = ref, commit
	}
	return err
}

// keepScan saves the result of a scan under the first free one of some refs, and returns "" if
// there is none. The caller has the attempt's lock.
func (k *Keeper) keepScan(ctx context.Context, s *scan, attempt, message string, names ...string) (ref, commit string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrNotKept, s.root, err)
		}
	}()
	var done func()
	if s.tmp, done, err = k.scratch("keep-" + attempt); err != nil {
		return "", "", err
	}
	defer done()
	if err := s.run(ctx); err != nil {
		return "", "", err
	}
	staged, err := s.stagedCommit(ctx)
	if err != nil {
		return "", "", err
	}
	lost, err := s.inDanger(ctx, attempt)
	if err != nil || len(s.changes) == 0 && staged == "" && len(lost) == 0 {
		return "", "", err
	}
	tree, err := s.writeTree(ctx, s.changes)
	if err != nil {
		return "", "", err
	}
	var parents []string
	for _, id := range append([]string{s.headID, staged}, lost...) {
		if id != "" && !slices.Contains(parents, id) {
			parents = append(parents, id)
		}
	}
	return k.pin(ctx, s.common, names, tree, parents, message)
}

// stagedCommit returns a commit of the content that is only in the index, not in the head or the
// files, or "" if there is none. Its dates are the head's, so that saving the same again gives the
// same commit.
func (s *scan) stagedCommit(ctx context.Context) (string, error) {
	staged := map[string]blob{}
	for name, b := range s.index {
		now, changed := s.changes[name]
		if !changed {
			now = s.head[name]
		}
		// Files added with --intent-to-add are empty in the index.
		if b != s.head[name] && b.id != now.id && !slices.Contains(emptyBlobs, b.id) && b.mode != modeRepo {
			staged[name] = b
		}
	}
	if len(staged) == 0 {
		return "", nil
	}
	tree, err := s.writeTree(ctx, staged)
	if err != nil {
		return "", err
	}
	c := s.call("commit-tree", tree, "-m", "What was staged")
	date := "@0 +0000"
	if s.headID != "" {
		at, err := git.Line(ctx, s.call("show", "--no-patch", "--format=%ct", s.headID))
		if err != nil {
			return "", err
		}
		date = "@" + at + " +0000"
		c.Args = append(c.Args, "-p", s.headID)
	}
	c.Env = []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
	return git.Line(ctx, c)
}

// inDanger lists the commits that no ref reaches once the worktree is gone, apart from the rescue
// refs of this attempt: its detached HEAD, detached commits that it has left, those of a merge,
// cherry-pick or autostash in progress, and its private refs.
func (s *scan) inDanger(ctx context.Context, attempt string) ([]string, error) {
	ids := append([]string{s.headID}, s.commits...)
	if s.admin != "" {
		log, _ := os.ReadFile(filepath.Join(s.admin, "logs", "HEAD")) // there may be none
		for _, left := range leftBehind.FindAllSubmatch(log, -1) {
			ids = append(ids, string(left[1]))
		}
		for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "MERGE_AUTOSTASH", "rebase-merge/autostash", "rebase-apply/autostash"} {
			data, err := os.ReadFile(filepath.Join(s.admin, filepath.FromSlash(name)))
			if err != nil && !missing(err) {
				return nil, err
			}
			ids = append(ids, strings.Fields(string(data))...)
		}
		out, err := git.Output(ctx, s.call("for-each-ref", "--format=%(objectname)", "refs/worktree"))
		if err != nil {
			return nil, err
		}
		ids = append(ids, strings.Fields(out)...)
	}
	var out []string
	for _, id := range ids {
		if id == "" || slices.Contains(out, id) {
			continue
		}
		// The reflog may name commits that were removed long ago.
		id, err := commitOf(ctx, inRepo(s.common), id)
		if err != nil && git.ExitCode(err) < 0 {
			return nil, err
		} else if id == "" {
			continue
		}
		lost, err := git.Line(ctx, inRepo(s.common, "rev-list", "--max-count=1", id, "--not", "--branches", "--tags", "--remotes",
			"--exclude="+rescueRefs+attempt+"*", "--glob="+rescueRefs+"*"))
		if err != nil {
			return nil, fmt.Errorf("looking for who reaches commit %s: %w", id, err)
		}
		if lost != "" {
			out = append(out, id)
		}
	}
	return out, nil
}

// leftBehind returns the commits in the reflog of a worktree's HEAD that a checkout has left on no
// branch: those for which git warns that they are left behind.
var leftBehind = regexp.MustCompile(`(?m)^([0-9a-f]{40,64}) .*\tcheckout: moving from [0-9a-f]{40,64} to `)

// pin makes the first free one of some refs point to a commit. A commit that is already saved is
// not saved twice.
func (k *Keeper) pin(ctx context.Context, common string, names []string, tree string, parents []string, message string) (ref, commit string, err error) {
	for n := 0; ; n++ {
		name := names[min(n, len(names)-1)]
		if n >= len(names) {
			name = fmt.Sprintf("%s-%d", name, n-len(names)+2)
		}
		ref = rescueRefs + name
		tip, err := refTip(ctx, inRepo(common), ref)
		if err != nil {
			return "", "", err
		}
		if tip != "" {
			have, err := git.Line(ctx, inRepo(common, "show", "--no-patch", "--format=%T %P", tip))
			if err != nil {
				return "", "", err
			}
			if slices.Equal(strings.Fields(have), append([]string{tree}, parents...)) {
				return ref, tip, nil
			}
			continue
		}
		c := inRepo(common, "commit-tree", tree, "-m", message)
		c.Config = []string{"core.fsync=all"}
		for _, p := range parents {
			c.Args = append(c.Args, "-p", p)
		}
		if commit, err = git.Line(ctx, c); err != nil {
			return "", "", err
		}
		k.at("rescue commit")
		c.Args = []string{"update-ref", ref, commit, ""}
		if _, err := git.Output(ctx, c); err != nil {
			return "", "", err
		}
		k.at("rescue ref")
		return ref, commit, nil
	}
}

// keepRest saves the files in the attempt's folder next to the worktrees: an agent that has several
// works there.
func (k *Keeper) keepRest(ctx context.Context, j *journal) error {
	folder, ours, common := k.folder(j.Attempt), map[string]bool{}, ""
	for _, e := range j.Trees {
		ours[e.Name] = e.Step != dropped
		if common == "" && isDir(e.Common) {
			common = e.Common
		}
	}
	list, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	switch {
	case !slices.ContainsFunc(list, func(f fs.DirEntry) bool { return !ours[f.Name()] }):
		return nil
	case common == "":
		return fmt.Errorf("%w: its repositories are gone; remove %s by hand", ErrNotKept, folder)
	}
	// A worktree that was moved or created here may have commits of its own.
	ref, commit, err := k.keepScan(ctx, &scan{k: k, common: common, root: folder, skip: ours}, j.Attempt,
		keptOf+j.Attempt+keptBeside+"\n\nKept before its folder was removed.\n", j.Attempt+"-workspace")
	if ref != "" {
		j.Rest = &Rescue{Path: folder, Ref: ref, Commit: commit}
	}
	return err
}

// bare reports whether a worktree contains only git's own file.
func bare(path string) bool {
	list, err := os.ReadDir(path)
	return err == nil && (len(list) == 0 || len(list) == 1 && list[0].Name() == ".git")
}
