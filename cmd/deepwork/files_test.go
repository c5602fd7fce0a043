package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// opensItself has the places of the program that open files for reading in another way than by durable, each with its
// reason.
var opensItself = map[string]string{
	"actor/durable":                     "it is the way",
	"actor/process/find_linux.go":       "reads /proc",
	"catalog/standard.go":               "writes only to the state folder, and reads what it wrote",
	"cmd/deepwork/arguments.go":         "reads a file that the user names, as /dev/stdin",
	"cmd/deepwork/board_edit.go":        "reads a temporary file of its own",
	"cmd/deepwork/serve.go":             "opens its own standard input again",
	"cmd/deepwork/sessions.go":          "reads only names",
	"gate/near.go":                      "opens the project as a root, to list names",
	"gate/review.go":                    "opens the project as a root, to write copies in it",
	"session/attempt/worktree":          "opens worktrees as roots, and by durable what is in them",
	"session/record/record.go":          "reads only names",
	"session/show/ask.go":               "opens the terminal",
	"session/state/paths.go":            "opens the folder of exports as a root, and others by durable what is in it",
	"session/store/local/inuse_unix.go": "opens the database in the state folder",
	"transport/web/tokens.go":           "reads a file that the user names",
	"session/contain/plan.go":           "settings of the kernel",
}

// writesOnly reports whether an argument opens a file for writing alone.
func writesOnly(arg ast.Expr) (found bool) {
	ast.Inspect(arg, func(n ast.Node) bool {
		f, ok := n.(*ast.SelectorExpr)
		found = found || ok && (f.Sel.Name == "O_WRONLY" || f.Sel.Name == "O_EXCL")
		_, call := n.(*ast.FuncLit)
		return !call
	})
	return found
}

// What lies in a project's or a job's folder may be a link, a pipe or a device: one function opens it.
func TestFilesAreOpenedByOneFunction(t *testing.T) {
	root := filepath.Join("..", "..")
	set := token.NewFileSet()
	used := map[string]bool{}
	opens := []string{"ReadFile", "Open", "OpenFile", "OpenInRoot", "OpenRoot", "DirFS"}
	must(t, walkSources(root, func(name string) error {
		rel := filepath.ToSlash(testkit.Get(filepath.Rel(root, name)).Must(t))
		for _, other := range []string{"_test.go", "test/", "cmd/proof/", "cmd/release/", "actor/testkit/"} {
			if strings.Contains(rel, other) || !strings.HasSuffix(rel, ".go") {
				return nil
			}
		}
		ast.Inspect(testkit.Get(parser.ParseFile(set, name, nil, parser.SkipObjectResolution)).Must(t),
			func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok && slices.ContainsFunc(c.Args, writesOnly) {
					return false
				}
				f, ok := n.(*ast.SelectorExpr)
				if !ok || !slices.Contains(opens, f.Sel.Name) {
					return true
				}
				if of, ok := f.X.(*ast.Ident); !ok || of.Name != "os" {
					return true
				}
				place := rel
				if opensItself[place] == "" {
					place = filepath.ToSlash(filepath.Dir(rel))
				}
				used[place] = true
				testkit.True(t, opensItself[place] != "", "%s opens a file: durable.ReadIn and OpenIn do in a folder, "+
					"durable.Read what is in one of our own", set.Position(n.Pos()))
				return true
			})
		return nil
	}))
	for place := range opensItself {
		testkit.True(t, used[place], "%s opens no file itself any more", place)
	}
}
