package state

import (
	"os"
	"path/filepath"
)

// Upwards returns the project that a folder, an absolute path, is in: the nearest folder at or above it that
// has .deepwork, or state of its own. As git does, it looks no further than the top of the repository, and
// never past the home folder, into another file system, or into the folder of another user. Without a project
// it returns the folder itself. It only reads the disk.
func Upwards(dir string) (project string) {
	first, err := os.Stat(dir)
	home, _ := os.UserHomeDir()
	for at := dir; err == nil; at = filepath.Dir(at) {
		here, err := os.Stat(at)
		if err != nil || !alike(first, here) {
			break
		}
		if own, err := os.Stat(filepath.Join(at, ".deepwork")); err == nil && (at == dir || own.IsDir() && alike(first, own)) {
			return at
		}
		if f, err := Find(at); err == nil && f.id != "" {
			return at
		}
		_, err = os.Lstat(filepath.Join(at, ".git"))
		if of, _ := Around(at); err == nil || of != "" || at == home || at == filepath.Dir(at) {
			break
		}
	}
	return dir
}
