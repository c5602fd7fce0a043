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
	"syscall"

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

// emptyBlobs are the ids of an empty file, in both object formats of repositories.
var emptyBlobs = []string{"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"}

// A scan finds the differences between a folder and a commit. It trusts no cache and no flag of an
// index, only the content.
type scan struct {
	k          *Keeper
	common     string  // the repository
	admin      string  // "" if the repository no longer has the worktree
	root       string  // the worktree; may be missing
	record     *record // of the worktree; nil for an attempt's folder
	tmp        string  // for temporary files
	keeping    keeping
	skip       map[string]bool // names in root that are not part of it
	exec       bool            // the file system records which files are executable
	links      bool            // it has symlinks
	headID     string          // the commit; "" means none
	head       map[string]blob
	index      map[string]blob   // merged entries only
	absent     map[string]bool   // paths that a sparse checkout leaves out
	candidates map[string]bool   // paths that may need saving
	contents   map[string]string // path in the tree -> path of the file with its content
	changes    map[string]blob   // the differences; a zero blob means deleted
	commits    []string          // other commits that only the worktree reaches
	repos      map[string]bool   // folders of repositories inside, with slashes, already handled
	plain      map[string]bool   // whether a path is a folder without symlinks below root
}

// A keeping selects what to save.
type keeping int

const (
	keepAll     keeping = iota
	keepPresent         // a missing file was never there, so it was not deleted
)

// call returns a git command for the worktree or, if that is missing, for its administrative
// folder.
func (s *scan) call(args ...string) git.Command {
	c := git.Command{Dir: s.root, GitDir: s.admin, WorkTree: s.root, Args: args, Limit: listLimit}
	if s.admin == "" {
		c.GitDir, c.Index = s.common, filepath.Join(s.tmp, "no-index")
	}
	if !isDir(s.root) {
		c.Dir, c.WorkTree = s.tmp, s.tmp
	}
	return c
}

// run computes changes.
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
	for name, on := range map[string]*bool{"core.fileMode": &s.exec, "core.symlinks": &s.links} {
		out, err := git.Line(ctx, s.call("config", "--type=bool", "--get", name))
		if err != nil && git.ExitCode(err) != 1 { // 1 means not set
			return err
		}
		*on = out != "false"
	}
	if isDir(filepath.Join(s.root, ".git")) { // it replaced the worktree's own file
		if err := s.overlay(ctx, ""); err != nil {
			return err
		}
	}
	untracked, err := listFiles(ctx, s.call(), true, "--others")
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
			} else if err := s.insideLink(ctx, name, s.head[name]); err != nil {
				return err
			}
		}
	}
	if err := s.overlaid(ctx); err != nil {
		return err
	}
	return s.compare(ctx)
}

// readHead reads the commit of the worktree, if there is one yet.
func (s *scan) readHead(ctx context.Context) (err error) {
	if s.admin != "" {
		s.headID, err = commitOf(ctx, s.call(), "HEAD")
	} else if s.record != nil {
		if s.headID, err = branchTip(ctx, s.common, s.record.Branch); s.headID == "" {
			s.headID = s.record.Base
		}
	}
	if err != nil || s.headID == "" {
		return err
	}
	out, err := git.Output(ctx, s.call("ls-tree", "-r", "-z", "--full-tree", s.headID))
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
	out, err := git.Output(ctx, s.call("ls-files", "--stage", "-v", "-z"))
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
			s.candidates[name] = true // in conflict: use the file
		}
		if strings.EqualFold(f[0], "S") {
			s.absent[name] = true
		}
	}
	return nil
}

// listFiles runs git ls-files without ignored files. An untracked repository is one entry, with a
// slash at its end. Folders that cannot be read are an error if all must be listed; otherwise they
// are left out.
func listFiles(ctx context.Context, c git.Command, all bool, flags ...string) ([]string, error) {
	c.Args = append([]string{"ls-files", "-z", "--exclude-standard"}, flags...)
	out, warnings, err := git.Run(ctx, c)
	for line := range strings.Lines(warnings) {
		if all && err == nil && strings.Contains(line, "could not open directory") {
			return nil, fmt.Errorf("git ls-files: %s", strings.TrimSpace(line)) // git would go on
		}
	}
	return git.Fields(out), err
}

// compare checks each path that may need saving.
func (s *scan) compare(ctx context.Context) error {
	var names, ask, write []string // existing files; files to filter; files to store
	for _, name := range slices.Sorted(maps.Keys(s.candidates)) {
		mode, err := s.mode(name)
		if err != nil {
			return err
		}
		if mode != "" {
			s.changes[name] = blob{mode: mode}
			names = append(names, name)
		} else if before := s.head[name]; before != (blob{}) && before.mode != modeRepo && !s.absent[name] && s.keeping == keepAll {
			s.changes[name] = blob{}
		}
	}
	ids, err := s.hash(ctx, names, "--no-filters")
	if err != nil {
		return err
	}
	for _, name := range names {
		before, now := s.head[name], blob{s.changes[name].mode, ids[name]}
		s.changes[name] = now
		switch {
		case now == before:
			delete(s.changes, name)
		case now.id == before.id:
		case isFile(now.mode) && isFile(before.mode):
			ask = append(ask, name)
		default:
			write = append(write, name)
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
			delete(s.changes, name) // after git's filters (line ends, LFS) it equals the commit
		default:
			s.changes[name] = blob{now.mode, before.id}
		}
	}
	if ids, err = s.hash(ctx, write, "-w", "--no-filters"); err != nil {
		return err
	}
	for _, name := range write {
		s.changes[name] = blob{s.changes[name].mode, ids[name]}
	}
	return nil
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

// file returns the path on disk of a path in the tree.
func (s *scan) file(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// mode returns the mode of a path, as far as the file system has it, or "" for something that git
// cannot store.
func (s *scan) mode(name string) (string, error) {
	if s.contents[name] != "" {
		return modeFile, nil
	}
	if ok, err := s.reachable(filepath.Dir(filepath.FromSlash(name))); err != nil || !ok {
		return "", err
	}
	info, err := os.Lstat(s.file(name))
	if missing(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	before := s.head[name].mode
	if before == "" {
		before = s.index[name].mode
	}
	switch kind := info.Mode().Type(); {
	case kind == fs.ModeSymlink:
		return modeLink, nil
	case kind != 0:
		return "", nil // a folder, whose files are listed separately; a pipe, a socket
	case before == modeLink && !s.links, !s.exec && isFile(before):
		return before, nil
	case s.exec && info.Mode()&0o100 != 0:
		return modeExec, nil
	}
	return modeFile, nil
}

// reachable reports whether a path is a folder without symlinks: what is behind a symlink is not in
// the worktree.
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

// missing reports whether an error means that nothing exists at a path.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
