package testkit

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Page is a Markdown file for people: README.md at the top of the module, a page of the documentation, or one for
// contributors.
type Page struct {
	Path string // relative to the top of the module, with slashes
	Text string
}

// Docs is the folder of the documentation for users, relative to the top of the module.
const Docs = "cmd/deepwork/docs/"

// Pages returns README.md of the module, whose folder is root, followed by the other pages in lexical order.
func Pages(t *testing.T, root string) []Page {
	t.Helper()
	var pages []Page
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && rel != "." && d.Name() != ".github" && (strings.HasPrefix(d.Name(), ".") ||
			d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		rel = filepath.ToSlash(rel)
		if d.Name() != "README.md" && d.Name() != "CONTRIBUTING.md" &&
			(!strings.HasPrefix(rel, Docs) || filepath.Ext(rel) != ".md") {
			return nil
		}

		data, err := os.ReadFile(path)
		pages = append(pages, Page{rel, string(data)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	for i, p := range pages {
		if p.Path == "README.md" {
			copy(pages[1:], pages[:i])
			pages[0] = p
			break
		}
	}
	if len(pages) < 10 {
		t.Fatalf("%d pages were found in %s; expected at least 10", len(pages), root)
	}

	return pages
}
