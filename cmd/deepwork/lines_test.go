package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"deepwork/actor/testkit"
)

// maxColumns bounds the lines of Go files, in which a tab counts as four columns.
const maxColumns = 120

// Code is read in lines: they are not longer than a window is wide, and each has one statement.
func TestLinesAreReadable(t *testing.T) {
	testkit.Must(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text := string(testkit.Get(os.ReadFile(path)).Must(t))
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > maxColumns {
				t.Errorf("%s:%d has %d columns, and at most %d are read well: break the line", path, i+1, n, maxColumns)
			}
		}

		files := token.NewFileSet()
		ast.Inspect(testkit.Get(parser.ParseFile(files, path, text, 0)).Must(t), func(n ast.Node) bool {
			block, ok := n.(*ast.BlockStmt)
			if !ok {
				return true
			}
			for i := 1; i < len(block.List); i++ {
				here, before := files.Position(block.List[i].Pos()), files.Position(block.List[i-1].End())
				if here.Line == before.Line {
					t.Errorf("%s:%d has two statements: put the second on a line of its own", path, here.Line)
				}
			}

			return true
		})

		return nil
	}))
}
