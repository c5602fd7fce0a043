package storetest_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// ids are the ids of what is listed, by name; repos as project/repo.
func ids(t *testing.T, b board) map[string]string {
	t.Helper()
	all := make(map[string]string)
	projects, total, _, err := b.Projects(t.Context(), task.Page{Limit: 100})
	if err != nil || total != len(projects) {
		t.Fatal(projects, total, err)
	}
	for _, p := range projects {
		all[p.Name] = p.ID
		repos, total, _, err := b.Repos(t.Context(), p.ID, task.Page{Limit: 100})
		if err != nil || total != len(repos) {
			t.Fatal(repos, total, err)
		}
		for _, r := range repos {
			all[p.Name+"/"+r.Name] = r.ID
			repo := returned(b.Repo(t.Context(), r.ID)).of(t)
			equal(t, *repo, r, repo.ProjectID, p.ID)
		}
		project := returned(b.Project(t.Context(), p.ID)).of(t)
		equal(t, *project, p)
	}
	return all
}

func resync(t *testing.T, b board, all ...task.ProjectSpec) map[string]string {
	t.Helper()
	testkit.Must(t, b.SyncProjects(t.Context(), all, false))
	return ids(t, b)
}

func project(name string, repos ...string) task.ProjectSpec {
	p := task.ProjectSpec{Name: name}
	for _, r := range repos {
		p.Repos = append(p.Repos, task.RepoSpec{Name: r, Path: abs(r)})
	}
	return p
}

func TestProjectsKeepTheirIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	c := newClock()
	b := openAt(t, path, c.now)
	shop := task.ProjectSpec{Name: "shop", Root: true, Repos: []task.RepoSpec{{Name: "shop", Path: abs("shop")}}}
	was := resync(t, b, shop, project("web", "web", "api"), project("shop", "tool")) // one of the root's name
	if len(slices.Compact(slices.Sorted(maps.Values(was)))) != len(was) {
		t.Fatal(was)
	}
	root := func() task.Project {
		list, _, _, err := b.Projects(t.Context(), task.Page{Limit: 100})
		testkit.Must(t, err)
		return list[slices.IndexFunc(list, func(p task.Project) bool { return p.Root })]
	}
	before := root()
	web := was["web"]
	s := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: web, Title: "kept"}, task.Request{})).of(t)

	c.forward(time.Hour)
	shop.Name = "store" // the folder was renamed, and the other projects are gone
	now := resync(t, b, shop)
	if after := root(); after.ID != before.ID || after.Name != "store" || !after.CreatedAt.Equal(before.CreatedAt) || after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("%+v, was %+v", after, before)
	}
	equal(t, "listed are", len(now), 2, now["store/shop"] == "", false)
	fails(t, second(b.Repo(t.Context(), was["web/api"])), task.ErrNotFound)
	equal(t, taskOf(t, b, s.ID), s)
	if list, total, _, err := b.Tasks(t.Context(), web, "", task.Page{Limit: 5}); err != nil || total != 1 || len(list) != 1 {
		t.Error(list, total, err)
	}
	_, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: web, Title: "x"}, task.Request{})
	equal(t, errors.Is(err, task.ErrNotFound), true, strings.Contains(err.Error(), "no longer in the config"), true)

	testkit.Must(t, b.Close())
	b = openAt(t, path, c.now)
	now = resync(t, b, project("web", "api", "new"), shop)
	equal(t, now["web"], web, now["web/api"], was["web/api"], now["web/web"], "", now["web/new"] == "", false)
	now = resync(t, b, project("web", "web", "api"), shop)
	equal(t, now["web/web"], was["web/web"], now["web/new"], "")
	if _, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: web, Title: "x"}, task.Request{}); err != nil {
		t.Error(err)
	}
}

func TestUnchangedProjectsAreNotWritten(t *testing.T) {
	b, c, p := newBoard(t)
	repos, _, _, err := b.Repos(t.Context(), p.ID, task.Page{Limit: 5})
	testkit.Must(t, err)
	c.forward(time.Hour)
	all := []task.ProjectSpec{root}
	testkit.Must(t, b.SyncProjects(t.Context(), all, false))
	equal(t, rootOf(t, b), p)
	moved := root
	moved.Repos = []task.RepoSpec{{Name: "shop", Path: abs("elsewhere")}}
	resync(t, b, moved)
	got := returned(b.Repo(t.Context(), repos[0].ID)).of(t)
	equal(t, got.Path, abs("elsewhere"), got.UpdatedAt.After(repos[0].UpdatedAt), true, got.CreatedAt, repos[0].CreatedAt)
}

func TestProjectsThatAreNotKnown(t *testing.T) {
	b, _, _ := newBoard(t)
	for what, err := range map[string]error{
		"project": second(b.Project(t.Context(), "nobody")),
		"repo":    second(b.Repo(t.Context(), "nobody")),
		"repos":   last(b.Repos(t.Context(), "nobody", task.Page{Limit: 1})),
	} {
		equal(t, what, errors.Is(err, task.ErrNotFound), true, strings.Contains(err.Error(), `"nobody"`), true)
	}
}
