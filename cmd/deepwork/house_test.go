package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// rooms are the parts of the house from top to bottom (main.go): a
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
	mod := testkit.Get(os.ReadFile(filepath.Join(root, "go.mod"))).Must(t)
	module, _, _ := strings.Cut(strings.TrimPrefix(string(mod), "module "), "\n")
	files, crossed := 0, map[string]bool{}
	must(t, walkSources(root, func(name string) error {
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
			testkit.Equal(t, forbidden(from, to), "", "%s imports %s", name, to)
			if floor(from) != floor(to) {
				crossed[from+" -> "+to] = true
			}
		}
		return nil
	}))
	testkit.True(t, files >= 100 && len(crossed) >= 10, "only %d files with %d imports between rooms were read: is the house still at %s?", files, len(crossed), root)
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

// Nothing offers a command with a person's verdict in it, since an agent that reads it could run it: no message, page,
// document or help. The command has no flags for one.
func TestNoCommandHasAVerdict(t *testing.T) {
	verdict := regexp.MustCompile(`sessions review[^\n]*(?:--(?:pass|fail)\b|(?:STEP|ID|%s|\}\})\]* (?:pass|fail)\b)|--(?:pass|fail)\b[^\n]*--feedback`)
	for _, offered := range []string{"deepwork sessions review ID STEP --pass", "`deepwork sessions review %s %s pass`", "or --fail --feedback TEXT in place of --pass --feedback"} {
		testkit.True(t, verdict.MatchString(offered), "%q is not found", offered)
	}
	files := 0
	must(t, walkSources(filepath.Join("..", ".."), func(name string) error {
		if strings.HasSuffix(name, "_test.go") || !slices.Contains([]string{".go", ".md", ".html", ".json", ".yml", ".js"}, filepath.Ext(name)) {
			return nil
		}
		files++
		text, err := os.ReadFile(name)
		testkit.Equal(t, verdict.FindString(string(text)), "", "%s", name)
		return err
	}))
	testkit.True(t, files >= 300, "only %d files were read", files)
	var a app
	a.sessionsReviewCommand().Flags().VisitAll(func(f *pflag.Flag) {
		testkit.True(t, !slices.Contains([]string{"pass", "fail", "feedback", "yes"}, f.Name), "--%s holds a verdict", f.Name)
	})
}

// TestTopLevel keeps the top level to the rooms: dot files aside, nothing else
// is there.
func TestTopLevel(t *testing.T) {
	want := []string{"go.mod", "go.sum", "README.md", "LICENSE"}
	for _, side := range rooms {
		want = append(want, side...)
	}
	entries := testkit.Get(os.ReadDir(filepath.Join("..", ".."))).Must(t)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(want, e.Name()) {
			t.Errorf("%s is at the top level; expected only %v", e.Name(), want)
		}
	}
}

// decoderKeys sees keys of every kind.
func TestDecoderKeys(t *testing.T) {
	keys := decoderKeys(nil)
	for _, known := range []string{"git.branch", "projects.repos.copy", "executors.*.variants.*.prompt", "http.tokens.rights", "sessions.keep_ended"} {
		testkit.True(t, slices.ContainsFunc(keys, func(path []string) bool { return strings.Join(path, ".") == known }), "the decoder was not seen to know %s", known)
	}
}

// hasKey reports whether a path is in a value; a list has what an item has, and "*" is any entry.
func hasKey(v any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return hasKey(item, path) })
	case map[string]any:
		for name, value := range v {
			if (path[0] == name || path[0] == "*") && hasKey(value, path[1:]) {
				return true
			}
		}
	}
	return false
}

var keysExpected = regexp.MustCompile(`expected a mapping with the keys (.*)`)

// decoderKeys returns the paths of all keys below one. It learns them from the fault of a config that
// has a text in their place. In a path "[]" is an item of a list, and "*" any entry of a mapping.
func decoderKeys(above []string) (all [][]string) {
	fault := faultAt(above)
	in := func(name string) []string { return append(slices.Clone(above), name) }
	if m := keysExpected.FindStringSubmatch(fault); m != nil {
		for key := range strings.SplitSeq(m[1], ", ") {
			all = append(append(all, in(key)), decoderKeys(in(key))...)
		}
	} else if strings.Contains(fault, "expected a mapping of ") {
		all = decoderKeys(in("*"))
	} else if strings.Contains(fault, "expected a list of ") {
		all = decoderKeys(in("[]"))
	}
	for i, path := range all {
		all[i] = slices.DeleteFunc(slices.Clone(path), func(s string) bool { return s == "[]" && len(above) == 0 })
	}
	return all
}

// faultAt returns what is expected in a config in place of the text x at a path, or "".
func faultAt(path []string) string {
	text := "x"
	for _, name := range slices.Backward(path) {
		switch name {
		case "[]":
			text = "[" + text + "]"
		case "*":
			text = "{X: " + text + "}"
		default:
			text = "{" + name + ": " + text + "}"
		}
	}
	_, faults := config.ParseUser("config.yml", []byte(text))
	for _, f := range faults {
		if strings.Contains(f.Message, "; expected ") {
			return f.Message
		}
	}
	return ""
}
