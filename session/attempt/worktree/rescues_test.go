package worktree

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// A caller that removes an attempt again, after a crash has cut the answer off, is told
// what was kept all the same.
func TestRescuesAreListedLater(t *testing.T) {
	t.Parallel()
	repo, other, k := newRepo(t), newRepo(t), newKeeper(t)
	trees := []Tree{tree(repo), {RepoID: "r2", Name: "web again", Repo: repo, TargetBranch: "main"}, {RepoID: "r3", Name: "api", Repo: other, TargetBranch: "main"}}
	done := makes(t, k, trees...)
	another := attemptID[:35] + "1"
	testkit.Get(k.Create(t.Context(), another, branchName+"x", trees[:1], nil)).Must(t)
	for _, m := range done[:2] {
		write(t, m.Path, "new", "work in "+m.RepoID)
	}
	write(t, k.folder(attemptID), "notes", "beside")
	want, _, err := k.Remove(t.Context(), attemptID, false, nil)
	testkit.Need(t, err == nil && len(want) == 3, "%+v %v", want, err)
	write(t, filepath.Join(k.folder(another), "web"), "new", "another's")
	_, _, err = k.Remove(t.Context(), another, false, nil)
	must(t, err)
	got := testkit.Get(k.Rescues(t.Context(), attemptID, []string{repo, other, filepath.Join(repo, "lib"), filepath.Join(repo, "gone")})).Must(t)
	testkit.Equal(t, len(got), 3, "listed are %+v", got)
	for _, w := range want {
		w.Repo = repo
		testkit.True(t, slices.Contains(got, w), "%+v is not among %+v", w, got)
	}
	testkit.Same(t, testkit.Get(k.Rescues(t.Context(), attemptID, []string{other})).Must(t), nil)
}

// setTraps has a repository run a program that leaves a mark, by each hook and setting for which git
// starts one, also by those that are included only in some folders or on some branches.
func setTraps(t *testing.T, gitDir, mark, filter string) {
	t.Helper()
	run := "touch " + mark + "; cat"
	named := func(filter string) string {
		return "[filter \"" + filter + "\"]\n\tclean = \"" + run + "\"\n\tsmudge = \"" + run + "\"\n\tprocess = \"" + run + "\"\n\trequired = true\n"
	}
	for _, name := range []string{"included", "in-worktrees", "on-branch"} {
		write(t, gitDir, name, named(name))
	}
	config := read(t, gitDir, "config") + named(filter) + `
[include]
	path = included
[includeIf "gitdir:**/worktrees/**"]
	path = in-worktrees
[includeIf "onbranch:deepwork/**"]
	path = on-branch
[credential]
	helper = "!` + run + `"
[alias]
	lfs = "!` + run + `"
	merge = "!` + run + `"
[hook "own"]
	event = reference-transaction
	event = post-checkout
	command = "` + run + `"
[rebase]
	autoStash = true
[commit]
	gpgSign = true
`
	for section, keys := range map[string]string{`merge "own"`: "driver", "diff": "external", `diff "own"`: "command textconv", "core": "fsmonitor sshCommand askPass editor pager",
		"sequence": "editor", "gpg": "program", `gpg "ssh"`: "program defaultKeyCommand"} {
		for key := range strings.FieldsSeq(keys) {
			config += "[" + section + "]\n\t" + key + ` = "` + run + "\"\n"
		}
	}
	write(t, gitDir, "config", config)
	for _, hook := range []string{"pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit", "post-merge", "post-checkout", "post-index-change",
		"pre-rebase", "post-rewrite", "reference-transaction", "pre-push", "fsmonitor-watchman", "pre-auto-gc"} {
		executable(t, filepath.Join(gitDir, "hooks", hook), "#!/bin/sh\ntouch "+mark+"\n")
	}
}

// Nothing that a repository brings along runs, and what the user's own config has for the same does:
// here it signs.
func TestARepositoryRunsNothing(t *testing.T) {
	needUnix(t)
	mark, users, signer := filepath.Join(t.TempDir(), "mark"), filepath.Join(t.TempDir(), "users"), filepath.Join(t.TempDir(), "sign")
	executable(t, signer, "#!/bin/sh\ntouch "+users+"\necho '[GNUPG:] SIG_CREATED ' >&2\ncat >/dev/null\necho '-----BEGIN PGP SIGNATURE-----'\n")
	asUser(t, "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = "+signer+"\n")
	repo, k := newRepo(t), newKeeper(t)
	write(t, repo, ".gitattributes", "* filter=own merge=own diff=own\nb* filter=included\nc* filter=in-worktrees\nd* filter=on-branch\n")
	gits(t, repo, "submodule --quiet add "+newRepo(t)+" sub", "add -A", "-c commit.gpgSign=false commit -q -m attributes")
	remoteOf(t, repo)
	setTraps(t, filepath.Join(repo, ".git"), mark, "own")

	commitIn := func(dir, name, text string) {
		t.Helper()
		write(t, dir, name, text)
		id := gitIn(t, dir, "hash-object", "-w", "--no-filters", name)
		args := []string{"-c", "commit.gpgSign=false", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "hook.own.enabled=false"}
		for _, filter := range []string{"own", "included", "in-worktrees", "on-branch"} {
			args = append(args, "-c", "filter."+filter+".clean=", "-c", "filter."+filter+".process=", "-c", "filter."+filter+".required=false")
		}
		gitIn(t, dir, append(args, "update-index", "--add", "--cacheinfo", "100644,"+id+","+name)...)
		gitIn(t, dir, append(args, "commit", "-q", "-m", name)...)
		gitIn(t, dir, append(args, "update-index", "--refresh")...)
		os.Remove(mark)
	}
	check := func(what string, err error) {
		t.Helper()
		testkit.Works(t, err, "%s", what)
		testkit.True(t, os.Remove(mark) != nil, "%s: a program of the repository ran", what)
	}
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)
	check("create", err)
	path := done[0].Path
	gits(t, path, "-c core.hooksPath=/dev/null -c core.fsmonitor=false submodule --quiet update --init")
	inside := gitIn(t, filepath.Join(path, "sub"), "rev-parse", "--absolute-git-dir")
	setTraps(t, inside, mark, "of-the-submodule")
	write(t, inside, "info/attributes", "* filter=of-the-submodule\n")
	must(t, os.Chtimes(filepath.Join(path, "sub", "a.txt"), time.Unix(1e9, 0), time.Unix(1e9, 0))) // git would look into it
	os.Remove(mark)
	look := func(what string) {
		t.Helper()
		check("status "+what, testkit.Get(k.Status(t.Context(), path, "", "main")).Err())
		_, _, err := k.Diff(t.Context(), path, "", "main", nil, 0)
		check("diff "+what, err)
	}
	for i, way := range ways {
		commitIn(path, string("abcd"[i])+string(way), "ours\n")
		commitIn(repo, "theirs-"+string(way), "theirs\n")
		look(string(way))
		os.Remove(users)
		check(string(way), notMerged(t, k, path, way))
		testkit.True(t, isThere(users), "%s: the commit is not signed as the user's", way)
	}
	commitIn(path, "d-ours", "ours\n")
	commitIn(repo, "a.txt", "theirs\n")
	check("rebase", testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err())
	commitIn(path, "a.txt", "ours\n")
	commitIn(repo, "a.txt", "theirs again\n")
	got, err := k.Update(t.Context(), landing(path, ""))
	check("update", err)
	testkit.True(t, got != nil && len(got.Conflicts) == 1, "%+v", got)
	look("in a merge")
	check("abort", testkit.Get(k.Abort(t.Context(), path, nil)).Err())
	check("push", testkit.Get(k.Push(t.Context(), path, "origin", false)).Err())
	write(t, path, "b-untracked", "work\n", "a.txt", "changed\n")
	look("with changes")
	kept, _, err := k.Remove(t.Context(), attemptID, false, nil)
	check("remove", err)
	testkit.Need(t, len(kept) == 1, "kept %+v", kept)
	holds(t, repo, kept[0].Commit, "b-untracked", "work\n")
	nothingLeft(t, k)
}

func logged(k *Keeper) *bytes.Buffer {
	var to bytes.Buffer
	k.log = slog.New(slog.NewTextHandler(&to, nil))
	return &to
}

func TestCopiesKeepTheirModesAndAreNotWork(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	write(t, repo, ".env", "SECRET=1", "node_modules/pkg/deep/x.js", "x", "node_modules/pkg/.git/config", "not to be copied", "lib/.env", "lib's")
	modes := map[string]os.FileMode{".env": 0o600, "tool.log": 0o755}
	executable(t, filepath.Join(repo, "tool.log"), "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(repo, ".env"), 0o600))
	log := logged(k)
	path := makes(t, k, tree(repo, ".env", "node_modules/", "tool.log", "missing.env"))[0].Path
	reads(t, path, ".env", "SECRET=1", "node_modules/pkg/deep/x.js", "x")
	testkit.True(t, !isThere(filepath.Join(path, "node_modules/pkg/.git")), "a repository's own files were copied")
	testkit.Contains(t, log.String(), "missing.env", "a missing file was not told")
	for name, mode := range maps.All(modes) {
		testkit.True(t, runtime.GOOS == "windows" || testkit.Get(os.Stat(filepath.Join(path, name))).Must(t).Mode().Perm() == mode, "%s has another mode", name)
	}
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed, nil, "copies count as changes")
	testkit.Equal(t, remove(t, k).Ref, "", "copies were kept")
	// Of a folder inside.
	reads(t, makes(t, k, tree(filepath.Join(repo, "lib"), ".env"))[0].Path, "lib/.env", "lib's")
}

func TestCopiesNeverLeaveTheRepositoryNorTheWorktree(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a right here")
	}
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	write(t, outside, "secret", "secret")
	for name, c := range map[string]struct{ copy, link, to string }{
		"parent":                  {"../x", "", ""},
		"absolute":                {"/etc/passwd", "", ""},
		"all":                     {".", "", ""},
		"git":                     {".git/config", "", ""},
		"git, another case":       {"lib/../.GIT/config", "", ""},
		"symlink to a file":       {"l", "l", secret},
		"symlink on the way":      {"l/secret", "l", outside},
		"symlink into git":        {"l", "l", ".git/config"},
		"symlink in the worktree": {"out/file", "out", outside},
	} {
		t.Run(name, func(t *testing.T) {
			repo, k := newRepo(t), newKeeper(t)
			if c.link != "" {
				link(t, c.to, filepath.Join(repo, c.link))
			}
			if c.link == "out" { // only there, and not in the checkout
				commit(t, repo, "a symlink")
				must(t, os.Remove(filepath.Join(repo, "out")))
				write(t, repo, "out/file", "must not get out")
			}
			expectError(t, notMade(t, k, tree(repo, c.copy)), ErrOutside, c.copy)
			testkit.True(t, !isThere(filepath.Join(outside, "file")), "it was written outside")
			nothingLeft(t, k)
			sound(t, repo, 0)
		})
	}
	t.Run("harmless symlinks", func(t *testing.T) {
		repo, k := newRepo(t), newKeeper(t)
		write(t, repo, "node_modules/real/x", "x")
		link(t, "../real/x", filepath.Join(repo, "node_modules/.bin/x"))
		link(t, secret, filepath.Join(repo, "node_modules/secret"))
		link(t, "node_modules/real/x", filepath.Join(repo, "my.log"))
		commit(t, repo, "tracked", "tracked", "old")
		write(t, repo, "tracked", "copied over")
		log := logged(k)
		path := makes(t, k, tree(repo, "node_modules", "my.log", "tracked"))[0].Path
		testkit.Equal(t, testkit.Get(os.Readlink(filepath.Join(path, "node_modules/.bin/x"))).Must(t), "../real/x", "a symlink inside")
		testkit.True(t, !isThere(filepath.Join(path, "node_modules/secret")), "a symlink that leads outside was copied")
		testkit.Contains(t, log.String(), "leads out")
		reads(t, path, "my.log", "x", "tracked", "copied over")
	})
}
