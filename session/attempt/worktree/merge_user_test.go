package worktree

import (
	"context"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// Commits are signed with the user's ssh key, with the identity that the user's config has for the
// repository's folder.
func TestMergeSignsAsTheUser(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Skipf("ssh-keygen: %v %s", err, out)
	}
	allowed, included := filepath.Join(t.TempDir(), "allowed"), filepath.Join(t.TempDir(), "work")
	testkit.Write(t, allowed, "una@work.example "+read(t, key+".pub"))
	testkit.Write(t, included, "[user]\n\temail = una@work.example\n")
	for _, way := range ways {
		repo := newRepo(t)
		k, path := attemptIn(t, repo)
		write(t, repo, "meanwhile", "x\n")
		commit(t, repo, "meanwhile")
		asUser(t, "\tsigningKey = "+filepath.ToSlash(key)+".pub\n[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tallowedSignersFile = "+filepath.ToSlash(allowed)+
			"\n[includeIf \"gitdir:"+filepath.ToSlash(canonical(repo))+"/\"]\n\tpath = "+filepath.ToSlash(included)+"\n")
		testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t)
		testkit.Equal(t, gitIn(t, repo, "show", "-s", "--format=%G? %ce", "main"), "G una@work.example", "%s: the signature and committer", way)
	}
}

// Pushing asks the user's credential helper, and none of the repository's.
func TestPushHasTheUsersCredentials(t *testing.T) {
	home := testkit.Get(exec.Command("git", "--exec-path").Output()).Must(t)
	backend := filepath.Join(strings.TrimSpace(string(home)), "git-http-backend")
	if !isThere(backend) {
		t.Skip(backend + " is not installed")
	}
	repo, folder, mark := newRepo(t), t.TempDir(), filepath.Join(t.TempDir(), "mark")
	remote := filepath.Join(folder, "remote.git")
	gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
	gitIn(t, remote, "config", "http.receivepack", "true")
	web := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, word, _ := r.BasicAuth(); user != "una" || word != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		web.ServeHTTP(w, r)
	}))
	defer server.Close()
	gitIn(t, repo, "remote", "add", "origin", server.URL+"/remote.git")
	k, path := attemptIn(t, repo)
	gitIn(t, repo, "config", "credential.helper", "!touch "+mark+"; echo username=eve; echo password=x")
	asUser(t, "")
	if _, err := k.Push(t.Context(), path, "origin", false); err == nil || isThere(mark) {
		t.Fatalf("pushed without credentials, or with the repository's: %v", err)
	} else {
		t.Log(err)
	}
	asUser(t, "[credential]\n\thelper = \"!f() { echo username=una; echo password=secret; }; f\"\n")
	if _, err := k.Push(t.Context(), path, "origin", false); err != nil || isThere(mark) {
		t.Fatal(err)
	}
	testkit.Equal(t, gitIn(t, remote, "rev-parse", branchName), gitIn(t, path, "rev-parse", "HEAD"), "it was not pushed")
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
	asUser(t, "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n")
	for _, way := range ways {
		repo, remote := newRepo(t), filepath.Join(t.TempDir(), "remote.git")
		write(t, repo, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
		write(t, repo, "one.bin", "\x00first")
		commit(t, repo, "lfs")
		gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
		gitIn(t, repo, "remote", "add", "origin", "file://"+filepath.ToSlash(remote))
		k, path := attemptIn(t, repo)
		write(t, path, "two.bin", "\x00second")
		commit(t, path, "second")
		write(t, repo, "three.bin", "\x00third")
		commit(t, repo, "third")
		testkit.Get(k.Push(t.Context(), path, "origin", false)).Must(t)
		pointer := gitIn(t, path, "show", "HEAD:two.bin")
		_, id, _ := strings.Cut(pointer, "sha256:")
		if id = id[:64]; !isThere(filepath.Join(remote, "lfs", "objects", id[:2], id[2:4], id)) {
			t.Error("the object of two.bin was not pushed")
		}
		testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t)
		for name, want := range map[string]string{"one.bin": "\x00first", "two.bin": "\x00second", "three.bin": "\x00third"} {
			testkit.Equal(t, read(t, repo, name), want, "%s: %s", way, name)
		}
		clean(t, repo, path)
		if way != WayMerge { // conflicts are those of an update, whichever way follows
			continue
		}
		write(t, path, "one.bin", "\x00ours")
		commit(t, path, "ours")
		write(t, repo, "one.bin", "\x00theirs")
		commit(t, repo, "theirs")
		testkit.Same(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t).Conflicts, []string{"one.bin"})
		if _, err := k.Abort(t.Context(), path, nil); err != nil || read(t, path, "one.bin") != "\x00ours" {
			t.Errorf("after abort: %q, %v", read(t, path, "one.bin"), err)
		}
		clean(t, path)
	}
}

// A conflict that git resolves by itself, as the user's config has it, is still a conflict to look at.
func TestUpdateWithRerere(t *testing.T) {
	asUser(t, "[rerere]\n\tenabled = true\n\tautoUpdate = true\n")
	repo := newRepo(t)
	k, path := attemptIn(t, repo)
	write(t, repo, "a.txt", "one\ntwo\nother\n")
	commit(t, repo, "theirs")
	for range 2 {
		got, err := k.Update(t.Context(), landing(path, ""))
		testkit.Need(t, err == nil && strings.Join(got.Conflicts, " ") == "a.txt", "%+v, %v", got, err)
		write(t, path, "a.txt", "one\ntwo\nboth\n")
		commit(t, path, "resolved")
		gitIn(t, path, "reset", "-q", "--hard", "HEAD~1")
	}
	_, err := k.Rebase(t.Context(), landing(path, ""))
	refused, is := errors.AsType[*ConflictError](err)
	testkit.True(t, is && strings.Join(refused.Files, " ") == "a.txt", "rebase: %v", err)
}

// A target in two worktrees is refused: only one of them could be moved.
func TestMergeIntoTwoCheckouts(t *testing.T) {
	t.Parallel()
	repo, second := newRepo(t), filepath.Join(t.TempDir(), "second")
	gitIn(t, repo, "worktree", "add", "-q", "--force", second, "main")
	k, path := attemptIn(t, repo)
	_, err := k.Merge(t.Context(), landing(path, WayMerge))
	refused, is := errors.AsType[*CheckedOutError](err)
	testkit.Need(t, is && refused.Also == canonical(second), "%v", err)
	expectError(t, err, nil, "switch --detach")
	clean(t, repo, second, path)
	gitIn(t, second, "switch", "-q", "--detach") // as it was told
	if _, err := k.Merge(t.Context(), landing(path, WayMerge)); err != nil || read(t, repo, "new.txt") != "new\n" {
		t.Error(err)
	}
}

// A target that was deleted is neither made again nor replaced by another.
func TestMergeIntoATargetThatIsGone(t *testing.T) {
	asUser(t, "")
	repo := newRepo(t)
	k, path := attemptIn(t, repo)
	gitIn(t, repo, "checkout", "-q", "-b", "elsewhere")
	gitIn(t, repo, "branch", "-q", "-D", "main")
	for name, call := range map[string]func(context.Context, Landing) (*Landed, error){"merge": k.Merge, "rebase": k.Rebase, "update": k.Update} {
		testkit.FailsWith(t, testkit.Get(call(t.Context(), landing(path, WayMerge))).Err(), ErrNoBranch, "%s", name)
	}
	testkit.Fails(t, testkit.Get(tryGit(repo, "rev-parse", "--verify", "refs/heads/main")).Err(), "", "main exists again")
	clean(t, repo, path)
}

// The repository's own signing set-up is used as far as it names keys and formats. Its programs do not run; a
// merge names them with the command that allows them, which then works.
func TestField08_TheRepositorysSigning(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	dir := t.TempDir()
	key, mark := filepath.Join(dir, "key"), filepath.Join(dir, "mark")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Skipf("ssh-keygen: %v %s", err, out)
	}
	script := func(name, text string) string {
		testkit.Write(t, filepath.Join(dir, name), "#!/bin/sh\n"+text)
		must(t, os.Chmod(filepath.Join(dir, name), 0o755))
		return filepath.Join(dir, name)
	}
	const signs = "cat >/dev/null\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\nprintf -- '-----BEGIN %s-----\\nby '\"$*\"'\\n-----END %s-----\\n'\n"
	script("gpgsm", strings.ReplaceAll(signs, "%s", "SIGNED MESSAGE"))
	script("gpg", strings.ReplaceAll(signs, "%s", "PGP SIGNATURE"))
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
			repo := newRepo(t)
			k, path := attemptIn(t, repo)
			write(t, repo, "meanwhile", "x\n")
			commit(t, repo, "meanwhile")
			own := script("own", "touch "+mark+"\nexec "+c.program+" \"$@\"\n")
			for name, value := range map[string]string{"gpg.format": format, "user.signingKey": c.key, "commit.gpgSign": "true", c.setting: own, "gpg.other.program": own} {
				gitIn(t, repo, "config", name, value)
			}
			got, err := k.Merge(t.Context(), landing(path, way))
			if err != nil || isThere(mark) || !strings.Contains(gitIn(t, repo, "cat-file", "commit", "main"), c.begins) {
				t.Errorf("%s, %s: the repository's program ran: %v; %v\n%s", format, way, isThere(mark), err, gitIn(t, repo, "cat-file", "commit", "main"))
				continue
			}
			testkit.True(t, len(got.Unused) == 1 && got.Unused[c.setting] == own, "%s, %s: unused are %q", format, way, got.Unused)
			follow(t, errors.New(NotRun(got.Unused)), "in your own: ", "\n")
			testkit.Age(os.Getenv("GIT_CONFIG_GLOBAL"))
			write(t, path, "more", "x\n")
			gitIn(t, path, "-c", "commit.gpgSign=false", "add", "more")
			gitIn(t, path, "-c", "commit.gpgSign=false", "commit", "-q", "-m", "more")
			if got, err := k.Merge(t.Context(), landing(path, WayMerge)); err != nil || len(got.Unused) > 0 || !isThere(mark) {
				t.Errorf("%s, %s, after the command: %+v, %v; it ran: %v", format, way, got, err, isThere(mark))
			}
		}
	}
	// Where signing fails without the program, the error says so.
	repo := newRepo(t)
	asUser(t, "")
	k, path := attemptIn(t, repo)
	asUser(t, "[commit]\n\tgpgSign = true\n")
	gitIn(t, repo, "config", "gpg.format", "ssh")
	gitIn(t, repo, "config", "user.signingKey", filepath.Join(dir, "missing"))
	gitIn(t, repo, "config", "gpg.ssh.program", "/opt/sign")
	before := tip(repo, "main")
	expectError(t, testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Err(), nil, "git config --global gpg.ssh.program \"/opt/sign\"")
	testkit.Equal(t, tip(repo, "main"), before, "it was merged")
}
