package worktree

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// setTraps has a repository run a program that leaves a mark, by each hook and setting for which git
// starts one, also by those that are included only in some folders or on some branches.
func setTraps(t *testing.T, gitDir, mark, filter string) {
	t.Helper()
	run := "touch " + mark + "; cat"
	named := func(filter string) string {
		return "[filter \"" + filter + "\"]\n\tclean = " + `"` + run + `"` + "\n\tsmudge = " + `"` + run + `"` + "\n\tprocess = " + `"` + run + `"` + "\n\trequired = true\n"
	}
	for _, name := range []string{"included", "in-worktrees", "on-branch"} {
		write(t, gitDir, name, named(name))
	}
	write(t, gitDir, "config", read(t, gitDir, "config")+named(filter)+`
[include]
	path = included
[includeIf "gitdir:**/worktrees/**"]
	path = in-worktrees
[includeIf "onbranch:deepwork/**"]
	path = on-branch
[merge "own"]
	driver = "`+run+`"
[diff]
	external = "`+run+`"
[diff "own"]
	command = "`+run+`"
	textconv = "`+run+`"
[core]
	fsmonitor = "`+run+`"
	sshCommand = "`+run+`"
	askPass = "`+run+`"
	editor = "`+run+`"
	pager = "`+run+`"
[sequence]
	editor = "`+run+`"
[credential]
	helper = "!`+run+`"
[gpg]
	program = "`+run+`"
[gpg "ssh"]
	program = "`+run+`"
	defaultKeyCommand = "`+run+`"
[alias]
	lfs = "!`+run+`"
	merge = "!`+run+`"
[hook "own"]
	event = reference-transaction
	event = post-checkout
	command = "`+run+`"
[rebase]
	autoStash = true
[commit]
	gpgSign = true
`)
	for _, hook := range []string{"pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit", "post-merge", "post-checkout", "post-index-change",
		"pre-rebase", "post-rewrite", "reference-transaction", "pre-push", "fsmonitor-watchman", "pre-auto-gc"} {
		write(t, gitDir, "hooks/"+hook, "#!/bin/sh\ntouch "+mark+"\n")
		must(t, os.Chmod(filepath.Join(gitDir, "hooks", hook), 0o755))
	}
}

// Nothing that a repository brings along runs, and what the user's own config has for the same does:
// here it signs.
func TestARepositoryRunsNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are for a Unix shell")
	}
	mark, users := filepath.Join(t.TempDir(), "mark"), filepath.Join(t.TempDir(), "users")
	signer := filepath.Join(t.TempDir(), "sign")
	write(t, filepath.Dir(signer), "sign", "#!/bin/sh\ntouch "+users+"\necho '[GNUPG:] SIG_CREATED ' >&2\ncat >/dev/null\necho '-----BEGIN PGP SIGNATURE-----'\n")
	must(t, os.Chmod(signer, 0o755))
	asUser(t, "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = "+signer+"\n")

	repo, sub, remote := newRepo(t), newRepo(t), filepath.Join(t.TempDir(), "remote.git")
	plain := func(dir string, args ...string) string {
		t.Helper()
		return gitIn(t, dir, append([]string{"-c", "commit.gpgSign=false"}, args...)...)
	}
	write(t, repo, ".gitattributes", "* filter=own merge=own diff=own\nb* filter=included\nc* filter=in-worktrees\nd* filter=on-branch\n")
	plain(repo, "submodule", "--quiet", "add", sub, "sub")
	plain(repo, "add", "-A")
	plain(repo, "commit", "-q", "-m", "attributes")
	plain(repo, "clone", "-q", "--bare", repo, remote)
	plain(repo, "remote", "add", "origin", remote)
	setTraps(t, filepath.Join(repo, ".git"), mark, "own")

	k, _ := newKeeper(t)
	path := ""
	commitIn := func(dir, name, text string) {
		t.Helper()
		write(t, dir, name, text)
		id := plain(dir, "hash-object", "-w", "--no-filters", name)
		args := []string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "hook.own.enabled=false"}
		for _, filter := range []string{"own", "included", "in-worktrees", "on-branch"} {
			args = append(args, "-c", "filter."+filter+".clean=", "-c", "filter."+filter+".process=", "-c", "filter."+filter+".required=false")
		}
		plain(dir, append(args, "update-index", "--add", "--cacheinfo", "100644,"+id+","+name)...)
		plain(dir, append(args, "commit", "-q", "-m", name)...)
		plain(dir, append(args, "update-index", "--refresh")...)
		os.Remove(mark)
	}
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if isThere(mark) {
			t.Errorf("%s: a program of the repository ran", what)
			os.Remove(mark)
		}
	}
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)
	check("create", err)
	path = done[0].Path
	gitIn(t, path, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "submodule", "--quiet", "update", "--init")
	inside := gitIn(t, filepath.Join(path, "sub"), "rev-parse", "--absolute-git-dir")
	setTraps(t, inside, mark, "of-the-submodule")
	write(t, inside, "info/attributes", "* filter=of-the-submodule\n")
	must(t, os.Chtimes(filepath.Join(path, "sub", "a.txt"), time.Unix(1e9, 0), time.Unix(1e9, 0))) // git would look into it
	os.Remove(mark)
	look := func(what string) {
		t.Helper()
		_, err := k.Status(t.Context(), path, "", "main")
		check("status "+what, err)
		_, _, err = k.Diff(t.Context(), path, "", "main", nil, 0)
		check("diff "+what, err)
	}
	for i, way := range ways {
		commitIn(path, string("abcd"[i])+string(way), "ours\n")
		commitIn(repo, "theirs-"+string(way), "theirs\n")
		look(string(way))
		os.Remove(users)
		_, err := k.Merge(t.Context(), landing(path, way))
		check(string(way), err)
		if !isThere(users) {
			t.Errorf("%s: the commit is not signed as the user's", way)
		}
	}
	commitIn(path, "d-ours", "ours\n")
	commitIn(repo, "a.txt", "theirs\n")
	_, err = k.Rebase(t.Context(), landing(path, ""))
	check("rebase", err)
	commitIn(path, "a.txt", "ours\n")
	commitIn(repo, "a.txt", "theirs again\n")
	got, err := k.Update(t.Context(), landing(path, ""))
	if check("update", err); got == nil || len(got.Conflicts) != 1 {
		t.Errorf("%+v", got)
	}
	look("in a merge")
	_, err = k.Abort(t.Context(), path, nil)
	check("abort", err)
	_, err = k.Push(context.Background(), path, "origin", false)
	check("push", err)
	write(t, path, "b-untracked", "work\n")
	write(t, path, "a.txt", "changed\n")
	look("with changes")
	kept, _, err := k.Remove(t.Context(), attemptID, false, nil)
	if check("remove", err); len(kept) != 1 || show(t, repo, kept[0].Commit, "b-untracked") != "work\n" {
		t.Errorf("kept %+v", kept)
	}
	nothingLeft(t, k)
}
