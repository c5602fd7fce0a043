package worktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/session/contain"
	"deepwork/session/git"
)

// A contained agent works with a private git folder, which it sees in the place of the repository's. It has copies of
// the refs, and reads the repository's objects. What the agent commits there comes out as a bundle, which git checks:
// no git outside reads the agent's refs, config or objects. A private folder exists from the start of an agent until
// its commits were taken out.

// A private says what the repository had when commits were last taken out of a private folder.
type private struct {
	Tip       string `json:"tip"`                 // of the attempt's branch
	Operation string `json:"operation,omitempty"` // of git that the agent has begun and not finished, such as rebase
}

// privateOf returns the private folder of a worktree. Nobody else writes to the folder of journals.
func (k *Keeper) privateOf(j *journal, e *record) string {
	return filepath.Join(k.journal, "contained", j.Attempt, e.Name)
}

// attemptRefs returns the prefix of the refs that keep what contained agents of an attempt have beside its branch.
func (j *journal) attemptRefs() string { return "refs/deepwork/attempt/" + j.attemptID() + "/" }

// Contain lets the contained program of a plan work in worktrees of one attempt, with a private git folder for each
// repository. It takes out first what an earlier agent has left. No other agent may work in them.
func (k *Keeper) Contain(ctx context.Context, p *contain.Plan, paths ...string) (err error) {
	for _, path := range paths {
		err := k.onWorktree(ctx, path, nil, func(v *view) error { return k.containOne(ctx, p, v) })
		if err != nil {
			return fmt.Errorf("containing an agent in %s: %w", path, err)
		}
	}
	return nil
}

func (k *Keeper) containOne(ctx context.Context, p *contain.Plan, v *view) error {
	dir := k.privateOf(v.journal, v.record)
	if v.Private == nil {
		if err := v.containable(ctx); err != nil {
			return err
		}
	}
	objects, err := objectsOf(filepath.Join(v.Common, "objects"))
	if err != nil {
		return err
	}
	if v.Private == nil || v.Private.Operation == "" {
		if err := k.makePrivate(ctx, v, dir, objects[1:]); err != nil {
			return err
		}
	}

	p.Write(v.Path)
	covered := []string{filepath.Join(v.Path, ".git")}
	for _, at := range []string{v.Path, filepath.Join(v.Path, v.Folder)} {
		if at = filepath.Join(at, ".deepwork"); !slices.Contains(covered, at) {
			covered = append(covered, at)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	p.Read(covered...)
	v.mountPrivate(p, dir, objects)
	return nil
}

// mountPrivate lets a program see a private folder in the place of the repository's, and the repository's objects.
func (e *record) mountPrivate(p *contain.Plan, dir string, objects []string) {
	p.Mounts = append(p.Mounts, contain.Mount{Path: e.Common, Source: dir, Write: true},
		contain.Mount{Path: e.objectsInside(), Source: objects[0]})
	p.Read(objects[1:]...)
}

// objectsInside returns the path of the repository's objects for a contained program.
func (e *record) objectsInside() string { return contain.Objects + "/" + e.Name }

// adminIn returns the folder of the worktree in a private folder.
func (v *view) adminIn(private string) string {
	return filepath.Join(private, "worktrees", filepath.Base(v.admin))
}

// containable returns an error for repositories that do not work with a private folder.
func (v *view) containable(ctx context.Context) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("the repository %s "+format+": run this attempt with contain: off",
			append([]any{v.Repo}, args...)...)
	}
	pointer, _, err := durable.Read(filepath.Join(v.Path, ".git"), maxGitFile)
	if want := "gitdir: " + v.admin; err != nil || strings.TrimSpace(string(pointer)) != want {
		return fmt.Errorf("%s must have the line %q: git worktree repair makes it so", filepath.Join(v.Path, ".git"),
			want)
	}
	if isThere(filepath.Join(v.Path, ".gitmodules")) {
		return refuse("has submodules, which contained agents cannot use yet")
	}
	if isThere(filepath.Join(v.Common, "reftable")) {
		return refuse("keeps its refs in a reftable, which contained agents cannot use yet")
	}
	filtered, err := git.Output(ctx, v.call("ls-files", "-z", "--", ":(top,attr:filter)"))
	if err != nil {
		return err
	}
	if files := git.Fields(filtered); len(files) > 0 {
		return refuse("has files that go through a filter, as those of Git LFS do, such as %s, which contained agents "+
			"cannot use yet", files[0])
	}
	return nil
}

// objectsOf returns a folder of objects, with those of other repositories that it uses.
func objectsOf(dir string) (all []string, err error) {
	all = []string{dir}
	for i := 0; i < len(all); i++ {
		if fi, err := os.Lstat(all[i]); err != nil || !fi.IsDir() {
			return nil, fmt.Errorf("%s must be a folder, and not a link", all[i])
		}
		data, _, err := durable.Read(filepath.Join(all[i], "info", "alternates"), maxGitFile)
		if err != nil && !missing(err) {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			at := strings.TrimSpace(line)
			if at == "" || strings.HasPrefix(at, "#") {
				continue
			}
			if !filepath.IsAbs(at) {
				at = filepath.Join(all[i], at)
			}
			if at = canonical(at); !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	return all, nil
}

// kept are the settings of a repository and its user that a private folder has too.
var kept = []string{
	"user.name", "user.email", "core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.symlinks",
	"core.precomposeunicode", "core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse",
	"extensions.objectformat",
}

// makePrivate makes a private folder in the place of an earlier one. more are further folders of objects.
func (k *Keeper) makePrivate(ctx context.Context, v *view, dir string, more []string) error {
	settings, err := git.Output(ctx, v.call("config", "--list", "-z", "--includes"))
	if err != nil {
		return err
	}
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
	values := map[string]string{}
	for _, setting := range git.Fields(settings) {
		name, value, _ := strings.Cut(setting, "\n")
		if name == "extensions.partialclone" {
			return fmt.Errorf("the repository %s is a partial clone, which contained agents cannot use yet: run this "+
				"attempt with contain: off", v.Repo)
		}
		values[name] = value // the last one counts
	}
	if _, ok := values["extensions.objectformat"]; ok {
		config = strings.Replace(config, "= 0", "= 1", 1)
	}
	for _, name := range kept {
		if value, ok := values[name]; ok {
			section, key, _ := strings.Cut(name, ".")
			config += fmt.Sprintf("[%s]\n\t%s = \"%s\"\n", section, key,
				strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value))
		}
	}

	refs, err := git.Output(ctx, inRepo(v.Common, "for-each-ref",
		"--format=%(if)%(symref)%(then)%(else)%(objectname) %(refname)%(end)",
		"refs/heads", "refs/tags", "refs/remotes", v.journal.attemptRefs()+"heads"))
	if err != nil {
		return err
	}
	packed := &strings.Builder{}
	for line := range strings.Lines(refs) {
		id, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		own, isOwn := strings.CutPrefix(name, v.journal.attemptRefs())
		if ok && isOwn && strings.Contains(refs, " refs/"+own+"\n") {
			continue // the repository has that branch
		} else if isOwn {
			name = "refs/" + own
		}
		if ok {
			fmt.Fprintf(packed, "%s %s\n", id, name)
		}
	}

	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, name := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "worktrees"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	files := map[string]string{
		"config": config, "packed-refs": packed.String(),
		"objects/info/alternates": strings.Join(append([]string{v.objectsInside()}, more...), "\n") + "\n",
	}
	for _, name := range []string{"HEAD", "shallow", "info/exclude", "info/attributes"} {
		data, _, err := durable.Read(filepath.Join(v.Common, name), listLimit)
		if err == nil {
			files[name] = string(data)
		} else if !missing(err) {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := os.CopyFS(v.adminIn(dir), os.DirFS(v.admin)); err != nil {
		return err
	}
	os.Remove(filepath.Join(v.adminIn(dir), "config.worktree")) // it may name programs

	tip, err := branchTip(ctx, v.Common, v.Branch)
	if err != nil {
		return err
	}
	v.Private, v.Contained = &private{Tip: tip}, true
	return k.save(v.journal)
}

// noRepositories returns an error if the branch of contained agents adds another repository, whose own config and hooks
// git follows in a checkout.
func (v *view) noRepositories(ctx context.Context, from, to string) error {
	if !v.Contained {
		return nil
	}
	changes, err := git.Output(ctx, v.call("diff-tree", "-r", "-z", "--raw", "--no-renames", from, to))
	if err != nil {
		return err
	}
	fields := git.Fields(changes)
	for i := 0; i+1 < len(fields); i += 2 {
		was, now, _ := strings.Cut(strings.TrimPrefix(fields[i], ":"), " ")
		if strings.HasPrefix(now, modeRepo) && was != modeRepo {
			return fmt.Errorf("the contained agent has added the repository %q, whose own config git would follow. "+
				"Have it removed from the branch (git rm --cached), or, if you trust it, merge or push the branch "+
				"%s yourself with git", fields[i+1], v.Branch)
		}
	}
	return nil
}

// Take takes the commits of a contained agent, which has ended, out of its private folder, and removes that unless an
// operation of git is in progress in it.
func (k *Keeper) Take(ctx context.Context, path string) error {
	return k.onWorktree(ctx, path, nil, func(v *view) error {
		if v.Private == nil || v.Private.Operation != "" {
			return nil // onWorktree has taken them
		}
		v.Private = nil
		if err := k.save(v.journal); err != nil {
			return err
		}
		return os.RemoveAll(k.privateOf(v.journal, v.record))
	})
}

// takeAll takes out the commits of contained agents in an attempt's worktrees, or in the one at a path. The attempt
// must be locked.
func (k *Keeper) takeAll(ctx context.Context, j *journal, path string) (err error) {
	for _, e := range j.Trees {
		if (path == "" || path == e.Path) && isDir(e.Path) {
			err = errors.Join(err, k.take(ctx, j, e))
		}
	}
	return err
}

// look prints, of the worktree whose folder in the git folder is its argument: HEAD's commit, its branch, the branch's
// commit, and after an empty line a bundle of what the commits in its input do not reach. Commits without a branch
// and stashed ones get refs, by which they are kept.
const look = `
export GIT_DIR="$1" GIT_NO_REPLACE_OBJECTS=1
git rev-parse -q --verify 'HEAD^{commit}' || echo none
git symbolic-ref -q HEAD || echo none
git rev-parse -q --verify "refs/heads/$2^{commit}" || echo none
git symbolic-ref -q HEAD >/dev/null || git update-ref refs/detached HEAD
n=0
for id in $(git rev-parse -q --verify refs/stash >/dev/null && git rev-list -g refs/stash --); do
	git update-ref "refs/stashes/$n" "$id"
	n=$((n + 1))
done
echo
known=$(cat)
new=$(printf '%s\n' "$known" | git rev-list --count --all --stdin) || exit 1
[ "$new" = 0 ] || printf '%s\n' "$known" | git bundle create -q - --all --stdin
`

// maxBundle limits what comes out of a private folder at once, in bytes.
const maxBundle = 8 << 30

// take moves the attempt's branch, and what the worktree has checked out, to where a contained agent has them, and
// keeps its other commits under attemptRefs. The attempt must be locked.
func (k *Keeper) take(ctx context.Context, j *journal, e *record) (err error) {
	if e.Private == nil {
		return nil
	}
	defer wrap(&err, "taking out the commits of the contained agent in %s", e.Path)
	admin, err := e.folder()
	if err != nil || admin == "" {
		return cmp.Or(err, ErrNoWorktree)
	}
	v := &view{record: e, checkout: checkout{e.Path, admin}, journal: j}
	scratch, done, err := k.scratch()
	if err != nil {
		return err
	}
	defer done()
	said, bundle, err := k.lookInside(ctx, v, scratch)
	if err != nil {
		return err
	}
	head, on, tip := said[0], said[1], said[2]

	unlock, err := k.lockRepo(ctx, e.Common)
	if err != nil {
		return err
	}
	defer unlock()
	if bundle != "" {
		c := inRepo(e.Common, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
			bundle, "+refs/*:"+j.attemptRefs()+"*")
		c.Config = []string{"fetch.fsckObjects=true", "transfer.fsckObjects=true"}
		c.Env = []string{"GIT_ALLOW_PROTOCOL=file"}
		if _, err := git.Output(ctx, c); err != nil {
			return fmt.Errorf("git does not accept them: %w", err)
		}
	}
	k.atPoint("fetched " + e.Name)

	own, err := branchTip(ctx, e.Common, e.Branch)
	if err != nil {
		return err
	}
	if tip != "" && tip != own {
		behind, err := isAncestor(ctx, e.Common, tip, own)
		if err != nil {
			return err
		}
		ahead := own == "" || own == e.Private.Tip
		if !ahead && !behind {
			if ahead, err = isAncestor(ctx, e.Common, own, tip); err != nil {
				return err
			}
		}
		if !ahead && !behind {
			return fmt.Errorf("%w: the commits of its contained agent are kept as %sheads/%s. Merge them into the "+
				"branch", ErrMoved, j.attemptRefs(), e.Branch)
		} else if !ahead {
			tip = own // somebody has merged them
		}
	}
	if tip != "" && tip != own {
		c := inRepo(e.Common, "update-ref", "refs/heads/"+e.Branch, tip, cmp.Or(own, strings.Repeat("0", len(tip))))
		if _, err := git.Output(ctx, c); err != nil {
			return err
		}
	}
	k.atPoint("moved " + e.Name)
	was, err := commitOf(ctx, v.call(), "HEAD")
	if err != nil {
		return err
	}
	if err := v.checkOut(ctx, head, on); err != nil {
		return err
	}
	if (head != was || tip != own) && head != "" {
		if _, err := git.Output(ctx, v.call("reset", "--quiet")); err != nil {
			return err
		}
	}
	now := private{Tip: cmp.Or(tip, e.Private.Tip), Operation: git.InProgress(v.adminIn(k.privateOf(j, e)))}
	if now == *e.Private {
		return nil
	}
	e.Private = &now
	return k.save(j)
}

// checkOut makes the worktree have checked out what its agent has, without touching files: the attempt's branch, or a
// commit if it is another branch or none.
func (v *view) checkOut(ctx context.Context, head, on string) error {
	if head == "" {
		return nil
	}
	own := "refs/heads/" + v.Branch
	if on == own {
		_, err := git.Output(ctx, v.call("symbolic-ref", "HEAD", own))
		return err
	}
	_, err := git.Output(ctx, v.call("update-ref", "--no-deref", "HEAD", head))
	return err
}

// idOrNone matches the id of a commit.
var idOrNone = regexp.MustCompile(`^(none|[0-9a-f]{40}|[0-9a-f]{64})$`)

// lookInside runs look in the private folder of a worktree, contained itself. It returns its three lines, "" for none,
// and the file with the bundle, "" if there are no new commits.
func (k *Keeper) lookInside(ctx context.Context, v *view, scratch string) (said [3]string, bundle string, err error) {
	known, err := git.Output(ctx, inRepo(v.Common, "for-each-ref", "--format=^%(objectname)"))
	if err != nil {
		return said, "", err
	}
	p, err := contain.New(v.Common)
	if err != nil {
		return said, "", err
	}
	dir := k.privateOf(v.journal, v.record)
	objects, err := objectsOf(filepath.Join(v.Common, "objects"))
	if err != nil {
		return said, "", err
	}
	p.Alone = true
	v.mountPrivate(p, dir, objects)
	p.Program(gitProgram())

	out, err := os.Create(filepath.Join(scratch, "out"))
	if err != nil {
		return said, "", err
	}
	defer out.Close()
	_, err = p.Run(ctx, process.Spec{
		Command: []string{"/bin/sh", "-c", look, "sh",
			filepath.Join(v.Common, "worktrees", filepath.Base(v.admin)), v.Branch},
		Stdin: []byte(known), Stdout: out, StdoutLimit: maxBundle,
	}, func(contain.Refusal) {})
	if err != nil {
		return said, "", err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return said, "", err
	}
	first := make([]byte, 4096)
	n, _ := io.ReadFull(out, first)
	head, _, ok := bytes.Cut(first[:n], []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) != 3 || !idOrNone.MatchString(lines[0]) || !idOrNone.MatchString(lines[2]) {
		return said, "", fmt.Errorf("git says something unexpected in its private folder: %.300q", head)
	}
	for i, line := range lines {
		if line != "none" {
			said[i] = line
		}
	}
	if _, err := out.Seek(int64(len(head)+2), io.SeekStart); err != nil {
		return said, "", err
	}
	to, err := os.Create(filepath.Join(scratch, "bundle"))
	if err != nil {
		return said, "", err
	}
	size, err := io.Copy(to, out)
	if err = errors.Join(err, to.Close()); err != nil || size == 0 {
		return said, "", err
	}
	return said, to.Name(), nil
}

// gitProgram returns the path of git.
func gitProgram() string {
	path, err := process.Look("git")
	if err != nil {
		return "/usr/bin/git"
	}
	return path
}
