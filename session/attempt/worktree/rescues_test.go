package worktree

import (
	"path/filepath"
	"testing"
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
	done, err := k.Create(t.Context(), attemptID, branchName, trees, nil)
	must(t, err)
	if _, err := k.Create(t.Context(), attemptID[:35]+"1", branchName+"x", trees[:1], nil); err != nil {
		t.Fatal(err)
	}
	for _, m := range done[:2] {
		write(t, m.Path, "new", "work in "+m.RepoID)
	}
	write(t, k.folder(attemptID), "notes", "beside")
	want, _, err := k.Remove(t.Context(), attemptID, false, nil)
	if err != nil || len(want) != 3 {
		t.Fatalf("%+v %v", want, err)
	}
	write(t, filepath.Join(k.folder(attemptID[:35]+"1"), "web"), "new", "another's")
	if _, _, err := k.Remove(t.Context(), attemptID[:35]+"1", false, nil); err != nil {
		t.Fatal(err)
	}
	got, err := k.Rescues(t.Context(), attemptID, []string{repo, other, filepath.Join(repo, "lib"), filepath.Join(repo, "gone")})
	must(t, err)
	found := map[Rescue]bool{}
	for _, g := range got {
		if g.Repo != repo {
			t.Errorf("%+v is in %s", g, g.Repo)
		}
		g.Repo = ""
		found[g] = true
	}
	for _, w := range want {
		if w.Ref != "" && !found[w] {
			t.Errorf("%+v is not among %+v", w, got)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d were kept, and listed are %+v", 3, got)
	}
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
	if r, err := other.Inspect(t.Context(), nil); err != nil || len(r.Findings) > 0 {
		t.Errorf("another's is a fault: %+v, %v", r, err)
	}
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
	if err != nil || len(done) != 1 || done[0].Path != path || read(t, path, "new") != "work" {
		t.Errorf("%+v, %v", done, err)
	}
}
