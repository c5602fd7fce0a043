package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms are the parts of the house from top to bottom (README "The code"): a
// package imports those of its own room and of the rooms below, never above.
// catalog and gate are side by side, and so are those of session.
var rooms = [][]string{{"cmd"}, {"transport"}, {"session"}, {"catalog", "gate"}, {"actor"}}

// floor returns how far from the top the room of a package is, or -1.
func floor(pkg string) int {
	room, _, _ := strings.Cut(pkg, "/")
	return slices.IndexFunc(rooms, func(side []string) bool { return slices.Contains(side, room) })
}

// forbidden says why a package may not import another of the project, or "".
func forbidden(from, to string) string {
	a, b := floor(from), floor(to)
	roomA, _, _ := strings.Cut(from, "/")
	roomB, _, _ := strings.Cut(to, "/")
	switch {
	case a < 0:
		return from + " is in no room of the house"
	case b < 0:
		return to + " is in no room of the house"
	case roomA == "actor" && roomB != "actor":
		return "actor imports nothing of the project but itself"
	case b < a:
		return "imports run down from " + roomB + " to " + roomA + ", not up"
	}
	return ""
}

// TestImportsRunDown reads the imports of every file and keeps the direction of
// the house.
func TestImportsRunDown(t *testing.T) {
	root := filepath.Join("..", "..")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	module, _, _ := strings.Cut(strings.TrimPrefix(string(mod), "module "), "\n")
	files, crossed := 0, map[string]bool{}
	err = walkSources(root, func(name string) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		from := filepath.ToSlash(rel)
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		for _, spec := range f.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(to, module+"/")
			if !ours {
				continue
			}
			if why := forbidden(from, to); why != "" {
				t.Errorf("%s imports %s: %s", name, to, why)
			}
			if floor(from) != floor(to) {
				crossed[from+" -> "+to] = true
			}
		}
		return nil
	})
	must(t, err)
	if files < 100 || len(crossed) < 10 {
		t.Errorf("only %d files with %d imports between rooms were read: is the house still at %s?", files, len(crossed), root)
	}
}

// walkSources calls visit with each file of the project, but for those of tests' data and of other projects.
func walkSources(root string, visit func(name string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return visit(name)
		case name != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "node_modules", "dist"}, d.Name())):
			return fs.SkipDir
		}
		return nil
	})
}

// TestTopLevel keeps the top level to the rooms: dot files aside, nothing else
// is there.
func TestTopLevel(t *testing.T) {
	want := []string{"go.mod", "go.sum", "README.md", "LICENSE"}
	for _, side := range rooms {
		want = append(want, side...)
	}
	entries, err := os.ReadDir(filepath.Join("..", ".."))
	must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(want, e.Name()) {
			t.Errorf("%s is at the top level; expected only %v", e.Name(), want)
		}
	}
}
