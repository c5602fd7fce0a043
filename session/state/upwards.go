package state

import (
	"os"
	"path/filepath"
)

// Upwards returns the project that a folder, an absolute path, is in: the nearest folder at or above it that
// has .deepwork, or state of its own. As git does, it looks above the folder that a link leads to, no further than
// the top of the repository, and never past the home folder, into another file system, or into the folder of
// another user. If the folder is the project, or there is none, it returns dir as given. It only reads the disk.
func Upwards(dir string) (project string) {
	real, _ := filepath.EvalSymlinks(dir)
	first, err := os.Stat(real) // an error for ""
	home, _ := os.UserHomeDir()
	above, _ := os.Stat(home)
	for at := real; err == nil; at = filepath.Dir(at) {
		here, err := os.Stat(at)
		if err != nil || !alike(first, here) {
			break
		}
		own, err := os.Stat(filepath.Join(at, ".deepwork"))
		found := err == nil && (at == real || own.IsDir() && alike(first, own))
		if f, err := Find(at); found || err == nil && f.id != "" {
			if at == real {
				break
			}
			return at
		}
		_, err = os.Lstat(filepath.Join(at, ".git"))
		if of, _ := Around(at); err == nil || of != "" || os.SameFile(above, here) || at == filepath.Dir(at) {
			break
		}
	}
	return dir
}
