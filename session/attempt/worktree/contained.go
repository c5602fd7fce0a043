package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
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
	Began     string `json:"began,omitempty"`     // the operation that was in progress in the worktree when it was made
}

// privateOf returns the private folder of a worktree. Nobody else writes to the folder of journals.
func (k *Keeper) privateOf(j *journal, e *record) string {
	return filepath.Join(k.journal, "contained", j.Attempt, e.Name)
}

// attemptRefs returns the prefix of the refs that keep what contained agents of an attempt have beside its branch.
func (j *journal) attemptRefs() string { return "refs/deepwork/attempt/" + j.attemptID() + "/" }

// Contain lets the contained program of a plan work in worktrees of one attempt, with a private git folder for each
// repository. It takes out first what an earlier agent has left. shared means that other agents work in them now, whose
// private folders the program gets.
func (k *Keeper) Contain(ctx context.Context, p *contain.Plan, shared bool, paths ...string) (err error) {
	for _, path := range paths {
		err := k.onWorktree(ctx, path, nil, func(v *view) error { return k.containOne(ctx, p, v, shared) })
		if err != nil {
			return fmt.Errorf("containing an agent in %s: %w", path, err)
		}
	}
	return nil
}

func (k *Keeper) containOne(ctx context.Context, p *contain.Plan, v *view, shared bool) error {
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
	if v.Private == nil || v.Private.Operation == "" && !shared {
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
	v.Private, v.Contained = &private{Tip: tip, Began: git.InProgress(v.admin)}, true
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
