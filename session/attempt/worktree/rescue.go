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

// A Rescue is what was kept of a worktree before it was removed: a commit whose
// first parent is the worktree's HEAD and whose tree is what lay there. Where
// something else was staged, the second parent holds the index; commits that
// nothing else reaches are further parents. A repository that was made inside
// has its files there as files, and its git directory, if commits are in it that
// are on no remote, as .deepwork-git.tar beside them.
type Rescue struct {
	Repo   string // the repository that has its ref, as the caller of Rescues named it; else ""
	Path   string // the worktree, or the attempt's folder for what lay beside the worktrees
	Ref    string // refs/deepwork/rescue/<attempt>; "" where there was nothing to keep
	Commit string // hex; "" likewise
}

// rescueRefs is where rescue commits are. A second one of an attempt in the same
// repository has a suffix: a ref cannot be a folder for others.
const rescueRefs = "refs/deepwork/rescue/"

// keptOf and keptBeside are what the messages of rescue commits begin with,
// before and after the attempt's name.
const (
	keptOf     = "Work of attempt "
	keptIn     = " in "
	keptBeside = " beside its worktrees"
)

// Rescues lists what was kept of an attempt in these repositories, by this Remove
// or an earlier one: the answer of a Remove that was cut short by a crash is lost,
// its refs are not. Each repository is looked at once, whichever of its worktrees
// are named; one that is gone has none. It changes nothing, runs git and waits for
// it. What is in the order of repos and then by ref.
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
			from := k.folder(attempt) // if the subject does not tell
			if name, ok := strings.CutPrefix(subject, keptOf+attempt+keptIn); ok && filepath.IsLocal(name) {
				from = filepath.Join(from, name)
			}
			out = append(out, Rescue{Repo: path, Path: from, Ref: ref, Commit: commit})
		}
	}
	return out, nil
}

// keep keeps the work of a worktree under a rescue ref, if there is any, and
// writes into the record where. It changes nothing in the worktree: the index it
// uses is one of its own.
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
		mode = keepPresent // it was removed by hand: of its files nothing is left to keep
	}
	ref, commit, err := k.keepScan(ctx, &scan{k: k, common: e.Common, admin: admin, root: e.Path, record: e, keeping: mode}, j.Attempt,
		keptOf+j.Attempt+keptIn+e.Name+"\n\nKept before the worktree was removed.\n", j.Attempt, j.Attempt+"-"+slug(e.Name, "repo"))
	if ref != "" {
		e.Ref, e.Commit = ref, commit
	}
	return err
}

// keepScan keeps what a scan finds under the first of some refs that is free, and
// returns "" if that is nothing. The caller has the attempt's lock.
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

// stagedCommit is a commit of what is in the index and neither in the head nor
// in the files; "" if there is nothing of the kind. Its dates are the head's,
// so that keeping the same again gives the same commit.
func (s *scan) stagedCommit(ctx context.Context) (string, error) {
	staged := map[string]blob{}
	for name, b := range s.index {
		now, changed := s.changes[name]
		if !changed {
			now = s.head[name]
		}
		// Files whose adding is only intended are empty there.
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

// inDanger lists the commits that no ref reaches once the worktree is gone, apart from
// the rescue refs of this attempt: its detached HEAD, detached commits that it has left, what a merge, a cherry-pick
// or an autostash under way has at hand, and its private refs.
func (s *scan) inDanger(ctx context.Context, attempt string) ([]string, error) {
	ids := append([]string{s.headID}, s.commits...)
	if s.admin != "" {
		log, _ := os.ReadFile(filepath.Join(s.admin, "logs", "HEAD")) // it may keep none
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
		// The reflog may tell of commits that were cleaned up long since.
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

// leftBehind finds in the reflog of a worktree's HEAD which commits on no branch a
// checkout has left: those of which git warns that they are left behind.
var leftBehind = regexp.MustCompile(`(?m)^([0-9a-f]{40,64}) .*\tcheckout: moving from [0-9a-f]{40,64} to `)

// pin makes a commit and the first of some refs that is free its ref. What is
// kept already is not kept twice.
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

// keepRest keeps what lies in the attempt's folder beside the worktrees: an agent
// that has several works there.
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
	// A worktree that was moved here, or made here, may stand on commits of its own.
	ref, commit, err := k.keepScan(ctx, &scan{k: k, common: common, root: folder, skip: ours}, j.Attempt,
		keptOf+j.Attempt+keptBeside+"\n\nKept before its folder was removed.\n", j.Attempt+"-workspace")
	if ref != "" {
		j.Rest = &Rescue{Path: folder, Ref: ref, Commit: commit}
	}
	return err
}

// bare reports whether nothing but git's own file is in a worktree.
func bare(path string) bool {
	list, err := os.ReadDir(path)
	return err == nil && (len(list) == 0 || len(list) == 1 && list[0].Name() == ".git")
}
