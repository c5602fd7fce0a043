package transport

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// codesFile has the codes of errors, each with what to do. It is the source of the table in TOOLS.md.
const codesFile = "../session/codes/codes.go"

// The constants are the codes that the source gives to errors, and no other.
func TestEveryErrorCodeIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, row := range codeRows(t) {
		if listed[row[0]] || len(row[1]) < 10 {
			t.Errorf("%s: %s is listed twice, or does not say what to do", codesFile, row[0])
		}
		listed[row[0]] = true
	}
	c := codesOf(t, "..")
	for code, at := range c.codes {
		if !listed[code] {
			t.Errorf("%s: add the code %s (%s) and what to do", codesFile, code, at)
		}
		delete(listed, code)
	}
	for code := range listed {
		t.Errorf("%s: no error has the code %s", codesFile, code)
	}
	for _, at := range c.unknown {
		t.Errorf("%s: the test cannot determine the code here: use a constant or a parameter", at)
	}
	for _, at := range c.literals {
		t.Errorf("%s: use the constant of package codes", at)
	}
	if len(c.codes) < 100 {
		t.Errorf("found only %d codes", len(c.codes))
	}
}

// codeRows reads codesFile: each code with its comment.
func codeRows(t *testing.T) (rows [][2]string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), codesFile, nil, parser.ParseComments)
	must(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			code, _ := literal(s.Values[0])
			rows = append(rows, [2]string{code, strings.TrimSpace(s.Comment.Text())})
		}
		return true
	})
	if !slices.IsSortedFunc(rows, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }) {
		t.Errorf("%s is not sorted", codesFile)
	}
	return rows
}

// A sink is a parameter of a function that becomes the code of an error, after a prefix.
type sink struct {
	at     int
	prefix string
}

// A codeFinder finds the codes of errors in parsed source: constants that reach session.Wrong and
// session.NotNow, or a field named code, directly or through parameters and variables.
type codeFinder struct {
	set    *token.FileSet
	sinks  map[string][]sink // by folder + function; of package session without folder
	consts map[string]string // by folder + name
	codes  map[string]string // and where they are first
	// literals are where Wrong and NotNow get a code that is no constant.
	literals map[string]string
	unknown  []string
	more     bool // a sink was added
}

// A place is what an expression is in.
type place struct {
	dir   string
	funcs []*ast.FuncType // innermost last
	names []string        // of funcs; "" if it has none
	body  ast.Node        // of the outermost function
}

func codesOf(t *testing.T, root string) *codeFinder {
	t.Helper()
	c := &codeFinder{set: token.NewFileSet(), consts: map[string]string{}, codes: map[string]string{}, literals: map[string]string{},
		sinks: map[string][]sink{"Wrong": {{}}, "NotNow": {{}}}}
	files := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "proof" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(c.set, path, nil, parser.SkipObjectResolution)
		if err == nil && (f.Name.Name == "session" || slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"deepwork/session"`
		}) || strings.Contains(filepath.ToSlash(path), "session/")) {
			files[filepath.Dir(path)] = append(files[filepath.Dir(path)], f)
		}
		return err
	})
	must(t, err)
	for dir, of := range files {
		for _, f := range of {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.ValueSpec); ok && len(s.Names) == len(s.Values) {
					for i, v := range s.Values {
						if text, ok := literal(v); ok {
							c.consts[dir+s.Names[i].Name] = text
						}
					}
				}
				return true
			})
		}
	}
	for c.more = true; c.more; {
		c.more, c.unknown = false, nil
		for dir, of := range files {
			for _, f := range of {
				for _, d := range f.Decls {
					c.walk(d, place{dir: dir, body: d})
				}
			}
		}
	}
	return c
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// walk examines a declaration, or a function in it.
func (c *codeFinder) walk(n ast.Node, in place) {
	name := ""
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			in.funcs, in.names = append(in.funcs, n.Type), append(in.names, n.Name.Name)
		case *ast.AssignStmt: // refuse := func(code string …
			if id, ok := n.Lhs[0].(*ast.Ident); ok {
				name = id.Name
			}
		case *ast.FuncLit:
			deeper := in
			deeper.funcs, deeper.names = append(slices.Clip(in.funcs), n.Type), append(slices.Clip(in.names), name)
			c.walk(n.Body, deeper)
			return false
		case *ast.CallExpr:
			called := c.called(n.Fun, in)
			if _, is := literal(firstOf(n.Args)); is && (called == "Wrong" || called == "NotNow") {
				at := c.set.Position(n.Pos()).String()
				c.literals[at] = at
			}
			for _, s := range c.sinks[called] {
				if s.at < len(n.Args) {
					c.reach(n.Args[s.at], s.prefix, in)
				}
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(id.Name, "code") {
				unknown := len(c.unknown)
				c.reach(n.Value, "", in)
				c.unknown = c.unknown[:unknown] // other structs have such fields too
			}
		}
		return true
	})
}

// firstOf returns the first of some expressions, or nil.
func firstOf(all []ast.Expr) ast.Expr {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// called returns the key in sinks of a called function.
func (c *codeFinder) called(fun ast.Expr, in place) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return in.dir + "." + f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "session" {
			return f.Sel.Name
		}
		return in.dir + "." + f.Sel.Name
	}
	return ""
}

// reach notes that an expression becomes a code.
func (c *codeFinder) reach(e ast.Expr, prefix string, in place) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, ok := literal(e); ok && c.codes[prefix+text] == "" {
			c.codes[prefix+text] = c.set.Position(e.Pos()).String()
		}
		return
	case *ast.SelectorExpr: // a constant, or a field, which is filled elsewhere
		if x, ok := e.X.(*ast.Ident); ok && x.Name == "codes" {
			if text, ok := c.consts[filepath.Join("..", "session", "codes")+e.Sel.Name]; ok {
				c.codes[prefix+text] = c.set.Position(e.Pos()).String()
				return
			}
		}
		if strings.EqualFold(e.Sel.Name, "code") {
			return
		}
	case *ast.BinaryExpr:
		if text, ok := literal(e.X); ok {
			c.reach(e.Y, prefix+text, in)
			return
		}
	case *ast.Ident:
		if text, ok := c.consts[in.dir+e.Name]; ok {
			c.codes[prefix+text] = c.set.Position(e.Pos()).String()
			return
		}
		for i, f := range slices.Backward(in.funcs) {
			at := 0
			for _, p := range f.Params.List {
				for _, n := range p.Names {
					if n.Name == e.Name {
						key, s := in.dir+"."+in.names[i], sink{at, prefix}
						if !slices.Contains(c.sinks[key], s) {
							c.sinks[key], c.more = append(c.sinks[key], s), true
						}
						return
					}
					at++
				}
			}
		}
		if c.assigned(e, prefix, in) {
			return
		}
	}
	c.unknown = append(c.unknown, fmt.Sprint(c.set.Position(e.Pos())))
}

// assigned notes what is assigned to a variable in the function; it reports false if nothing is.
func (c *codeFinder) assigned(v *ast.Ident, prefix string, in place) (found bool) {
	ast.Inspect(in.body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for i, l := range a.Lhs {
			if id, ok := l.(*ast.Ident); ok && id.Name == v.Name && len(a.Rhs) == len(a.Lhs) {
				found = true
				c.reach(a.Rhs[i], prefix, in)
			}
		}
		return true
	})
	return found
}
