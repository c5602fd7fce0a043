package worktree

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/git"
)

// A Status describes the changes in one worktree since its target branch.
type Status struct {
	Exists  bool     // if false, the folder is gone, and the rest is zero
	Merged  bool     // its commits were merged at least once
	ByHand  bool     // its commits were merged, but not by Merge
	Ahead   int      // commits of the worktree that the target lacks
	Behind  int      // commits of the target that the worktree lacks
	Loose   int      // number of changed and untracked files that no commit has, except copies: see isCopy
	Changed []string // committed, uncommitted and untracked files, sorted, relative, with slashes

	Elsewhere   string   // what is checked out instead of the attempt's branch, in words, or ""
	OtherBranch string   // its name, if that is a branch
	Merging     bool     // a merge is in progress: git commit completes it, or Abort undoes it
	Conflicts   []string // the files with unresolved conflicts
	Resolved    []string // the files whose conflicts in this merge are resolved
}

// Status returns the changes of a worktree since the attempt's work began. If the target branch is gone, or
// target is "", base replaces it. A repository inside the worktree is listed with a slash at its end. It
// takes no lock and changes nothing, so an agent may be working there; it blocks until git has ended.
func (k *Keeper) Status(ctx context.Context, path, base, target string) (st Status, err error) {
	defer wrap(&err, "looking at the worktree %s", path)
	if !isDir(path) {
		return Status{}, nil
	}
	defer func() {
		if err != nil && !isDir(path) { // removed meanwhile
			st, err = Status{}, nil
		}
	}()
	v, err := k.view(ctx, path, base, target)
	if err != nil {
		return Status{}, err
	}
	st.Merging = v.operation() == "merge"
	st.Exists = true
	if st.Elsewhere, st.OtherBranch, err = v.otherCheckout(ctx); err != nil {
		return Status{}, err
	}

	changed := map[string]bool{}
	if v.head != "" && v.head != v.target {
		out, err := git.Line(ctx, v.call("rev-list", "--left-right", "--count", v.target+"..."+v.head))
		if err != nil {
			return Status{}, err
		}
		behind, ahead, _ := strings.Cut(out, "\t")
		st.Behind, _ = strconv.Atoi(behind)
		st.Ahead, _ = strconv.Atoi(ahead)
	}
	if v.head != "" && v.head != v.from {
		out, err := git.Output(ctx, v.call("diff-tree", "-r", "-z", "--name-only", "--no-renames", v.from, v.head))
		if err != nil {
			return Status{}, err
		}
		for _, name := range git.Fields(out) {
			changed[name] = true
		}
	}

	own := maps.Clone(changed)
	loose, err := v.changedFiles(ctx, "all")
	if err != nil {
		return Status{}, err
	}
	for xy, names := range loose {
		for _, name := range names {
			if xy != untracked || !v.isCopy(name) {
				st.Loose++
			}
			if xy == untracked || !st.Merging { // what a merge brings is not the attempt's own change
				changed[name] = true
			}
		}
	}
	st.ByHand, err = v.mergedByHand(ctx)
	if err == nil && v.Since == nil && st.Loose == 0 && st.Ahead > 0 && st.Behind > 0 && len(own) > 0 {
		st.ByHand, err = v.squashedByHand(ctx, own)
	}
	if err != nil {
		return Status{}, err
	}
	st.Merged = v.Since != nil || st.ByHand
	st.Conflicts = conflicts(loose)
	if st.Merging {
		files, err := v.resolved(ctx)
		if err != nil {
			return Status{}, err
		}
		st.Resolved = slices.DeleteFunc(files, func(name string) bool { return slices.Contains(st.Conflicts, name) })
	}
	st.Changed = slices.Sorted(maps.Keys(changed))
	return st, nil
}

// Commits returns the newest commits that a worktree has and its target lacks, newest first: each with its
// short id and its subject, as the agent wrote it. It changes nothing.
func (k *Keeper) Commits(ctx context.Context, path, base, target string, most int) (subjects []string, err error) {
	defer wrap(&err, "looking at the worktree %s", path)
	v, err := k.view(ctx, path, base, target)
	if err != nil || v.head == "" {
		return nil, err
	}
	out, err := git.Output(ctx, v.call("log", "-z", "--format=%h %s", "--max-count="+strconv.Itoa(most),
		v.target+".."+v.head, "--"))
	return git.Fields(out), err
}

// A mergeBase says where the work of an attempt begins after it was merged: at the commit From, as long as
// its branch and the target have Common in common. Git alone does not know this, since what is merged is in
// both.
type mergeBase struct {
	From   string `json:"from"`
	Common string `json:"common"`
}

// mergedByHand reports whether the commit of the worktree was made there and is in the target, but was not
// put there by Merge. After a branch was brought up to date, or reset to the target, it is at a commit that
// was made elsewhere.
func (v *view) mergedByHand(ctx context.Context) (bool, error) {
	if v.Since != nil || v.head == "" || v.head != v.common || v.head == v.Base {
		return false, nil
	}
	out, err := git.Output(ctx, v.call("log", "--walk-reflogs", "--format=%H %gs", "HEAD", "--"))
	for line := range strings.Lines(out) {
		if how, ok := strings.CutPrefix(line, v.head+" "); ok && madeHere.MatchString(how) {
			return true, err
		}
	}
	return false, err
}

// madeHere matches what the log of a HEAD says of a commit that was made there.
var madeHere = regexp.MustCompile(`^(commit|cherry-pick|rebase \((pick|reword|edit|squash|fixup|continue)\)|` +
	`merge .*: Merge made by)`)

// squashedByHand reports whether the target has the files that the worktree's commits have changed as they are there,
// as after a squash or rebase of it that was not done by Merge. own are these files.
func (v *view) squashedByHand(ctx context.Context, own map[string]bool) (bool, error) {
	out, err := git.Output(ctx, v.call("diff-tree", "-r", "-z", "--name-only", "--no-renames", v.target, v.head))
	return err == nil && !slices.ContainsFunc(git.Fields(out), func(name string) bool { return own[name] }), err
}

// begin returns the commit from which the work of an attempt begins, and the commit that its branch and the
// target have in common, or "".
func (e *record) begin(ctx context.Context, head, target string) (from, common string, err error) {
	common, err = git.Line(ctx, inRepo(e.Common, "merge-base", target, head))
	if err != nil && git.ExitCode(err) != 1 {
		return "", "", err
	}
	common, _, _ = strings.Cut(common, "\n")
	switch {
	case e.Since != nil && e.Since.Common == common:
		return e.Since.From, common, nil
	case common == "":
		return target, "", nil
	case common != e.Base: // with another target it may have commits that are not the attempt's
		other, err := isAncestor(ctx, e.Common, common, e.Base)
		if other && err == nil {
			other, err = isAncestor(ctx, e.Common, e.Base, head)
		}
		if err != nil || other {
			return e.Base, common, err
		}
	}

	return common, common, nil
}

// Check returns an error unless these are the worktrees of an attempt, with this id on the board, were made
// by Create, and exist: an agent must not work elsewhere.
func (k *Keeper) Check(attempt, id string, paths []string) error {
	if !attemptName.MatchString(attempt) {
		return fmt.Errorf("%w: %q cannot be the folder of an attempt", ErrNotOurs, attempt)
	}

	j, err := k.load(attempt)
	switch {
	case err != nil:
		return err
	case j == nil:
		return fmt.Errorf("%w: there is no journal of attempt %s in %s", ErrNotOurs, attempt, k.journal)
	case j.attemptID() != id:
		return fmt.Errorf("%w: the worktrees %s are said to be of attempt %s, and their journal has %s", ErrNotOurs,
			attempt, id, j.attemptID())
	case !slices.Equal(j.paths(), paths):
		return fmt.Errorf("%w: the worktrees of attempt %s are said to be %q, and its journal has %q", ErrNotOurs,
			attempt, paths, j.paths())
	}

	return nil
}

// A CheckedOutError says that a branch cannot be moved, because it is checked out in two worktrees, or in one
// with changes or an operation in progress.
type CheckedOutError struct {
	Branch    string
	Path      string   // the worktree
	Files     []string // its changed files, or those in the way; relative, with slashes
	Operation string   // such as rebase; "" means none
	Also      string   // another worktree that has the branch; "" means none
	Hidden    bool     // git status may not show the files
	Command   string   // does the same by hand, once that is resolved
}

func (e *CheckedOutError) Error() string {
	why := fmt.Sprintf("these files are changed there, or are in the way: %q", e.Files)
	switch {
	case e.Hidden:
		why += fmt.Sprintf(" (git -C %s ls-files -v shows with S or a small letter what git status leaves out)",
			session.InShell(e.Path))
	case e.Also != "":
		why = fmt.Sprintf("in %s, too: switch one of them to another branch, such as with git -C %s switch --detach",
			e.Also, session.InShell(e.Also))
	case e.Operation != "":
		why = fmt.Sprintf("an operation is in progress there: %s, which git -C %s %s ends", e.Operation,
			session.InShell(e.Path), ending(e.Operation))
	}
	return fmt.Sprintf("the branch %s is checked out in %s, and %s; resolve that, or run: %s", e.Branch, e.Path, why,
		e.Command)
}

// ending returns git's arguments that undo an operation in progress.
func ending(operation string) string {
	if operation == "bisect" {
		return "bisect reset"
	}
	return operation + " --abort"
}

// A DirtyError names files that are uncommitted, or in the way.
type DirtyError struct {
	Path  string // the worktree
	Files []string
}

func (e *DirtyError) Error() string {
	return fmt.Sprintf("files in %s are not committed, or are in the way: %q", e.Path, e.Files)
}

// A checkout is a worktree with its git folder.
type checkout struct{ path, admin string }

// checkoutsOf lists the worktrees of a repository that have a branch checked out, or are working on it.
// Worktrees whose folders are gone do not count.
func (e *record) checkoutsOf(ctx context.Context, branch string) (out []checkout, err error) {
	common := e.Common
	// A branch may be an alias of another, as main is of master after git symbolic-ref; git names only the
	// latter.
	same, err := git.Line(ctx, inRepo(common, "for-each-ref", "--format=%(symref:lstrip=2)", "refs/heads/"+branch))
	if err != nil {
		return nil, err
	}
	branch = cmp.Or(same, branch)
	text, err := git.Output(ctx, inRepo(common, "worktree", "list", "--porcelain", "-z"))
	if err != nil {
		return nil, err
	}
	for i, entry := range strings.Split(strings.TrimRight(text, "\x00"), "\x00\x00") {
		lines := strings.Split(entry, "\x00")
		c := checkout{admin: common}
		c.path = filepath.FromSlash(strings.TrimPrefix(lines[0], "worktree "))
		if i > 0 {
			c.admin = adminOf(common, c.path)
		}

		on := false
		for _, line := range lines[1:] {
			on = on || line == "branch refs/heads/"+branch
			if line == "bare" {
				if c.path != common && isThere(filepath.Join(common, "index")) {
					return nil,
						fmt.Errorf("core.bare is true in %s, which has files; this corrects it: git -C %s config "+
							"core.bare false", filepath.Join(common, "config"), session.InShell(common))
				}
				c.admin = "" // its HEAD is only a default
			}
		}
		if c.admin == "" || !isDir(c.path) {
			continue
		}
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
			data, _, _ := durable.Read(filepath.Join(c.admin, filepath.FromSlash(name)), maxGitFile) // usually missing
			on = on || strings.TrimPrefix(strings.TrimSpace(string(data)), "refs/heads/") == branch
		}
		// git knows neither the folder of a submodule nor that of git init --separate-git-dir
		if on && c.path == common {
			text, err := git.Line(ctx, git.Command{
				Dir:  e.Repo,
				Args: []string{"rev-parse", "--absolute-git-dir", "--show-toplevel"},
			})
			if dir, top, _ := strings.Cut(text, "\n"); err == nil && canonical(dir) == common {
				c.path = filepath.FromSlash(top)
			}
		}

		if on {
			out = append(out, c)
		}
	}
	return out, nil
}

// operation returns what is in progress in a worktree, or "".
func (c checkout) operation() string { return git.InProgress(c.admin) }

// untracked is git's status of a file that is in no commit and not ignored.
const untracked = git.Untracked

// changedFiles returns the files that differ from the checked-out commit, by their two-letter git status.
// files selects the untracked ones: all, normal (with folders), no.
func (c checkout) changedFiles(ctx context.Context, files string) (map[string][]string, error) {
	changed, _, err := git.Changes(ctx, c.call(), files)
	return changed, err
}

// conflicts lists the files in loose that have conflicts.
func conflicts(loose map[string][]string) (files []string) {
	for xy, names := range loose {
		if strings.Contains(xy, "U") || xy == "AA" || xy == "DD" {
			files = append(files, names...)
		}
	}
	slices.Sort(files)
	return files
}

// unmerged lists the files with conflicts.
func (c checkout) unmerged(ctx context.Context) ([]string, error) {
	loose, err := c.changedFiles(ctx, "no")
	return conflicts(loose), err
}

// changed lists the tracked files that differ from the checked-out commit, and the untracked ones.
func (c checkout) changed(ctx context.Context) (tracked, others []string, err error) {
	loose, err := c.changedFiles(ctx, "normal")
	for xy, names := range loose {
		if xy != untracked {
			tracked = append(tracked, names...)
		}
	}
	slices.Sort(tracked)
	return tracked, loose[untracked], err
}

func (c checkout) call(args ...string) git.Command { return call(c.path, c.admin, args...) }

// inTheWay lists the files that git names, in lines with a tab, because a merge or switch would overwrite
// them.
func inTheWay(said string) (files []string) {
	for line := range strings.Lines(said) {
		if name, ok := strings.CutPrefix(line, "\t"); ok {
			files = append(files, strings.TrimRight(name, "\r\n"))
		}
	}
	return files
}

// A MarkersError names files of an attempt that have conflict markers.
type MarkersError struct {
	Path  string // the worktree
	Files []string
}

func (e *MarkersError) Error() string {
	return fmt.Sprintf("files in %s have conflict markers: %q", e.Path, e.Files)
}

// noMarkers returns a *MarkersError if the attempt has added conflict markers to files.
func (b *view) noMarkers(ctx context.Context) error {
	c := b.call("diff-tree", "--check", "--no-ext-diff", "--no-textconv", "-r", b.from, b.head)
	c.Config = []string{"core.whitespace=-blank-at-eol,-blank-at-eof,-space-before-tab"}
	r, err := git.Once(ctx, c)
	if err == nil || git.ExitCode(err) != 2 {
		return err
	}

	files := []string{"grep", "--no-color", "-l", "-z", "--all-match", "-e", "^<<<<<<< ", "-e", "^>>>>>>> ",
		b.head, "--"}
	none := len(files)
	for line := range strings.Lines(string(r.Stdout)) {
		where, ok := strings.CutSuffix(strings.TrimSpace(line), ": leftover conflict marker")
		if ok && !strings.HasPrefix(line, "+") {
			name := where[:max(0, strings.LastIndexByte(where, ':'))]
			if path := ":(literal,top)" + name; !slices.Contains(files, path) {
				files = append(files, path)
			}
		}
	}
	if len(files) == none {
		return nil
	}
	found, err := git.Output(ctx, b.call(files...))
	if git.ExitCode(err) == 1 { // only lines such as those below headings
		return nil
	}
	names := git.Fields(found)
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], b.head+":")
	}

	return cmp.Or(err, error(&MarkersError{Path: b.Path, Files: names}))
}
