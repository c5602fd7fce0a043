// Package state knows where a project's state is: outside the project, in a folder of the user that nobody
// else can read (cmd/deepwork/docs/reference/security.md). The project itself only has what people write and
// share, exported sessions, and review files.
//
//	<base>/key                                        the key of the installation
//	<base>/trust/                                     what the user approved
//	<base>/projects/<name>-<12 hex>/project.json      the project's id and path
//	<base>/projects/<name>-<12 hex>/board.db          and what else the methods of Folder name
package state

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"

	"deepwork/actor/durable"
)

// Env moves the state of all projects to another folder, given as an absolute path.
const Env = "DEEPWORK_STATE_DIR"

const (
	projectFile = "project.json"
	maxProject  = 64 << 10 // bytes of a project.json
	maxName     = 40       // characters of a project's name in a path
)

// ErrMissing reports that a project has no state yet.
var ErrMissing = errors.New("the project has no state yet")

// ErrInside reports that a project has no state because the state would be inside the project, for example in
// the home folder.
var ErrInside = errors.New("set " + Env + " to a folder outside of it")

// A Folder is the location of one project's state. Its methods may be called from any goroutine.
type Folder struct {
	Root string // of the project: absolute, without links
	Base string // the folder of all projects' states
	Dir  string // the folder of this project's state

	lacks error // why the state has no place
	found bool  // located by Find; then a temporary folder is not another state of the project

	mu   sync.Mutex
	made bool
	id   string // as in project.json; "" until it is read
}

// A project is the content of project.json.
type project struct {
	ID   string `json:"id"`   // 32 hexadecimal digits; part of each signature
	Path string `json:"path"` // of the project: absolute, without links
	// Dir names the folder next to this one with the state of a project that was moved; "" means this folder.
	Dir string `json:"dir,omitempty"`
}

// Base returns the folder of the state of all projects. It does not touch the disk. Its error says
// which variable to set.
func Base() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("%s is %q; expected an absolute path", Env, dir)
		}
		return filepath.Clean(dir), nil
	}
	dir := os.Getenv("XDG_STATE_HOME")
	if runtime.GOOS == "windows" {
		dir = os.Getenv("LOCALAPPDATA")
	}
	if !filepath.IsAbs(dir) { // XDG specification: a relative path is ignored
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "", fmt.Errorf("there is no place for the state of projects: set %s to an absolute path", Env)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "deepwork"), nil
}

// Find returns the state folder of the project at root, which must exist. It creates nothing, so the state
// may not exist yet. Its errors say which variable to set.
func Find(root string) (*Folder, error) {
	base, err := Base()
	if err != nil {
		return nil, err
	}
	return findIn(base, root)
}

func findIn(base, root string) (*Folder, error) {
	root, err := Canonical(root)
	if err != nil {
		return nil, fmt.Errorf("finding the state of the project: %w", err)
	}
	if !utf8.ValidString(root) { // project.json contains it
		return nil, fmt.Errorf("the path of the project, %q, is not valid UTF-8: rename the folder", root)
	}
	if base, err = resolved(base); err != nil {
		return nil, fmt.Errorf("finding the state of the project: %w", err)
	}
	if within(root, base) {
		return nil, fmt.Errorf("the state would be in %s, which is inside the project %s: %w", base, root, ErrInside)
	}
	if err := private(base); err != nil {
		return nil, err
	}
	f := &Folder{Root: root, Base: base, found: true}
	return f, f.locate()
}

// Open returns the state folder at dir, whose project.json names the project. It is for programs in an
// attempt's workspace, which know only the path of a file in it. It creates nothing. The folder must be the
// one that Find returns for that project, whatever Env says.
func Open(dir string) (*Folder, error) {
	p, err := readProject(dir)
	if err == nil {
		dir, err = Canonical(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the state in %s: %w", dir, err)
	}
	if !filepath.IsAbs(p.Path) {
		return nil, fmt.Errorf("%s names the project %q, which must be an absolute path",
			filepath.Join(dir, projectFile), p.Path)
	}
	f, err := findIn(filepath.Dir(filepath.Dir(dir)), p.Path)
	if err == nil && dir != f.Dir {
		err = fmt.Errorf("%s says that it has the state of %s, which is in %s", filepath.Join(dir, projectFile),
			p.Path, f.Dir)
	}

	return f, err
}

// None returns the state folder of a project whose state has no place, for the reason err. It is empty, and
// Make returns err.
func None(root string, err error) *Folder {
	base := filepath.Join(os.TempDir(), "deepwork-"+rand.Text(), "none") // a path that nobody can guess
	return &Folder{Root: root, Base: base, Dir: filepath.Join(base, "projects", Name(root)), lacks: err}
}

// Of is like Find but returns None if the state has no place.
func Of(root string) *Folder {
	f, err := Find(root)
	if err != nil {
		return None(root, err)
	}
	return f
}

// locate finds the project's folder among those with its name; folders of projects that have moved away do
// not count.
func (f *Folder) locate() error {
	name := Name(f.Root)
	for n := 1; n < 10; n++ {
		f.Dir = filepath.Join(f.Base, "projects", name)
		if n > 1 {
			f.Dir += fmt.Sprintf("-%d", n)
		}
		p, err := readProject(f.Dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case p.Path != f.Root:
			continue
		case p.Dir != "":
			f.Dir = filepath.Join(f.Base, "projects", p.Dir)
			if now, err := readProject(f.Dir); err == nil && now.Path != f.Root {
				continue // the project was moved on from here
			}
		}
		f.id, f.made = p.ID, true
		return private(f.Dir)
	}
	return fmt.Errorf("the folders %s-2 to -9 have the state of other projects; remove what is not needed",
		filepath.Join(f.Base, "projects", name))
}

// Name returns the name of the state folder of a project: the project's name for people, then 12
// hexadecimal digits of the SHA-256 of its path.
func Name(root string) string {
	sum := sha256.Sum256([]byte(root))
	name := strings.Trim(unsafeName.ReplaceAllString(filepath.Base(root), "_"), "._")
	if len(name) > maxName {
		name = name[:maxName]
	}
	return name + "-" + hex.EncodeToString(sum[:6])
}

var unsafeName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// Make creates the folder, for this user only, if it is missing. It blocks for the disk.
func (f *Folder) Make() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lacks != nil {
		return f.lacks
	}

	if f.made {
		if _, err := os.Lstat(f.Dir); err == nil {
			return nil
		}
		f.made = false // somebody removed the folder; later writes must not fail because of that
	}
	if err := f.make(); err != nil {
		return fmt.Errorf("making a folder for the state of the project (%s moves it): %w", Env,
			durable.Explain(err, f.Dir))
	}
	f.made = true
	f.post()
	return nil
}

func (f *Folder) make() error {
	for _, dir := range []string{f.Base, filepath.Dir(f.Dir), f.Dir} {
		if err := (durable.Disk{}).MakeFolder(dir, 0o700); err != nil {
			return err
		}
		if err := private(dir); err != nil {
			return err
		}
	}

	id := f.id
	if id == "" {
		random := make([]byte, 16)
		rand.Read(random) // never fails
		id = hex.EncodeToString(random)
	}
	text, err := json.Marshal(project{ID: id, Path: f.Root})
	if err != nil {
		return err
	}
	if err := putNew(filepath.Join(f.Dir, projectFile), append(text, '\n')); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return err
	}
	p, err := readProject(f.Dir) // another process may have been faster
	if err == nil && p.Path != f.Root {
		err = fmt.Errorf("%s has the state of %s", f.Dir, p.Path)
	}
	f.id = p.ID
	return err
}

// ID returns the id of the project, 32 hexadecimal digits, or ErrMissing if it has none.
func (f *Folder) ID() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.id != "" {
		return f.id, nil
	}

	p, err := readProject(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrMissing
	}
	if err == nil && p.Path == f.Root {
		f.id = p.ID
	}
	return f.id, err
}

// Adopt makes the state of a project that was at old the state of f, its new place. The project must be gone
// from old. f must have no state, or one that according to empty contains nothing and is put aside. follow is
// called before that takes effect, with f at the state's place; it must be repeatable.
func (f *Folder) Adopt(old string, empty func() bool, follow func() error) error {
	if filepath.Clean(old) == f.Root {
		return fmt.Errorf("%s is where the project is now; name the folder that it was moved from", old)
	}
	if _, err := os.Lstat(old); err == nil {
		return fmt.Errorf("there still is something at %s; name the folder that the project was moved from, which "+
			"must be gone", old)
	}
	was := &Folder{Root: filepath.Clean(old), Base: f.Base}
	if err := was.locate(); err != nil {
		return err
	}
	if was.id == "" {
		return fmt.Errorf("there is no state of a project at %q in %s", old, filepath.Join(f.Base, "projects"))
	}

	if _, err := f.ID(); !errors.Is(err, ErrMissing) {
		if err != nil || !strings.HasPrefix(filepath.Base(f.Dir), Name(f.Root)) || !empty() {
			return fmt.Errorf("%s has its own state already, in %s, with its own sessions and board; to use that of "+
				"%s instead, move that state folder away first", f.Root, f.Dir, old)
		}
		if err := os.Rename(f.Dir, filepath.Join(f.Base, filepath.Base(f.Dir)+"-empty-"+rand.Text()[:8])); err != nil {
			return fmt.Errorf("putting the empty state aside: %w", err)
		}
	}
	own := f.Dir
	f.Dir, f.id = was.Dir, was.id

	if err := follow(); err != nil {
		return err
	}

	// First add the state to the new path, then remove it from the old one: after an interruption, repeating
	// the command continues.
	moved := project{ID: was.id, Path: f.Root, Dir: filepath.Base(was.Dir)}
	for _, dir := range []string{own, was.Dir} {
		if err := (durable.Disk{}).MakeFolder(dir, 0o700); err != nil {
			return err
		}

		if dir == was.Dir {
			moved.Dir = ""
		}
		text, err := json.Marshal(moved)
		if err != nil {
			return err
		}
		if err := (durable.Disk{}).Put(filepath.Join(dir, projectFile), append(text, '\n'),
			durable.PutOptions{}); err != nil {
			return err
		}
	}

	return nil
}

func readProject(dir string) (p project, err error) {
	path := filepath.Join(dir, projectFile)
	text, _, err := durable.Read(path, maxProject)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	if !projectID.MatchString(p.ID) || p.Dir != "" && (p.Dir != filepath.Base(p.Dir) || !filepath.IsLocal(p.Dir)) {
		return p, fmt.Errorf("%s is not what deepwork writes; restore it from a copy", path)
	}
	return p, nil
}

var projectID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// putNew creates a file atomically; it returns fs.ErrExist if the file exists.
func putNew(path string, data []byte) error {
	temp := path + "." + rand.Text()[:8] + ".tmp"
	if err := (durable.Disk{}).Fill(temp, data, 0o600); err != nil {
		return err
	}
	if err := (durable.Disk{}).MoveNew(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return durable.Disk{}.SyncFolder(filepath.Dir(path))
}

// Upwards returns the project that contains a folder, given as an absolute path: the nearest folder at or
// above it with a .deepwork or state of its own. As git does, it looks above the folder that a link leads to,
// no further than the top of the repository, and never past the home folder, into another file system, or
// into the folder of another user. If that is dir itself, or if there is no project, it returns dir
// unchanged. It only reads the disk.
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
		of, below := Around(at)
		top := of != "" && !strings.ContainsRune(below, filepath.Separator) // the worktrees of an attempt
		if err == nil || top || os.SameFile(above, here) || at == filepath.Dir(at) {
			break
		}
	}

	return dir
}
