package backend

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"

	"github.com/google/go-cmp/cmp"
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
	drivers := regexp.MustCompile(`^(modernc\.org/sqlite|github\.com/jackc/pgx/v5)(/|$)`)
	got := map[string][]string{}
	parsed(t, "", func(dir string, file *ast.File) {
		if strings.HasPrefix(dir, "cmd/proof") || strings.HasSuffix(dir, "test") { // they break databases, or are for tests
			return
		}
		for _, i := range file.Imports {
			path := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), "deepwork/")
			if m := drivers.FindStringSubmatch(path); m != nil {
				path = m[1]
			} else if !strings.HasPrefix(path, "session/store/postgres") && !strings.HasPrefix(path, "session/store/local") {
				continue
			}
			if !slices.Contains(got[path], dir) {
				got[path] = append(got[path], dir)
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
	testkit.Equal(t, cmp.Diff(want, got), "", "importers (-want +got)")
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
			if text != "" {
				words++
			}
			testkit.True(t, !names.MatchString(text), "%s names a database: %.100s", dir, text)
			return true
		})
	})
	testkit.True(t, words >= 5000, "only %d names and texts were looked at", words)
}
