package gate

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"deepwork/actor/durable"
)

// maxNames is the number of names of a folder that Near looks at.
const maxNames = 10_000

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
		rel, err := filepath.Rel(root, fullPath(root, name))
		if name == "" || err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if found := near(dir, filepath.ToSlash(rel)); found != "" {
			if _, _, err := durable.Locate(root, found); err == nil {
				return found
			}
		}
	}

	return ""
}

// near returns the path in a folder whose names are those of rel, or fold to the same.
func near(dir *os.Root, rel string) string {
	at := "."
	for name := range strings.SplitSeq(rel, "/") {
		next := path.Join(at, name)
		if _, err := dir.Lstat(next); err != nil {
			same := sameNames(dir, at, name)
			if len(same) == 0 {
				return ""
			}
			next = path.Join(at, same[0])
		}
		at = next
	}
	return at
}

// sameNames returns the names in a folder that fold to the same as name, sorted.
func sameNames(dir *os.Root, at, name string) []string {
	folder, err := dir.Open(at)
	if err != nil {
		return nil
	}
	defer folder.Close()

	all, _ := folder.Readdirnames(maxNames) // what can be read
	name = fold(name)
	all = slices.DeleteFunc(all, func(other string) bool { return fold(other) != name })
	slices.Sort(all)
	return all
}

// fold returns what names have in common that differ in their case, or in the Unicode form of the same characters.
func fold(name string) string { return norm.NFKC.String(cases.Fold().String(norm.NFKC.String(name))) }
