package worktree

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// asUser gives the user of the test a config of their own.
func asUser(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gitconfig")
	testkit.Write(t, file, "[user]\n\tname = Una User\n\temail = una@example.com\n"+text)
	testkit.Age(file)
	t.Setenv("GIT_CONFIG_GLOBAL", file)
}

// sshKey makes one, or skips the test.
func sshKey(t *testing.T) string {
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Skipf("ssh-keygen: %v %s", err, out)
	}
	return key
}

// Commits are signed with the user's ssh key, with the identity that the user's config has for the repository's folder.
func TestMergeSignsAsTheUser(t *testing.T) {
	key := sshKey(t)
	allowed, included := filepath.Join(t.TempDir(), "allowed"), filepath.Join(t.TempDir(), "work")
	testkit.Write(t, allowed, "una@work.example "+read(t, key+".pub"))
	testkit.Write(t, included, "[user]\n\temail = una@work.example\n")
	for _, way := range ways {
		k, repo, path := worked(t)
		commit(t, repo, "meanwhile", "meanwhile", "x\n")
		asUser(t, "\tsigningKey = "+filepath.ToSlash(key)+".pub\n[commit]\n\tgpgSign = true\n[gpg]\n\tformat = "+
			"ssh\n[gpg \"ssh\"]\n\tallowedSignersFile = "+filepath.ToSlash(allowed)+
			"\n[includeIf \"gitdir:"+filepath.ToSlash(canonical(repo))+"/\"]\n\tpath = "+
			filepath.ToSlash(included)+"\n")
		merged(t, k, path, way)
		testkit.Equal(t, gitIn(t, repo, "show", "-s", "--format=%G? %ce", "main"), "G una@work.example",
			"%s: the signature and committer", way)
	}
}

// Pushing asks the user's credential helper, and none of the repository's.
func TestPushHasTheUsersCredentials(t *testing.T) {
	home := testkit.Get(exec.Command("git", "--exec-path").Output()).Must(t)
	backend := filepath.Join(strings.TrimSpace(string(home)), "git-http-backend")
	if !isThere(backend) {
		t.Skip(backend + " is not installed")
	}
	repo, mark := newRepo(t), filepath.Join(t.TempDir(), "mark")
	remote := remoteOf(t, repo)
	gits(t, remote, "config http.receivepack true")
	web := &cgi.Handler{
		Path: backend,
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(remote), "GIT_HTTP_EXPORT_ALL=1"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, word, _ := r.BasicAuth(); user != "una" || word != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		web.ServeHTTP(w, r)
	}))
	defer server.Close()
	gits(t, repo, "config remote.origin.url "+server.URL+"/remote.git")
	k, path := attemptIn(t, repo)
	gitIn(t, repo, "config", "credential.helper", "!touch "+mark+"; echo username=eve; echo password=x")
	asUser(t, "")
	testkit.Fails(t, testkit.Get(k.Push(t.Context(), path, "origin", false)).Err(), "", "pushed without credentials")

	asUser(t, "[credential]\n\thelper = \"!f() { echo username=una; echo password=secret; }; f\"\n")
	testkit.Get(k.Push(t.Context(), path, "origin", false)).Must(t)
	testkit.True(t, !isThere(mark), "the helper of the repository ran")
	testkit.Equal(t, tip(remote, branchName), tip(path, "HEAD"), "it was not pushed")

	// A config that has LFS, which is not installed, prevents no push of a repository without LFS.
	asUser(t, "[filter \"lfs\"]\n\tprocess = git-lfs filter-process\n")
	bin := t.TempDir()
	must(t, os.Symlink(testkit.Get(exec.LookPath("git")).Must(t), filepath.Join(bin, "git")))
	t.Setenv("PATH", bin)
	gits(t, repo, "config remote.origin.url "+remote)
	commit(t, path, "uses it", ".gitattributes", "*.bin filter=lfs\n")
	testkit.Fails(t, testkit.Get(k.Push(t.Context(), path, "origin", false)).Err(), "'lfs' is not a git command")
	commit(t, path, "does not", ".gitattributes", "*.bin -text\n")
	testkit.Get(k.Push(t.Context(), path, "origin", false)).Must(t)
}

// A push that does not reach its remote says which settings of the repository's config it did not follow, and the
// commands that it proposes allow them.
func TestAPushSaysThatSSHCommandIsNotUsed(t *testing.T) {
	needUnix(t)
	asUser(t, "")
	repo, dir := newRepo(t), t.TempDir()
	remote := remoteOf(t, repo)
	mark := filepath.Join(dir, "mark")
	own := filepath.Join(dir, "own one", "ssh")
	executable(t, own, "#!/bin/sh\ntouch "+mark+"\nshift $(($# - 1))\nexec sh -c \"$1\"\n")
	gits(t, repo, "config remote.origin.url ssh://127.0.0.1:1"+remote)
	gitIn(t, repo, "config", "core.sshCommand", "'"+own+"'")
	gitIn(t, repo, "config", "credential.helper", "own-helper")
	gitIn(t, repo, "config", "http.proxy", "http://127.0.0.1:1")
	k, path := attemptIn(t, repo)
	push := func() error { return testkit.Get(k.Push(t.Context(), path, "origin", false)).Err() }

	err := push()
	testkit.True(t, !isThere(mark), "the repository's program ran")
	testkit.ContainsAll(t, fmt.Sprint(err), []string{
		"Not used to reach the remote: core.sshcommand, credential.helper, http.proxy of the repository's own git",
		"--global credential.helper own-helper && ", "--global http.proxy VALUE"})
	follow(t, err, "in your own: ", "\n")
	testkit.Age(os.Getenv("GIT_CONFIG_GLOBAL"))
	must(t, push())
	testkit.True(t, isThere(mark), "the user's program did not run")

	// Nothing is said of a refusal by the remote.
	executable(t, filepath.Join(remote, "hooks", "pre-receive"), "#!/bin/sh\nexit 1\n")
	commit(t, path, "more", "more", "x")
	err = push()
	testkit.FailsWith(t, err, ErrRejected)
	testkit.True(t, !strings.Contains(err.Error(), "Not used"), "%v", err)
}

// A push to a repository that lies in the project, in a repository of it or among its worktrees is refused, however
// the URL names it: its hooks and its config, which were prepared like the rest, would run.
func TestAPushRunsNoHooksOfARemoteInTheFolder(t *testing.T) {
	needUnix(t)
	asUser(t, "")
	top := t.TempDir()
	mark := filepath.Join(top, "mark")
	k, path := attemptIn(t, newRepo(t))
	repo := testkit.Get(k.load(attemptID)).Must(t).Trees[0].Repo
	k.project = filepath.Join(top, "project")
	prepared := func(at string) {
		gitIn(t, repo, "clone", "-q", "--bare", ".", at)
		executable(t, filepath.Join(at, "hooks", "pre-receive"), "#!/bin/sh\ntouch "+mark+"\n")
	}
	for _, at := range []string{repo, k.project, k.dir, top} {
		prepared(filepath.Join(at, "theirs.git"))
	}
	prepared(filepath.Join(repo, "a\nb"))
	commit(t, path, "more", "more", "x")
	must(t, os.Symlink(filepath.Join(repo, "theirs.git"), filepath.Join(top, "link")))
	push := func() error { return testkit.Get(k.Push(t.Context(), path, "origin", false)).Err() }

	in := "file://" + filepath.ToSlash(repo)
	for given, want := range map[string]string{
		"theirs.git":                             "",
		"./theirs":                               "",
		filepath.Join(repo, "theirs.git"):        "",
		in + "/their%73.git":                     "",
		"file://host" + in[7:] + "/theirs.git/":  "",
		filepath.Join(k.project, "theirs.git"):   "",
		filepath.Join(k.dir, "theirs.git"):       "",
		filepath.Join(top, "link"):               "",
		".":                                      "",
		"short:theirs.git":                       "",
		"~/x":                                    "write the folder in full",
		"a\nb":                                   "a line break",
		"ssh://127.0.0.1:1/" + repo + "/theirs":  "git push:",
		"127.0.0.1:none/../" + repo + "/theirs":  "git push:",
		filepath.Join(top, "nowhere/theirs.git"): "git push:",
	} {
		gits(t, repo, "config core.sshCommand false", "config url."+repo+"/.insteadOf short:")
		gitIn(t, repo, "config", "remote.origin.url", given)
		testkit.Fails(t, push(), cmp.Or(want, "inside "), "pushed to %q", given)
		gitIn(t, repo, "config", "remote.origin.url", "https://127.0.0.1:1/x")
		gitIn(t, repo, "config", "remote.origin.pushurl", given)
		testkit.Fails(t, push(), cmp.Or(want, "inside "), "pushed to %q", given)
		gitIn(t, repo, "config", "--unset", "remote.origin.pushurl")
		testkit.True(t, !isThere(mark), "a hook ran for %q", given)
	}

	// One elsewhere is the user's, and so are its hooks.
	gitIn(t, repo, "config", "remote.origin.url", "theirs.git")
	err := push()
	gitIn(t, repo, "config", "remote.origin.url", filepath.Join(top, "theirs.git"))
	must(t, push())
	testkit.True(t, isThere(mark), "the user's hook did not run")

	must(t, os.Remove(mark))
	gitIn(t, repo, "config", "remote.origin.url", "theirs.git")
	follow(t, err, "push yourself: ", "\n")
	testkit.True(t, isThere(mark), "the command did not push")
}

// needLFS skips a test where git-lfs is not installed, unless DEEPWORK_TEST_LFS_REQUIRED is 1.
func needLFS(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("git", "lfs", "version").CombinedOutput(); err != nil {
		testkit.Need(t, os.Getenv("DEEPWORK_TEST_LFS_REQUIRED") != "1", "git-lfs is not installed: %s", out)
		t.Skip("git-lfs is not installed")
	}
}

// Files of Git LFS are merged, checked out and pushed as with the user's git.
func TestMergeLFS(t *testing.T) {
	needLFS(t)
	asUser(t, "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs "+
		"filter-process\n\trequired = true\n")

	for _, way := range ways {
		repo := newRepo(t)
		commit(t, repo, "lfs", ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n", "one.bin", "\x00first")
		remote := remoteOf(t, repo)
		k, path := attemptIn(t, repo)
		commit(t, path, "second", "two.bin", "\x00second")
		commit(t, repo, "third", "three.bin", "\x00third")
		testkit.Get(k.Push(t.Context(), path, "origin", false)).Must(t)
		_, id, _ := strings.Cut(gitIn(t, path, "show", "HEAD:two.bin"), "sha256:")
		testkit.True(t, isThere(filepath.Join(remote, "lfs", "objects", id[:2], id[2:4], id[:64])),
			"the object of two.bin was not pushed")
		merged(t, k, path, way)
		reads(t, repo, "one.bin", "\x00first", "two.bin", "\x00second", "three.bin", "\x00third")
		clean(t, repo, path)
		if way != WayMerge { // conflicts are those of an update, whichever way follows
			continue
		}
		commit(t, path, "ours", "one.bin", "\x00ours")
		commit(t, repo, "theirs", "one.bin", "\x00theirs")
		testkit.Same(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t).Conflicts, []string{"one.bin"})
		testkit.Get(k.Abort(t.Context(), path, nil)).Must(t)
		reads(t, path, "one.bin", "\x00ours")
		clean(t, path)
	}
}

// A conflict that git resolves by itself, as the user's config has it, is still a conflict to look at.
func TestUpdateWithRerere(t *testing.T) {
	asUser(t, "[rerere]\n\tenabled = true\n\tautoUpdate = true\n")
	k, repo, path := worked(t)
	commit(t, repo, "theirs", "a.txt", "one\ntwo\nother\n")
	for range 2 {
		testkit.Same(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t).Conflicts, []string{"a.txt"})
		commit(t, path, "resolved", "a.txt", "one\ntwo\nboth\n")
		gitIn(t, path, "reset", "-q", "--hard", "HEAD~1")
	}
	refused, ok := errors.AsType[*ConflictError](testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err())
	testkit.True(t, ok && strings.Join(refused.Files, " ") == "a.txt", "rebase: %v", refused)
}

// The repository's own signing set-up is used as far as it names keys and formats. Its programs do not run; a
// merge names them with the command that allows them, which then works.
func TestField08_TheRepositorysSigning(t *testing.T) {
	needUnix(t)
	dir, key := t.TempDir(), sshKey(t)
	mark, own := filepath.Join(dir, "mark"), filepath.Join(dir, "own")
	const signs = "cat >/dev/null\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\nprintf -- '-----BEGIN %s-----\\nby " +
		"'\"$*\"'\\n-----END %s-----\\n'\n"
	executable(t, filepath.Join(dir, "gpgsm"), "#!/bin/sh\n"+strings.ReplaceAll(signs, "%s", "SIGNED MESSAGE"))
	executable(t, filepath.Join(dir, "gpg"), "#!/bin/sh\n"+strings.ReplaceAll(signs, "%s", "PGP SIGNATURE"))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for format, c := range map[string]struct{ setting, key, begins, program string }{
		"ssh":     {"gpg.ssh.program", key + ".pub", "gpgsig -----BEGIN SSH SIGNATURE-----", "ssh-keygen"},
		"x509":    {"gpg.x509.program", "una", "gpgsig -----BEGIN SIGNED MESSAGE-----", "gpgsm"},
		"openpgp": {"gpg.program", "una", "gpgsig -----BEGIN PGP SIGNATURE-----", "gpg"},
	} {
		for _, way := range ways {
			if format != "ssh" && way != WaySquash { // the format does not depend on the way
				continue
			}

			os.Remove(mark)
			asUser(t, "")
			k, repo, path := worked(t)
			commit(t, repo, "meanwhile", "meanwhile", "x\n")
			executable(t, own, "#!/bin/sh\ntouch "+mark+"\nexec "+c.program+" \"$@\"\n")
			for name, value := range map[string]string{
				"gpg.format":        format,
				"user.signingKey":   c.key,
				"commit.gpgSign":    "true",
				c.setting:           own,
				"gpg.other.program": own,
			} {
				gitIn(t, repo, "config", name, value)
			}

			got := merged(t, k, path, way)
			testkit.True(t, !isThere(mark), "%s, %s: the repository's program ran", format, way)
			testkit.Contains(t, gitIn(t, repo, "cat-file", "commit", "main"), c.begins, "%s, %s", format, way)
			testkit.True(t, len(got.Unused) == 1 && got.Unused[c.setting] == own, "%s, %s: unused are %q", format, way,
				got.Unused)
			follow(t, errors.New(NotRun("for signing", got.Unused)), "in your own: ", "\n")
			testkit.Age(os.Getenv("GIT_CONFIG_GLOBAL"))

			write(t, path, "more", "x\n")
			gits(t, path, "-c commit.gpgSign=false add more", "-c commit.gpgSign=false commit -q -m more")
			got = merged(t, k, path, WayMerge)
			testkit.True(t, len(got.Unused) == 0 && isThere(mark), "%s, %s, after the command: %+v", format, way, got)
		}
	}

	// Where signing fails without the program, the error says so.
	asUser(t, "")
	k, repo, path := worked(t)
	asUser(t, "[commit]\n\tgpgSign = true\n")
	gits(t, repo, "config gpg.format ssh", "config user.signingKey "+filepath.Join(dir, "missing"),
		"config gpg.ssh.program /opt/$(sign)")
	before := tip(repo, "main")
	testkit.Fails(t, notMerged(t, k, path, WayMerge), "git config --global gpg.ssh.program '/opt/$(sign)'")
	testkit.Equal(t, tip(repo, "main"), before, "it was merged")
}

// A filter that only the repository's own config has would leave files in another form than the repository's, and
// commit them filtered twice: work there is refused with the commands that allow it, which then works.
func TestField16_TheRepositorysFilters(t *testing.T) {
	needUnix(t)
	asUser(t, "")
	const clean = "config filter.crypt.clean sed${IFS}s/^/E/"
	k, repo, path := worked(t)
	gits(t, repo, clean, "config filter.crypt.smudge sed${IFS}s/^E//", "config filter.crypt.required true")
	merged(t, k, path, WayMerge) // no file has it

	commit(t, repo, "secrets", ".gitattributes", "*.txt filter=crypt\n*.md filter=other\n", "secret.txt", "hello\n")
	stored := gitIn(t, repo, "rev-parse", "main:secret.txt")
	testkit.Equal(t, gitIn(t, repo, "show", "main:secret.txt"), "Ehello")
	const branch = "deepwork/secret-1a2b"
	_, err := k.Create(t.Context(), "secret", branch, []Tree{tree(repo)}, nil)
	testkit.Fails(t, err, "such as a.txt go through the filter crypt of the repository's own git config")
	testkit.Equal(t, tip(repo, branch), "", "a branch was made")

	follow(t, err, "in your own config: ", "\n")
	testkit.Age(os.Getenv("GIT_CONFIG_GLOBAL"))
	all, err := k.Create(t.Context(), "secret", branch, []Tree{tree(repo)}, nil)
	must(t, err)
	path = all[0].Path
	reads(t, path, "secret.txt", "hello\n")
	remoteOf(t, repo)

	// set up later, as by git lfs install --local
	asUser(t, "")
	write(t, path, "more.txt", "more\n")
	_, pushed := k.Push(t.Context(), path, "origin", false)
	for _, refused := range []error{notMerged(t, k, path, WayMerge), k.Commit(t.Context(), path, "x"), pushed} {
		testkit.Fails(t, refused, "git config --global filter.crypt.clean 'sed${IFS}s/^/E/' && ")
	}
	follow(t, pushed, "in your own config: ", "\n")
	testkit.Age(os.Getenv("GIT_CONFIG_GLOBAL"))
	must(t, k.Commit(t.Context(), path, "work"))
	merged(t, k, path, WayMerge)
	testkit.Get(k.Push(t.Context(), path, "origin", false)).Must(t)
	testkit.Equal(t, gitIn(t, repo, "show", "origin/"+branch+":more.txt"), "Emore")
	testkit.Equal(t, gitIn(t, repo, "rev-parse", "main:secret.txt"), stored)
	reads(t, repo, "more.txt", "more\n")

	other := tree(repo)
	other.Setup = []string{"git", "config", "filter.other.process", "x"}
	write(t, repo, "a.md", "x\n")
	gits(t, repo, "add a.md", "commit -q -m more")
	_, err = newKeeper(t).Create(t.Context(), "another", "deepwork/another", []Tree{other}, nil)
	testkit.Fails(t, err, "the filter other of the repository's own")
}

// setTraps has a repository run a program that leaves a mark, by each hook and setting for which git
// starts one, also by those that are included only in some folders or on some branches.
func setTraps(t *testing.T, gitDir, mark, filter string) {
	t.Helper()
	run := "touch " + mark + "; cat"
	named := func(filter string) string {
		return "[filter \"" + filter + "\"]\n\tclean = \"" + run + "\"\n\tsmudge = \"" + run + "\"\n\tprocess = \"" +
			run + "\"\n\trequired = true\n"
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
	for section, keys := range map[string]string{
		`merge "own"`: "driver",
		"diff":        "external",
		`diff "own"`:  "command textconv",
		"core":        "fsmonitor sshCommand askPass editor pager",
		"sequence":    "editor",
		"gpg":         "program",
		`gpg "ssh"`:   "program defaultKeyCommand",
	} {
		for key := range strings.FieldsSeq(keys) {
			config += "[" + section + "]\n\t" + key + ` = "` + run + "\"\n"
		}
	}
	write(t, gitDir, "config", config)
	for _, hook := range []string{"pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit",
		"post-merge", "post-checkout", "post-index-change",
		"pre-rebase", "post-rewrite", "reference-transaction", "pre-push", "fsmonitor-watchman", "pre-auto-gc"} {
		executable(t, filepath.Join(gitDir, "hooks", hook), "#!/bin/sh\ntouch "+mark+"\n")
	}
}

// Nothing that a repository brings along runs, and what the user's own config has for the same does: here it signs.
func TestARepositoryRunsNothing(t *testing.T) {
	needUnix(t)
	mark := filepath.Join(t.TempDir(), "mark")
	users := filepath.Join(t.TempDir(), "users")
	signer := filepath.Join(t.TempDir(), "sign")
	executable(t, signer, "#!/bin/sh\ntouch "+users+
		"\necho '[GNUPG:] SIG_CREATED ' >&2\ncat >/dev/null\necho '-----BEGIN PGP SIGNATURE-----'\n")
	config := "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = " + signer + "\n"
	for _, filter := range []string{"own", "included", "in-worktrees", "on-branch"} { // without which work is refused
		config += "[filter \"" + filter + "\"]\n\tprocess =\n"
	}
	asUser(t, config)
	repo, k := newRepo(t), newKeeper(t)
	write(t, repo, ".gitattributes",
		"* filter=own merge=own diff=own\nb* filter=included\nc* filter=in-worktrees\nd* filter=on-branch\n")
	gits(t, repo, "submodule --quiet add "+newRepo(t)+" sub", "add -A",
		"-c commit.gpgSign=false commit -q -m attributes")
	remoteOf(t, repo)
	setTraps(t, filepath.Join(repo, ".git"), mark, "own")

	commitIn := func(dir, name, text string) {
		t.Helper()
		write(t, dir, name, text)
		id := gitIn(t, dir, "hash-object", "-w", "--no-filters", name)
		args := []string{"-c", "commit.gpgSign=false", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
			"-c", "hook.own.enabled=false"}
		for _, filter := range []string{"own", "included", "in-worktrees", "on-branch"} {
			args = append(args, "-c", "filter."+filter+".clean=", "-c", "filter."+filter+".process=", "-c",
				"filter."+filter+".required=false")
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
	// git would look into it
	must(t, os.Chtimes(filepath.Join(path, "sub", "a.txt"), time.Unix(1e9, 0), time.Unix(1e9, 0)))
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
