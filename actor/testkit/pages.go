package testkit

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Page is a README.md: the one at the top of the module, or one of a part.
type Page struct {
	Path string // from the top of the module, with slashes
	Text string
}

// Pages returns the README at the top of the module, whose folder is root, and then those of its parts in lexical order.
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
		if d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		if d.Name() != "README.md" {
			return nil
		}
		data, err := os.ReadFile(path)
		pages = append(pages, Page{filepath.ToSlash(rel), string(data)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pages {
		if p.Path == "README.md" {
			copy(pages[1:], pages[:i])
			pages[0] = p
		}
	}
	if len(pages) < 10 {
		t.Fatalf("%d pages were found in %s; expected at least 10", len(pages), root)
	}
	return pages
}
