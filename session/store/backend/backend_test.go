package backend

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/state"
)

// parsed calls f with each file of the program below a folder of the module, as Go parses it.
func parsed(t *testing.T, below string, f func(dir string, file *ast.File)) {
	root := testkit.Get(filepath.Abs("../../..")).Must(t)
	testkit.Must(t, filepath.WalkDir(filepath.Join(root, below), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			dir, _ := filepath.Rel(root, filepath.Dir(path))
			f(filepath.ToSlash(dir), file)
		}
		return err
	}))
}

// Only this package opens databases, each is one package, and only that one uses its driver.
func TestOneImporterOfEachDatabase(t *testing.T) {
	watched := regexp.MustCompile(
		`^(modernc\.org/sqlite|github\.com/jackc/pgx/v5|session/store/(?:postgres|local).*$)(?:/|$)`)
	got := map[string][]string{}
	parsed(t, "", func(dir string, file *ast.File) {
		// they break databases, or are for tests
		if strings.HasPrefix(dir, "cmd/proof") || strings.HasSuffix(dir, "test") {
			return
		}

		for _, i := range file.Imports {
			path := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), "deepwork/")
			m := watched.FindStringSubmatch(path)
			if m != nil && !slices.Contains(got[m[1]], dir) {
				got[m[1]] = append(got[m[1]], dir)
			}
		}
	})

	want := map[string][]string{
		"session/store/local":        {"session/store/backend"},
		"session/store/postgres":     {"session/store/backend"},
		"session/store/local/sqlite": {"session/store/local"},
		"modernc.org/sqlite":         {"session/store/local/sqlite"},
		"github.com/jackc/pgx/v5":    {"session/store/postgres"},
	}
	testkit.Same(t, got, want, "importers")
}

// What the stores do and say in SQL does not name a database, so that none is treated otherwise.
func TestStatementsKnowNoDatabase(t *testing.T) {
	names, words := regexp.MustCompile(`(?i)sqlite|postgres|pgx|mysql`), 0
	parsed(t, "session/store/sqlstore", func(dir string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			text := ""
			switch n := n.(type) {
			case *ast.Ident:
				text = n.Name
			case *ast.BasicLit:
				text = n.Value
			}
			words += min(len(text), 1)
			testkit.True(t, !names.MatchString(text), "%s names a database: %.100s", dir, text)
			return true
		})
	})
	testkit.True(t, words >= 5000, "only %d names and texts were looked at", words)
}

// A flag goes before the environment, and that before the user's config; a project needs a database to be in.
func TestChoices(t *testing.T) {
	const url, own, variable = "postgres://a/flag", "postgres://a/own", "postgres://a/variable"
	worker, here := testkit.Dir(t), ""
	chosen := func(flag, project, env, envProject, own string, want Choice) {
		t.Helper()
		t.Setenv(config.StoreEnv, env)
		t.Setenv(config.ProjectEnv, envProject)
		user := &config.User{Store: own, WorkerProjects: map[string]string{"w": worker}}
		testkit.Equal(t, testkit.Get(Choose(flag, project, user, here)).Must(t), want)
	}
	chosen("", "", "", "", "", Choice{})
	chosen("", "", "", "", own, Choice{URL: own})
	chosen("", "", variable, "", own, Choice{URL: variable})
	chosen(url, "", variable, "", own, Choice{URL: url})
	chosen("", "", "", "b", own, Choice{URL: own, Project: "b"})
	chosen("", "c", "", "b", own, Choice{URL: own, Project: "c"})
	chosen("", "", "", "b", "", Choice{Project: "b"}) // it is for those that have a database
	here = worker
	chosen("", "", "", "", own, Choice{URL: own, Project: "w"})
	chosen("", "", "", "b", own, Choice{URL: own, Project: "b"})
	t.Setenv(config.ProjectEnv, "")
	testkit.Fails(t, testkit.Get(Choose("", "c", &config.User{}, "")).Err(),
		"--project names a project in a database, and none is chosen")
}

// A project in files goes to a backup and back, never to where it is.
func TestCopiesOfFiles(t *testing.T) {
	t.Setenv(state.Env, t.TempDir())
	f, backup := state.Of(t.TempDir()), Choice{File: filepath.Join(t.TempDir(), "backup.db")}
	fails := func(from, to Choice, why string) {
		testkit.Fails(t, testkit.Get(Copy(t.Context(), f, from, to)).Err(), why)
	}
	fails(Choice{}, Choice{}, "both stores are the same")
	fails(backup, backup, "both stores are the same")
	fails(backup, Choice{}, "looking for the backup")
	fails(Choice{}, Choice{URL: "postgres://a:b:c/"}, "")
	fails(Choice{URL: "nothing"}, backup, "")
	stores := testkit.Get(Open(t.Context(), f, Choice{}, false, nil)).Must(t)
	testkit.Must(t, stores.Database.Board().SyncProjects(t.Context(),
		[]task.ProjectSpec{{Name: "shop", Root: true}}, true))
	testkit.Works(t, stores.Close(t.Context()))
	for _, sides := range [][2]Choice{{{}, backup}, {backup, {}}} {
		testkit.Works(t, testkit.Get(Copy(t.Context(), f, sides[0], sides[1])).Err())
	}
	testkit.Works(t, testkit.Get(os.Stat(backup.File)).Err())

	now := testkit.Get(Look(t.Context(), f, Choice{})).Must(t)
	testkit.Equal(t, now.Store, FilesURL)
	testkit.Equal(t, now.Where, f.Database())
	testkit.Equal(t, now.Problem, "")
	testkit.Need(t, len(now.Servers) == 0, "%+v", now)
	testkit.Equal(t, now.Counts["tasks"], 0)

	testkit.Must(t, os.WriteFile(f.Database(), []byte(strings.Repeat("nonsense", 1000)), 0o600))
	testkit.True(t, testkit.Get(Look(t.Context(), f, Choice{})).Must(t).Problem != "",
		"a damaged database has no problem")
	testkit.Works(t, testkit.Get(SetAside(t.Context(), f, time.Now())).Err())
}

func TestNamesOfProjects(t *testing.T) {
	for remote, want := range map[string]string{
		"https://example.com/team/shop.git": "shop",
		"git@example.com:team/shop.git":     "shop",
		"git@example.com:shop":              "shop",
		"https://example.com/team/shop/":    "shop",
		"":                                  "folder",
		".":                                 "folder",
		"/":                                 "folder",
		"///":                               "folder",
	} {
		testkit.Equal(t, nameOf(remote, "/srv/folder"), want, "%s", remote)
	}
}
