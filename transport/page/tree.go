package page

import (
	"path"
	"slices"
	"strings"
)

// A folder is a part of the tree of changed files.
type folder struct {
	Name    string // of a repository, or the path below the folder around it
	Folders []*folder
	Files   []treeFile
}

// A treeFile is a changed file. Its link leads to its changes, in this page or, if they are left out of
// it, in one of their own.
type treeFile struct {
	Name, Link     string
	Added, Removed int
	Here           bool
	Comments       int
}

// add puts a file into the tree by its path.
func (f *folder) add(dir string, file treeFile) {
	for name := range strings.SplitSeq(dir, "/") {
		if name == "" || name == "." {
			continue
		}
		i := slices.IndexFunc(f.Folders, func(sub *folder) bool { return sub.Name == name })
		if i < 0 {
			i = len(f.Folders)
			f.Folders = append(f.Folders, &folder{Name: name})
		}
		f = f.Folders[i]
	}
	f.Files = append(f.Files, file)
}

// join makes one folder of each that has nothing but another.
func (f *folder) join() {
	for i, sub := range f.Folders {
		for len(sub.Files) == 0 && len(sub.Folders) == 1 {
			only := sub.Folders[0]
			only.Name = path.Join(sub.Name, only.Name)
			sub = only
		}
		f.Folders[i] = sub
		sub.join()
	}
}
