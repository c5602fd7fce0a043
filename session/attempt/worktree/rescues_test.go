package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// A caller that removes an attempt again, after a crash has cut the answer off, is told
// what was kept all the same.
func TestRescuesAreListedLater(t *testing.T) {
	t.Parallel()
	repo, other := newRepo(t), newRepo(t)
	k, _ := newKeeper(t)
	trees := []Tree{
		{RepoID: "r1", Name: "web", Repo: repo, TargetBranch: "main"},
		{RepoID: "r2", Name: "web again", Repo: repo, TargetBranch: "main"},
		{RepoID: "r3", Name: "api", Repo: other, TargetBranch: "main"},
	}
	done := testkit.Get(k.Create(t.Context(), attemptID, branchName, trees, nil)).Must(t)
	testkit.Get(k.Create(t.Context(), attemptID[:35]+"1", branchName+"x", trees[:1], nil)).Must(t)
	for _, m := range done[:2] {
		write(t, m.Path, "new", "work in "+m.RepoID)
	}
	write(t, k.folder(attemptID), "notes", "beside")
	want, _, err := k.Remove(t.Context(), attemptID, false, nil)
	testkit.Need(t, err == nil && len(want) == 3, "%+v %v", want, err)
	write(t, filepath.Join(k.folder(attemptID[:35]+"1"), "web"), "new", "another's")
	if _, _, err := k.Remove(t.Context(), attemptID[:35]+"1", false, nil); err != nil {
		t.Fatal(err)
	}
	got := testkit.Get(k.Rescues(t.Context(), attemptID, []string{repo, other, filepath.Join(repo, "lib"), filepath.Join(repo, "gone")})).Must(t)
	found := map[Rescue]bool{}
	for _, g := range got {
		testkit.Equal(t, g.Repo, repo, "%+v", g)
		g.Repo = ""
		found[g] = true
	}
	for _, w := range want {
		testkit.True(t, w.Ref == "" || found[w], "%+v is not among %+v", w, got)
	}
	testkit.Equal(t, len(got), 3, "were kept, and listed are %+v", got)
	if got, err = k.Rescues(t.Context(), attemptID, []string{other}); err != nil || len(got) > 0 {
		t.Errorf("%+v %v", got, err)
	}
}

// Two projects may have their worktrees in one folder: what the board of one does
// not know is not nobody's.
func TestRecoverLeavesWhatAnotherOwnerMade(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	k.journal = t.TempDir()
	path := create(t, k, repo)
	other := New(Options{Dir: k.dir, Journal: t.TempDir(), Logger: k.log})
	nobody := func(string) bool { return false }
	if did, err := other.Recover(t.Context(), nobody); len(did) > 0 || err != nil || !isThere(filepath.Join(path, "a.txt")) {
		t.Fatalf("it took another's: %v, %v", did, err)
	}
	r := testkit.Get(other.Inspect(t.Context(), nil)).Must(t)
	testkit.True(t, len(r.Findings) == 0, "another's is a fault: %+v", r)
	if did, err := k.Recover(t.Context(), nobody); len(did) != 1 || err != nil || isThere(path) {
		t.Errorf("its own it left: %v, %v", did, err)
	}
}

// What the config says of copies and setup counts while worktrees are made; what
// is made stays what it is.
func TestCreateAgainAfterTheConfigWasEdited(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new", "work")
	edited := tree(repo)
	edited.Copy, edited.Setup = []string{"a.txt"}, []string{"false"}
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{edited}, nil)
	testkit.True(t, err == nil && len(done) == 1 && done[0].Path == path && read(t, path, "new") == "work", "%+v, %v", done, err)
}

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
		testkit.Works(t, err, "%s", what)
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
		testkit.True(t, isThere(users), "%s: the commit is not signed as the user's", way)
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

func TestCopiesKeepTheirModesAndAreNotWork(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, ".env", "SECRET=1")
	write(t, repo, "node_modules/pkg/deep/x.js", "x")
	write(t, repo, "node_modules/pkg/.git/config", "not to be copied")
	write(t, repo, "tool.log", "#!/bin/sh\n")
	os.Chmod(filepath.Join(repo, ".env"), 0o600)
	os.Chmod(filepath.Join(repo, "tool.log"), 0o755)
	k, logged := newKeeper(t)
	tr := tree(repo)
	tr.Copy = []string{".env", "node_modules/", "tool.log", "missing.env"}
	done := testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)).Must(t)
	path := done[0].Path
	testkit.Equal(t, read(t, path, ".env"), "SECRET=1", "a copy is wrong")
	testkit.Equal(t, read(t, path, "node_modules/pkg/deep/x.js"), "x", "a copy is wrong")
	testkit.True(t, !isThere(filepath.Join(path, "node_modules/pkg/.git")), "a repository's own files were copied")
	testkit.Contains(t, logged.String(), "missing.env", "a missing file was not told")
	if runtime.GOOS != "windows" {
		for name, mode := range map[string]os.FileMode{".env": 0o600, "tool.log": 0o755} {
			testkit.Equal(t, testkit.Get(os.Stat(filepath.Join(path, name))).Must(t).Mode().Perm(), mode)
		}
	}
	st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
	testkit.True(t, len(st.Changed) == 0, "copies count as changes: %+v", st)
	testkit.Equal(t, remove(t, k).Ref, "", "copies were kept")
}

func TestCopiesOfAFolderInside(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "lib/.env", "lib's")
	k, _ := newKeeper(t)
	tr := tree(filepath.Join(repo, "lib"))
	tr.Copy = []string{".env"}
	done := testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)).Must(t)
	testkit.Equal(t, read(t, done[0].Path, "lib/.env"), "lib's", "copied")
}

func TestCopiesNeverLeaveTheRepositoryNorTheWorktree(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a right here")
	}
	outside := t.TempDir()
	write(t, outside, "secret", "secret")
	link := func(t *testing.T, target, at string) {
		t.Helper()
		must(t, os.Symlink(target, at))
	}
	for name, c := range map[string]struct {
		copy    string
		prepare func(t *testing.T, repo string)
	}{
		"parent":            {"../x", nil},
		"absolute":          {"/etc/passwd", nil},
		"all":               {".", nil},
		"git":               {".git/config", nil},
		"git, another case": {"lib/../.GIT/config", nil},
		"symlink to a file": {"l", func(t *testing.T, repo string) { link(t, filepath.Join(outside, "secret"), filepath.Join(repo, "l")) }},
		"symlink on the way": {"l/secret", func(t *testing.T, repo string) {
			link(t, outside, filepath.Join(repo, "l"))
		}},
		"symlink into git": {"l", func(t *testing.T, repo string) { link(t, ".git/config", filepath.Join(repo, "l")) }},
		"symlink in the worktree": {"out/file", func(t *testing.T, repo string) {
			link(t, outside, filepath.Join(repo, "out"))
			commit(t, repo, "a symlink")
			os.Remove(filepath.Join(repo, "out"))
			write(t, repo, "out/file", "must not get out")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			repo := newRepo(t)
			if c.prepare != nil {
				c.prepare(t, repo)
			}
			k, _ := newKeeper(t)
			tr := tree(repo)
			tr.Copy = []string{c.copy}
			if _, err := k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil); !errors.Is(err, ErrOutside) || !strings.Contains(err.Error(), c.copy) {
				t.Errorf("got %v", err)
			}
			testkit.True(t, !isThere(filepath.Join(outside, "file")), "it was written outside")
			nothingLeft(t, k)
			sound(t, repo, 0)
		})
	}
	t.Run("harmless symlinks", func(t *testing.T) {
		repo := newRepo(t)
		write(t, repo, "node_modules/real/x", "x")
		link(t, "../real/x", mk(t, repo, "node_modules/.bin")+"/x")
		link(t, filepath.Join(outside, "secret"), filepath.Join(repo, "node_modules/secret"))
		link(t, "node_modules/real/x", filepath.Join(repo, "my.log"))
		write(t, repo, "tracked", "old")
		commit(t, repo, "tracked")
		write(t, repo, "tracked", "copied over")
		k, logged := newKeeper(t)
		tr := tree(repo)
		tr.Copy = []string{"node_modules", "my.log", "tracked"}
		done := testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)).Must(t)
		path := done[0].Path
		testkit.Equal(t, testkit.Get(os.Readlink(filepath.Join(path, "node_modules/.bin/x"))).Must(t), "../real/x", "a symlink inside")
		testkit.True(t, !isThere(filepath.Join(path, "node_modules/secret")) && strings.Contains(logged.String(), "leads out"), "a symlink that leads outside was copied, or silently left out")
		testkit.Equal(t, read(t, path, "my.log"), "x", "a copy is wrong")
		testkit.Equal(t, read(t, path, "tracked"), "copied over", "a copy is wrong")
	})
}

func mk(t *testing.T, repo, dir string) string {
	path := filepath.Join(repo, dir)
	must(t, os.MkdirAll(path, 0o755))
	return path
}
