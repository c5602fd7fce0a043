package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// The modes of a tree's entries.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
	modeRepo = "160000" // a commit of another repository: a submodule
)

// A blob is an entry of a tree. The zero value means no entry.
type blob struct{ mode, id string }

// A scan finds out what of a folder differs from a commit. It trusts no cache
// and no flag of an index: what decides is the content.
type scan struct {
	k          *Keeper
	repo       *repo
	admin      string // "": the repository has forgotten the worktree
	root       string // the worktree; may be missing
	tmp        string // for temporary files
	headID     string // the commit; "" means none
	keeping    keeping
	skip       map[string]bool // names in root that are no part of it
	exec       bool            // the file system tells which files are programs
	links      bool            // it has symlinks
	head       map[string]blob
	index      map[string]blob   // merged entries only
	absent     map[string]bool   // paths that a sparse checkout leaves out
	candidates map[string]bool   // paths that may have something to keep
	contents   map[string]string // a path in the tree -> a file elsewhere that is its content
	changes    map[string]blob   // what differs; the zero blob: deleted
	commits    []string          // that are in danger apart from the head
	repos      map[string]bool   // folders of repositories inside, with slashes, that were handled
	plain      map[string]bool   // whether a folder is one, and no symlink, all the way from root
}

// A keeping says what to keep.
type keeping int

const (
	keepAll     keeping = iota
	keepPresent         // what is missing was never there, so it was not deleted
	keepNothing
)

// call is a run of git on the worktree, or, if that is missing, on its
// administrative folder.
func (s *scan) call(args ...string) git.Command {
	c := git.Command{Dir: s.root, GitDir: s.admin, WorkTree: s.root, Args: args, Limit: listLimit}
	if s.admin == "" {
		c.GitDir, c.Index = s.repo.common, filepath.Join(s.tmp, "no-index")
	}
	if !isDir(s.root) {
		c.Dir, c.WorkTree = s.tmp, s.tmp
	}
	return c
}

// run fills changes.
func (s *scan) run(ctx context.Context) error {
	s.head, s.index, s.changes = map[string]blob{}, map[string]blob{}, map[string]blob{}
	s.absent, s.candidates, s.contents = map[string]bool{}, map[string]bool{}, map[string]string{}
	s.plain, s.repos = map[string]bool{".": true}, map[string]bool{".": true}
	if err := s.readHead(ctx); err != nil {
		return err
	}
	if err := s.readIndex(ctx); err != nil {
		return err
	}
	if !isDir(s.root) {
		return nil
	}
	var err error
	if s.exec, err = s.flag(ctx, "core.fileMode"); err != nil {
		return err
	}
	if s.links, err = s.flag(ctx, "core.symlinks"); err != nil {
		return err
	}
	if err := s.rootRepo(ctx); err != nil {
		return err
	}
	untracked, err := s.k.allUntracked(ctx, s.call())
	if err != nil {
		return err
	}
	for _, name := range untracked {
		first, _, _ := strings.Cut(name, "/")
		if s.skip[first] {
			continue
		}
		if dir, is := strings.CutSuffix(name, "/"); is {
			if err := s.embedded(ctx, dir, blob{}); err != nil {
				return err
			}
			continue
		}
		s.candidates[name] = true
	}
	for _, all := range []map[string]blob{s.head, s.index} {
		for name, b := range all {
			if b.mode != modeRepo {
				s.candidates[name] = true
			} else if err := s.submodule(ctx, name); err != nil {
				return err
			}
		}
	}
	if err := s.overlaid(ctx); err != nil {
		return err
	}
	return s.compare(ctx)
}

// flag reads a boolean setting that is on unless it is set off.
func (s *scan) flag(ctx context.Context, name string) (bool, error) {
	out, err := s.k.line(ctx, s.call("config", "--type=bool", "--get", name))
	if err != nil && git.ExitCode(err) != 1 {
		return false, err
	}
	return out != "false", nil
}

func (s *scan) readHead(ctx context.Context) error {
	if s.headID == "" {
		return nil
	}
	out, err := s.k.git(ctx, s.call("ls-tree", "-r", "-z", "--full-tree", s.headID))
	if err != nil {
		return err
	}
	for _, line := range git.Fields(out) {
		meta, name, _ := strings.Cut(line, "\t")
		if f := strings.Fields(meta); len(f) == 3 {
			s.head[name] = blob{f[0], f[2]}
		}
	}
	return nil
}

func (s *scan) readIndex(ctx context.Context) error {
	if s.admin == "" {
		return nil
	}
	out, err := s.k.git(ctx, s.call("ls-files", "--stage", "-v", "-z"))
	if err != nil {
		return err
	}
	for _, line := range git.Fields(out) {
		meta, name, _ := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		if len(f) != 4 {
			return fmt.Errorf("git ls-files: %q is not understood", line)
		}
		if f[3] == "0" {
			s.index[name] = blob{f[1], f[2]}
		} else {
			s.candidates[name] = true // in conflict: what counts is the file
		}
		if strings.EqualFold(f[0], "S") {
			s.absent[name] = true
		}
	}
	return nil
}

// untracked lists the files that git neither knows nor ignores; a repository
// inside is one entry, with a slash at its end. Warnings name folders that cannot
// be read.
func (k *Keeper) untracked(ctx context.Context, c git.Command) (files []string, warnings string, err error) {
	c.Args, c.Limit = []string{"ls-files", "--others", "--exclude-standard", "-z"}, listLimit
	out, warnings, err := k.gitBoth(ctx, c)
	return git.Fields(out), warnings, err
}

// allUntracked is untracked, and fails if it cannot tell all.
func (k *Keeper) allUntracked(ctx context.Context, c git.Command) ([]string, error) {
	files, warnings, err := k.untracked(ctx, c)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(warnings) {
		if strings.Contains(line, "could not open directory") {
			return nil, fmt.Errorf("git ls-files: %s", strings.TrimSpace(line)) // it would go on without
		}
	}
	return files, nil
}

// compare looks at each path that may have something to keep.
func (s *scan) compare(ctx context.Context) error {
	var write, ask []string // paths whose content is to be stored; whose filters are to be asked first
	for _, name := range slices.Sorted(maps.Keys(s.candidates)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, ours := s.contents[name]; ours {
			s.changes[name] = blob{mode: modeFile}
			write = append(write, name)
			continue
		}
		before := s.head[name]
		now, err := s.look(name)
		if err != nil {
			return err
		}
		switch {
		case now == blob{}:
			if before != (blob{}) && before.mode != modeRepo && !s.absent[name] && s.keeping == keepAll {
				s.changes[name] = blob{}
			}
		case now == before:
		case isFile(now.mode) && isFile(before.mode) && now.id != before.id:
			s.changes[name] = now
			ask = append(ask, name)
		default:
			s.changes[name] = now
			if now.id != before.id {
				write = append(write, name)
			}
		}
	}
	clean, err := s.cleaned(ctx, ask)
	if err != nil {
		return err
	}
	for _, name := range ask {
		before, now := s.head[name], s.changes[name]
		switch {
		case clean[name] != before.id:
			write = append(write, name)
		case now.mode == before.mode:
			delete(s.changes, name) // git's filters (line ends, LFS) make it what is committed
		default:
			s.changes[name] = blob{now.mode, before.id}
		}
	}
	return s.store(ctx, write)
}

func isFile(mode string) bool { return mode == modeFile || mode == modeExec }

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// file is where a path of the tree is on disk.
func (s *scan) file(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// look reads what is at a path; the zero blob: nothing that git could keep.
func (s *scan) look(name string) (blob, error) {
	if ok, err := s.reachable(filepath.Dir(filepath.FromSlash(name))); err != nil || !ok {
		return blob{}, err
	}
	path := s.file(name)
	info, err := os.Lstat(path)
	if missing(err) {
		return blob{}, nil
	} else if err != nil {
		return blob{}, err
	}
	switch info.Mode().Type() {
	case 0:
		id, err := hashFile(path, info.Size(), s.repo.hash)
		return blob{s.fileMode(name, info), id}, err
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		return blob{modeLink, hashText(filepath.ToSlash(target), s.repo.hash)}, err
	}
	return blob{}, nil // a folder, whose files are listed by themselves; a pipe, a socket
}

// fileMode is the mode of a regular file, as far as the file system can tell.
func (s *scan) fileMode(name string, info fs.FileInfo) string {
	before, ok := s.head[name]
	if !ok {
		before, ok = s.index[name]
	}
	switch {
	case ok && before.mode == modeLink && !s.links:
		return modeLink
	case !s.exec && ok && isFile(before.mode):
		return before.mode
	case s.exec && info.Mode()&0o100 != 0:
		return modeExec
	}
	return modeFile
}

// reachable reports whether a folder is one all the way, without a symlink: what
// is behind a symlink is not in the worktree.
func (s *scan) reachable(dir string) (bool, error) {
	if known, ok := s.plain[dir]; ok {
		return known, nil
	}
	ok, err := s.reachable(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	if ok {
		info, err := os.Lstat(filepath.Join(s.root, dir))
		if err != nil && !missing(err) {
			return false, err
		}
		ok = err == nil && info.IsDir()
	}
	s.plain[dir] = ok
	return ok, nil
}

// missing reports whether an error says that there is nothing at a path.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || isNotDir(err) }
