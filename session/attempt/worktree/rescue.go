package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session/git"
)

// A Rescue is the work saved from a worktree before its removal: a commit whose first parent is the
// worktree's HEAD and whose tree has the files. If other content was staged, the second parent holds the
// index; commits that nothing else reaches are further parents.
type Rescue struct {
	Repo   string // the repository of its ref, as the caller of Rescues named it; else ""
	Path   string // the worktree, or the attempt's folder for files next to the worktrees
	Ref    string // refs/deepwork/rescue/<attempt>
	Commit string // hex
}

// rescueRefs is the prefix of rescue refs. An attempt's second one in the same repository ends with a number,
// since a ref cannot be a folder for others.
const rescueRefs = "refs/deepwork/rescue/"

// keptOf and keptBeside begin the messages of rescue commits, before and after the attempt's name. The refs
// have its id.
const (
	keptOf     = "Work of attempt "
	keptIn     = " in "
	keptBeside = " beside its worktrees"
)

// Rescues lists the work of an attempt, given its id on the board, that this or an earlier Remove saved in
// these repositories. If a crash interrupts a Remove, its reply is lost, but not its refs. Each repository is
// read once, whichever of its worktrees are named; a missing one has none. It changes nothing, runs git and
// waits for it. The result is in the order of repos, then by ref.
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
		text, err := git.Output(ctx,
			inRepo(common, "for-each-ref", "--format=%(refname) %(objectname) %(contents:subject)",
				rescueRefs+attempt, rescueRefs+attempt+"-*"))
		if err != nil {
			return nil, fmt.Errorf("in %s: %w", path, err)
		}
		for line := range strings.Lines(text) {
			ref, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
			commit, subject, _ := strings.Cut(rest, " ")
			name, tree, in := strings.Cut(strings.TrimPrefix(subject, keptOf), keptIn)
			if name = strings.TrimSuffix(name, keptBeside); !attemptName.MatchString(name) {
				name = attempt
			}
			from := k.folder(name)
			if in && filepath.IsLocal(tree) {
				from = filepath.Join(from, tree)
			}
			out = append(out, Rescue{Repo: path, Path: from, Ref: ref, Commit: commit})
		}
	}
	return out, nil
}

// A source is a folder whose work is saved: a worktree, or the folder around those of an attempt.
type source struct {
	common string // the repository
	admin  string // "" if the repository has no such worktree, or no longer
	root   string // may be missing
	name   string // of the worktree; "" means the folder around them
	head   string // the commit that is checked out; "" means none
	base   string // the commit from which the attempt began, at madeAt; see journal
	madeAt int64
	skip   []string // names in root that do not belong to it
	tmp    string   // for temporary files
	index  string   // a copy of the worktree's index
}

// call returns a git command for the source with its copy of the index or, if its folder is missing, for
// git's data about it.
func (s *source) call(args ...string) git.Command {
	c := call(s.root, s.admin, args...)
	c.Index = s.index
	if s.admin == "" {
		c.GitDir = s.common
	}
	if !isDir(s.root) {
		c.Dir, c.WorkTree = s.tmp, s.tmp
	}
	return c
}

// keepAll saves the work of all worktrees of an attempt, and of the files next to them, where an agent of
// several worktrees works. Repositories with work of their own are returned if force is set; otherwise they
// are an error.
func (k *Keeper) keepAll(ctx context.Context, j *journal, force bool) (out []Rescue, discarded []Nested, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrNotKept, err)
		}
	}()

	tmp, done, err := k.scratch()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	sources, err := k.sources(ctx, j, tmp)
	for _, s := range sources {
		if err == nil {
			var found []Nested
			found, err = s.leaveOut(ctx)
			discarded = append(discarded, found...)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if len(discarded) > 0 && !force {
		return nil, nil, &NestedError{Found: discarded}
	}

	for _, s := range sources {
		r, err := k.keep(ctx, s, j.attemptID())
		if err != nil {
			return nil, nil, err
		}
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, discarded, nil
}

// leaveOut excludes the repositories inside a source, and returns those that must not go.
func (s *source) leaveOut(ctx context.Context) (must []Nested, err error) {
	found, err := s.nested(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.root, err)
	}
	for _, n := range found {
		if n.name != "" {
			s.skip = append(s.skip, n.name)
		}
		if n.Why != "" {
			must = append(must, n)
		}
	}
	return must, nil
}

// sources returns the worktrees of an attempt, in order, and the folder around them if it has other files.
func (k *Keeper) sources(ctx context.Context, j *journal, tmp string) (out []*source, err error) {
	folder := k.folder(j.Attempt)
	around := &source{root: folder, tmp: tmp, index: filepath.Join(tmp, "index")}
	for _, e := range j.Trees {
		if !isDir(e.Common) && isThere(e.Path) {
			return nil, fmt.Errorf("its repository %s is gone; put it back, or remove %s by hand", e.Common, e.Path)
		} else if !isDir(e.Common) {
			continue
		}

		s, err := e.source(ctx, tmp)
		if err != nil {
			return nil, err
		}

		out = append(out, s)
		around.common, around.skip = cmp.Or(around.common, e.Common), append(around.skip, e.Name)
	}

	list, err := os.ReadDir(folder)
	if err != nil && !missing(err) {
		return nil, err
	}
	others := slices.ContainsFunc(list, func(f fs.DirEntry) bool { return !slices.Contains(around.skip, f.Name()) })
	if others && around.common == "" {
		return nil,
			fmt.Errorf("the repository that would keep the files in %s is gone; put it back, or remove them by hand",
				folder)
	} else if others {
		out = append(out, around)
	}
	return out, nil
}

// source returns a worktree as a source; tmp is a folder for temporary files.
func (e *record) source(ctx context.Context, tmp string) (s *source, err error) {
	s = &source{
		common: e.Common,
		root:   e.Path,
		name:   e.Name,
		base:   e.Base,
		madeAt: e.madeAt,
		tmp:    tmp,
		index:  filepath.Join(tmp, "index-"+e.Name),
	}

	if s.admin, err = e.folder(); err != nil {
		return nil, err
	}
	if s.admin != "" {
		s.head, err = commitOf(ctx, inRepo(s.admin), "HEAD")
	} else if s.head, err = branchTip(ctx, e.Common, e.Branch); s.head == "" && err == nil {
		s.head, err = commitOf(ctx, inRepo(e.Common), e.Base) // none in a repository that was made again
	}

	return s, err
}

// keep saves the work of a source, if any, under the first free ref of the attempt. It does not change the
// source.
func (k *Keeper) keep(ctx context.Context, s *source, attempt string) (r *Rescue, err error) {
	defer wrap(&err, "%s", s.root)
	lost, err := s.inDanger(ctx, attempt)
	if err != nil {
		return nil, err
	}

	before := ""
	if s.head != "" {
		if before, err = treeOf(ctx, s.common, s.head); err != nil {
			return nil, err
		}
	}
	staged, tree, err := s.trees(ctx, k, before)
	if err != nil {
		return nil, err
	}

	var parents []string
	add := func(id string) {
		if id != "" && !slices.Contains(parents, id) {
			parents = append(parents, id)
		}
	}
	add(s.head)
	if staged != "" && staged != before && staged != tree {
		id, err := s.stagedCommit(ctx, staged)
		if err != nil {
			return nil, err
		}
		add(id)
	}
	for _, id := range lost {
		add(id)
	}
	if tree == before && len(parents) == 1 && len(lost) == 0 ||
		before == "" && slices.Contains(emptyTrees, tree) && len(parents) == 0 {
		return nil, nil
	}
	return k.pin(ctx, s, attempt, tree, parents)
}

// emptyTrees are the ids of an empty tree, in both object formats of repositories.
var emptyTrees = []string{"4b825dc642cb6eb9a060e54bf8d69288fbee4904",
	"6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"}

// trees returns the tree of what is staged, or "" if there are conflicts, and the tree of the files.
func (s *source) trees(ctx context.Context, k *Keeper, before string) (staged, tree string, err error) {
	if err := copyIndex(ctx, s.call(), s.admin, s.head); err != nil {
		return "", "", err
	}

	write := s.call("write-tree")
	write.Filters = false // git would run them for files that have just changed
	staged, err = git.Line(ctx, write)
	if err != nil && git.ExitCode(err) < 0 {
		return "", "", err
	}
	if !isDir(s.root) {
		return staged, cmp.Or(before, staged), nil // it was removed by hand: there are no files to save
	}

	if err := s.unhide(ctx); err != nil {
		return "", "", err
	}
	if s.admin != "" && s.head != "" {
		_, same, err := git.Changes(ctx, s.call(), "no")
		if err = cmp.Or(err, assumeUnchanged(ctx, s.call(), same)); err != nil {
			return "", "", err
		}
	}

	add := s.call("add", "--all", "--sparse", "--", ".")
	for _, name := range s.skip {
		add.Args = append(add.Args, ":(top,exclude,literal)"+name)
	}
	add.Config = []string{"core.fsync=all", "add.ignoreErrors=false"}
	_, warnings, err := git.Run(ctx, add)
	if git.ExitCode(err) > 0 {
		k.log.Warn("git cannot add files; they are kept without git's filters", "worktree", s.root, "error", err)
		add.Filters = false
		_, warnings, err = git.Run(ctx, add)
	}
	if err != nil {
		return "", "", err
	}
	if err := unopened(warnings); err != nil {
		return "", "", err
	}

	tree, err = git.Line(ctx, write)
	return staged, tree, err
}

// unhide removes, from the copy of the index, the flags that make git ignore changed files.
func (s *source) unhide(ctx context.Context) error {
	out, err := git.Output(ctx, s.call("ls-files", "-v", "-z"))
	if err != nil {
		return err
	}

	var hidden strings.Builder
	for _, line := range git.Fields(out) {
		tag, name, _ := strings.Cut(line, " ")
		if (tag == "S" || tag == strings.ToLower(tag)) && isThere(filepath.Join(s.root, filepath.FromSlash(name))) {
			hidden.WriteString(name + "\x00")
		}
	}

	for _, flag := range []string{"--no-assume-unchanged", "--no-skip-worktree"} {
		c := s.call("update-index", flag, "-z", "--stdin")
		c.Stdin = []byte(hidden.String())
		if len(c.Stdin) > 0 && err == nil {
			_, err = git.Output(ctx, c)
		}
	}

	return err
}

// unopened returns an error if git has skipped a folder that it cannot read.
func unopened(warnings string) error {
	for line := range strings.Lines(warnings) {
		if strings.Contains(line, "could not open directory") {
			return fmt.Errorf("git: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// stagedCommit returns a commit of what is staged, always with the same id.
func (s *source) stagedCommit(ctx context.Context, tree string) (string, error) {
	c := s.call("commit-tree", tree, "-m", "What was staged")
	if s.head != "" {
		c.Args = append(c.Args, "-p", s.head)
	}
	c.Env = []string{"GIT_AUTHOR_DATE=@0 +0000", "GIT_COMMITTER_DATE=@0 +0000"}
	return git.Line(ctx, c)
}

// maxReflog is the maximum size of the log of a worktree's HEAD in bytes: some million commits.
const maxReflog = 256 << 20

// inDanger lists the commits that no ref reaches once the worktree is gone, apart from the rescue
// refs of this attempt: its detached HEAD, detached commits that it has left, those of a merge,
// cherry-pick or autostash in progress, and its private refs.
func (s *source) inDanger(ctx context.Context, attempt string) ([]string, error) {
	if s.admin == "" {
		return nil, nil
	}

	ids := []string{s.head}
	log, _, err := durable.Read(filepath.Join(s.admin, "logs", "HEAD"), maxReflog)
	if err != nil && !missing(err) {
		return nil, err
	}
	for _, left := range leftBehind.FindAllSubmatch(log, -1) {
		ids = append(ids, string(left[1]))
	}
	for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "MERGE_AUTOSTASH", "rebase-merge/autostash",
		"rebase-apply/autostash"} {
		data, _, err := durable.Read(filepath.Join(s.admin, filepath.FromSlash(name)), maxGitFile)
		if err != nil && !missing(err) {
			return nil, err
		}
		ids = append(ids, strings.Fields(string(data))...)
	}

	private, err := git.Output(ctx, s.call("for-each-ref", "--format=%(objectname)", "refs/worktree"))
	if err != nil {
		return nil, err
	}
	ids = append(ids, strings.Fields(private)...)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })

	// The reflog may name commits that were removed long ago.
	list := inRepo(s.common, slices.Concat([]string{"rev-list", "--ignore-missing"}, ids,
		[]string{"--not", "--branches", "--tags", "--remotes",
			"--exclude=" + rescueRefs + attempt + "*", "--glob=" + rescueRefs + "*"})...)
	if len(ids) == 0 {
		return nil, nil
	}
	lost, err := git.Output(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("looking for who reaches the commits: %w", err)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return !strings.Contains(lost, id) }), nil
}

// leftBehind matches the commits in the reflog of a worktree's HEAD that a checkout has left on no branch:
// those about which git warns.
var leftBehind = regexp.MustCompile(`(?m)^([0-9a-f]{40,64}) .*\tcheckout: moving from [0-9a-f]{40,64} to `)

// pin makes a ref, the first free one, point to a new commit. Work that is already saved is not saved again.
func (k *Keeper) pin(ctx context.Context, s *source, attempt, tree string, parents []string) (*Rescue, error) {
	message := keptOf + filepath.Base(s.root) + keptBeside
	if s.name != "" {
		message = keptOf + NameOf(s.root) + keptIn + s.name
	}
	for n := 1; ; n++ {
		ref := rescueRefs + attempt
		if n > 1 {
			ref = fmt.Sprintf("%s-%d", ref, n)
		}
		have, err := git.Line(ctx, inRepo(s.common, "for-each-ref", "--format=%(objectname) %(tree) %(parent)", ref))
		if err != nil {
			return nil, err
		}
		tip, rest, _ := strings.Cut(have, " ")
		if slices.Equal(strings.Fields(rest), append([]string{tree}, parents...)) {
			return &Rescue{Path: s.root, Ref: ref, Commit: tip}, nil
		} else if tip != "" {
			continue
		}

		c := inRepo(s.common, "commit-tree", tree, "-m", message+"\n\nKept before it was removed.\n")
		c.Config = []string{"core.fsync=all"}
		for _, p := range parents {
			c.Args = append(c.Args, "-p", p)
		}

		commit, err := git.Line(ctx, c)
		if err != nil {
			return nil, err
		}

		k.atPoint("rescue commit")
		c.Args = []string{"update-ref", ref, commit, ""}
		if _, err := git.Output(ctx, c); err != nil {
			return nil, err
		}
		k.atPoint("rescue ref")
		return &Rescue{Path: s.root, Ref: ref, Commit: commit}, nil
	}
}

// Abort undoes a merge in progress in an attempt's worktree: its files become those of its last commit again;
// untracked ones stay. What was there, such as resolved conflicts, is saved first, as by Remove; the Rescue
// says where, or is nil. It blocks until everything is done. Errors: ErrNoMerge, ErrNotKept, ErrInUse,
// ErrNoWorktree.
func (k *Keeper) Abort(ctx context.Context, path string, inUse func() bool) (kept *Rescue, err error) {
	defer wrap(&err, "aborting the merge in %s", path)
	return k.onMerge(ctx, path, inUse, func(b *view) (kept *Rescue, err error) {
		if kept, err = k.keepMerge(ctx, b); err != nil {
			return nil, err
		}

		_, err = git.Output(context.WithoutCancel(ctx), b.call("reset", "--hard", "--quiet", "--no-recurse-submodules"))
		return kept, err
	})
}

// keepMerge saves the files of a merge in progress, except repositories among them, which a reset does not
// touch. It refuses repositories in the place of files of the commit: a reset would replace them.
func (k *Keeper) keepMerge(ctx context.Context, b *view) (r *Rescue, err error) {
	tmp, done, err := k.scratch()
	if err != nil {
		return nil, err
	}
	defer done()
	s, err := b.source(ctx, tmp)

	var found []Nested
	if err == nil {
		found, err = s.leaveOut(ctx)
	}
	for _, n := range found {
		if n.name == "" || err != nil {
			continue
		}

		var entry string
		entry, err = git.Output(ctx, inRepo(b.Common, "ls-tree", "-z", "--full-tree", "--", b.head, n.name))
		if entry != "" && !strings.HasPrefix(entry, modeRepo) {
			err = &NestedError{Found: []Nested{n}}
		}
	}
	if err == nil {
		r, err = k.keep(ctx, s, b.journal.attemptID())
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return r, err
}
