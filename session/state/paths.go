package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Tmp is the folder of exported sessions and review files, inside the project.
func (f *Folder) Tmp() string { return filepath.Join(f.Root, ".deepwork", "tmp") }

// ExportName is the name of the export of a session in Tmp.
func ExportName(sessionID string) string { return "session_" + sessionID + ".json" }

// OwnTmp returns an error if a link in the project leads from Tmp to a folder outside the project; then
// nothing is written there.
func (f *Folder) OwnTmp() error {
	for _, dir := range []string{filepath.Dir(f.Tmp()), f.Tmp()} {
		fi, err := os.Lstat(dir)
		if err != nil || fi.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if real, err := resolved(f.Tmp()); err == nil && !within(f.Root, real) {
			return fmt.Errorf("%s is a link that leads out of the project: remove it", dir)
		}
	}
	return nil
}

// OpenTmp opens Tmp, which must exist, for writing. Unlike the path, the opened root never leads elsewhere,
// even if a link replaces Tmp.
func (f *Folder) OpenTmp() (*os.Root, error) {
	if err := f.OwnTmp(); err != nil {
		return nil, err
	}

	rel := filepath.Join(".deepwork", "tmp")
	if real, err := resolved(f.Tmp()); err == nil && within(f.Root, real) {
		rel, _ = filepath.Rel(f.Root, real) // both paths are absolute
	}
	root, err := os.OpenRoot(f.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenRoot(rel)
}

// Database is the file of the project's SQLite database.
func (f *Folder) Database() string { return filepath.Join(f.Dir, "board.db") }

// CopyLock is locked by a process that copies, replaces or sets aside the database. No server starts
// meanwhile.
func (f *Folder) CopyLock() string { return filepath.Join(f.Servers(), "copy.lock") }

// Servers is the folder of the lock files of the project's servers, and of CopyLock.
func (f *Folder) Servers() string { return filepath.Join(f.Dir, "servers") }

// Worktrees is the folder of the attempts' worktrees, unless the config names another. On Windows, which
// limits the length of paths, its name is short.
func (f *Folder) Worktrees() string {
	if runtime.GOOS == "windows" {
		name := filepath.Base(f.Dir)
		return filepath.Join(f.Base, "w", strings.TrimLeft(name[len(name)-min(len(name), 14):], "-"))
	}
	return filepath.Join(f.Dir, "worktrees")
}

// Around returns the state folder of the project whose worktrees contain a path, and the path below them;
// both are empty if there is none. The state folder need not exist.
func Around(path string) (dir, below string) {
	for up := filepath.Dir(path); up != filepath.Dir(up); up = filepath.Dir(up) {
		switch dir = filepath.Dir(up); {
		case filepath.Base(up) == "worktrees" && filepath.Base(filepath.Dir(dir)) == "projects" &&
			stateName.MatchString(filepath.Base(dir)):
		case runtime.GOOS == "windows" && filepath.Base(dir) == "w":
			found, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "projects", "*"+filepath.Base(up)))
			if len(found) != 1 {
				continue
			}
			dir = found[0]
		default:
			continue
		}

		below, _ = filepath.Rel(up, path) // up is a prefix of path
		return dir, below
	}

	return "", ""
}

// stateName matches the names of state folders, see Name.
var stateName = regexp.MustCompile(`-[0-9a-f]{12}(-[2-9])?$`)

// Logs is the folder of the agents' output.
func (f *Folder) Logs() string { return filepath.Join(f.Dir, "logs") }

// MCP is the folder of the files through which the agents of a run reach its leader, while that runs.
func (f *Folder) MCP(attempt string) string { return filepath.Join(f.Dir, "mcp", attempt) }

// Pages is the folder of what deepwork ui keeps for the next one: logins, as hashes, and locks.
func (f *Folder) Pages() string { return filepath.Join(f.Dir, "pages") }

// The ports of projects: below those that systems give to connections, so that none of these has one.
const firstPort, ports = 20000, 10000

// PagesPort returns the port at which deepwork ui serves pages of the project, and a name for them. Both follow from
// the project's id, which other users do not know, so that none of them waits at the port for a browser's cookie. Pages
// of another store, and those that change nothing, have another port.
func (f *Folder) PagesPort(store, project string, readOnly bool) (port int, name string, err error) {
	id, err := f.ID()
	pages := sha256.Sum256(fmt.Appendf(nil, "pages\n%s\n%q\n%q\n%t", id, store, project, readOnly))
	return firstPort + int(binary.BigEndian.Uint32(pages[:])%ports), fmt.Sprintf("%x", pages[4:8]), err
}

// Notified is the file of what the user was notified of, or was tried to be.
func (f *Folder) Notified() string { return filepath.Join(f.Dir, "notified.json") }

// StandardJobs is the folder into which the bundled jobs are extracted.
func (f *Folder) StandardJobs() string { return filepath.Join(f.Dir, "standard_jobs") }

// Grants is the file of the user's approvals for the project.
func (f *Folder) Grants() string { return filepath.Join(f.Base, "trust", Name(f.Root)+".json") }

// Canonical returns the absolute path, without links, of an existing file or folder.
func Canonical(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// resolved is Canonical for a path whose last elements may be missing.
func resolved(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}

	parent := filepath.Dir(path)
	if !os.IsNotExist(err) || parent == path {
		return "", err
	}
	if fi, lerr := os.Lstat(path); lerr == nil && fi.Mode()&os.ModeSymlink != 0 {
		return "", fmt.Errorf("%s is a link to something that is missing", path)
	}
	if parent, err = resolved(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}

// within reports whether a path is a folder or lies below it; neither may contain links.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
