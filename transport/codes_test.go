package transport

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// codesFile has the codes of errors, each with what to do. It is the source of the table in TOOLS.md.
const codesFile = "../session/codes/codes.go"

// codeRows reads codesFile: each code with its comment.
func codeRows(t *testing.T) (rows [][2]string) {
	t.Helper()
	for _, s := range codeConstants(t) {
		code, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
		must(t, err)
		rows = append(rows, [2]string{code, strings.TrimSpace(s.Comment.Text())})
	}
	return rows
}

func codeConstants(t *testing.T) (all []*ast.ValueSpec) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), codesFile, nil, parser.ParseComments)
	must(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			all = append(all, s)
		}
		return true
	})
	return all
}

// Each code is listed once, with what to do, and used; errors have no other.
func TestEveryErrorCodeIsListed(t *testing.T) {
	rows := codeRows(t)
	if !slices.IsSortedFunc(rows, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }) || len(rows) < 100 {
		t.Errorf("%s has %d codes, or is not sorted", codesFile, len(rows))
	}
	for i, row := range rows {
		if len(row[1]) < 10 || i > 0 && row[0] == rows[i-1][0] {
			t.Errorf("%s: %s is listed twice, or does not say what to do", codesFile, row[0])
		}
	}
	unused := map[string]string{} // the names, by the code in quotes: some packages have constants of their own
	for _, s := range codeConstants(t) {
		unused[s.Values[0].(*ast.BasicLit).Value] = s.Names[0].Name
	}
	set := token.NewFileSet()
	must(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == filepath.FromSlash(codesFile) {
			return err
		}
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, is := n.X.(*ast.Ident); is && x.Name == "codes" {
					maps.DeleteFunc(unused, func(_, name string) bool { return name == n.Sel.Name })
				}
			case *ast.BasicLit:
				delete(unused, n.Value)
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					name = f.Sel.Name
				case *ast.Ident:
					name = f.Name
				}
				if (name == "Wrong" || name == "NotNow") && len(n.Args) > 1 {
					if l, is := n.Args[0].(*ast.BasicLit); is {
						t.Errorf("%s: use a constant of package codes instead of %s", set.Position(n.Pos()), l.Value)
					}
				}
			}
			return true
		})
		return nil
	}))
	for _, name := range unused {
		t.Errorf("%s: no error has the code %s", codesFile, name)
	}
}
