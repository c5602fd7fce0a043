package gate

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"deepwork/actor/durable"
)

// Near returns the path, relative to root, of the file that a path which names none was probably meant to name: its
// names differ in their case or Unicode form, or the path has quotes, backticks or the @ of a mention around it. It
// returns "" if there is no such file. root must be resolved.
func Near(root, given string) string {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return ""
	}
	defer dir.Close()

	const around = "`'\"<> \t"
	bare := strings.TrimRight(strings.TrimLeft(given, "@"+around), around)
	for _, name := range []string{given, bare} {
		rel, _ := filepath.Rel(root, fullPath(root, name)) // dir has none outside
		found := near(dir, filepath.ToSlash(rel))
		if _, _, err := durable.Locate(root, found); err == nil {
			return found
		}
	}

	return ""
}

// near returns the path in a folder whose names are those of rel, or differ only in their case or Unicode form.
func near(dir *os.Root, rel string) string {
	at := "."
	for name := range strings.SplitSeq(rel, "/") {
		next := path.Join(at, name)
		if _, err := dir.Lstat(next); err != nil {
			all, _ := fs.ReadDir(durable.FolderFS{Root: dir}, at) // sorted; what can be read
			i := slices.IndexFunc(all, func(other fs.DirEntry) bool {
				return strings.EqualFold(norm.NFKC.String(other.Name()), norm.NFKC.String(name))
			})
			if i < 0 {
				return ""
			}
			next = path.Join(at, all[i].Name())
		}
		at = next
	}
	return at
}
