package worktree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"deepwork/session/git"
)

// An agent may clone or make repositories inside a worktree. git would keep no
// more of them than the id of a commit, so their files are kept as files, and
// what only they have of history as an archive of their git directory.

// archiveName is where that archive is, in the folder that the repository was in.
const archiveName = ".deepwork-git.tar"

// embedded keeps a repository in the worktree; link is the submodule that is
// committed there, if one is.
func (s *scan) embedded(ctx context.Context, name string, link blob) error {
	dir := s.file(name)
	s.repos[name] = true
	gitDir, err := s.k.line(ctx, within(dir, "rev-parse", "--absolute-git-dir"))
	if err != nil {
		return fmt.Errorf("the repository %s inside it cannot be read; mend or move it: %w", name, err)
	}
	history, err := s.history(ctx, name, dir, gitDir)
	if err != nil {
		return err
	}
	if link != (blob{}) && !history {
		head, err := s.k.line(ctx, within(dir, "rev-parse", "--verify", "--quiet", "HEAD"))
		if err != nil && git.ExitCode(err) != 1 {
			return err
		}
		dirt, err := s.k.git(ctx, within(dir, "status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"))
		if err != nil {
			return err
		}
		if head == link.id && dirt == "" {
			return nil // a submodule as it is committed
		}
	}
	if link != (blob{}) {
		s.changes[name] = blob{} // it becomes a folder
	}
	if history {
		if err := s.archive(name, gitDir); err != nil {
			return err
		}
	}
	out, err := s.k.git(ctx, within(dir, "ls-files", "--stage", "-z"))
	if err != nil {
		return err
	}
	for _, line := range git.Fields(out) {
		meta, file, _ := strings.Cut(line, "\t")
		file = path.Join(name, file)
		if !strings.HasPrefix(meta, modeRepo) {
			s.candidates[file] = true
		} else if err := s.insideLink(ctx, file, blob{}); err != nil {
			return err
		}
	}
	untracked, err := s.k.allUntracked(ctx, within(dir))
	if err != nil {
		return err
	}
	for _, file := range untracked {
		if sub, is := strings.CutSuffix(file, "/"); !is {
			s.candidates[path.Join(name, file)] = true
		} else if err := s.embedded(ctx, path.Join(name, sub), blob{}); err != nil {
			return err
		}
	}
	return nil
}

// within returns a run of git in a repository inside the worktree, never in one
// around it.
func within(dir string, args ...string) git.Command {
	return git.Command{Dir: dir, Env: []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(canonical(dir))}, Args: args, Limit: listLimit}
}

// filesOf lists the files of a repository inside a worktree, tracked and
// untracked, relative to the worktree; ignored ones are left out.
func (k *Keeper) filesOf(ctx context.Context, root, name string) ([]string, error) {
	dir := filepath.Join(root, filepath.FromSlash(name))
	tracked, err := k.git(ctx, within(dir, "ls-files", "-z"))
	if err != nil {
		return nil, err
	}
	untracked, _, err := k.untracked(ctx, within(dir))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range append(git.Fields(tracked), untracked...) {
		file = path.Join(name, file) // without the slash of a repository in it
		info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(file)))
		switch {
		case err != nil: // it was deleted
		case !info.IsDir():
			out = append(out, file)
		case !isThere(filepath.Join(root, filepath.FromSlash(file), ".git")): // a submodule that is not checked out
		default:
			inner, err := k.filesOf(ctx, root, file)
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
		}
	}
	return out, nil
}

// submodule keeps what is in a submodule of the head or of the index.
func (s *scan) submodule(ctx context.Context, name string) error {
	return s.insideLink(ctx, name, s.head[name])
}

// insideLink looks into the folder of a submodule. Where it is not checked out
// git never looks into it, whatever lies there.
func (s *scan) insideLink(ctx context.Context, name string, link blob) error {
	if ok, err := s.reachable(filepath.FromSlash(name)); err != nil || !ok {
		return err
	}
	if _, err := os.Lstat(filepath.Join(s.file(name), ".git")); err == nil {
		return s.embedded(ctx, name, link)
	}
	found := false
	err := filepath.WalkDir(s.file(name), func(at string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		rel, err := filepath.Rel(s.root, at)
		if err != nil || inGit(filepath.ToSlash(rel)) {
			return err
		}
		found = true
		s.candidates[filepath.ToSlash(rel)] = true
		return nil
	})
	if found && link.mode == modeRepo {
		s.changes[name] = blob{}
	}
	return err
}

// rootRepo keeps the history of a repository that took the place of the
// worktree's own .git file.
func (s *scan) rootRepo(ctx context.Context) error {
	if !isDir(filepath.Join(s.root, ".git")) {
		return nil
	}
	return s.overlay(ctx, "")
}

// overlaid keeps the history of repositories that were made in folders with
// tracked files: git does not take those for repositories.
func (s *scan) overlaid(ctx context.Context) error {
	for name := range maps.Clone(s.candidates) {
		for dir := path.Dir(name); !s.repos[dir]; dir = path.Dir(dir) {
			s.repos[dir] = true
			if _, err := os.Lstat(filepath.Join(s.file(dir), ".git")); err != nil {
				continue
			}
			if ok, err := s.reachable(filepath.FromSlash(dir)); err != nil {
				return err
			} else if !ok {
				continue
			}
			if err := s.overlay(ctx, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlay keeps the history of a repository whose files are handled otherwise.
func (s *scan) overlay(ctx context.Context, name string) error {
	dir := s.file(name)
	gitDir, err := s.k.line(ctx, within(dir, "rev-parse", "--absolute-git-dir"))
	if err != nil {
		if git.ExitCode(err) < 0 {
			return err
		}
		if gitDir = filepath.Join(dir, ".git"); isDir(gitDir) {
			return s.archive(name, gitDir) // it is broken, but it is all there is
		}
		return nil
	}
	history, err := s.history(ctx, name, dir, gitDir)
	if err != nil || !history {
		return err
	}
	return s.archive(name, gitDir)
}

// history reports whether a repository inside has commits that would be lost with
// the worktree: on no remote, and in a git directory that goes too.
func (s *scan) history(ctx context.Context, name, dir, gitDir string) (bool, error) {
	common, err := commonDir(gitDir)
	if err != nil {
		return false, err
	}
	tips := []string{"HEAD"}
	head, err := s.k.line(ctx, within(dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"))
	if err != nil && git.ExitCode(err) != 1 {
		return false, err
	}
	if head == "" {
		tips = nil
	}
	goes := isWithin(common, canonical(s.root)) || s.admin != "" && isWithin(common, canonical(s.admin))
	if !goes && common == s.repo.common {
		s.commits = append(s.commits, head)
		return false, nil
	}
	not := []string{"--not", "--remotes"}
	if goes {
		tips = append(tips, "--branches", "--tags")
		_, err := s.k.line(ctx, within(dir, "show-ref", "--verify", "--hash", "--", "refs/stash"))
		if err == nil {
			tips = append(tips, "refs/stash")
		} else if !git.Said(err, "not a valid ref") {
			return false, err
		}
	} else {
		not = append(not, "--branches", "--tags")
	}
	if len(tips) == 0 {
		return false, nil
	}
	own, err := s.k.line(ctx, within(dir, append(append([]string{"rev-list", "--max-count=1"}, tips...), not...)...))
	if err != nil {
		return false, err
	}
	if own != "" && !goes {
		return false, fmt.Errorf("%s inside it is a worktree of another repository, %s, and has commits on no branch; make a branch of them there", name, common)
	}
	return own != "", nil
}

func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// archive adds an archive of a git directory to what is kept.
func (s *scan) archive(name, gitDir string) (err error) {
	dest := path.Join(name, archiveName)
	for n := 2; ; n++ {
		if _, err := os.Lstat(s.file(dest)); errors.Is(err, fs.ErrNotExist) && s.head[dest] == (blob{}) {
			break
		}
		dest = path.Join(name, fmt.Sprintf(".deepwork-git-%d.tar", n))
	}
	f, err := os.CreateTemp(s.tmp, "archive-*")
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(gitDir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(gitDir, at)
		if err != nil {
			return err
		}
		return pack(w, at, path.Join(".git", filepath.ToSlash(rel)), d)
	})
	if err != nil {
		return fmt.Errorf("archiving %s: %w", gitDir, err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	s.candidates[dest], s.contents[dest] = true, f.Name()
	return nil
}

// pack adds one file, folder or symlink to an archive.
func pack(w *tar.Writer, at, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	switch mode := info.Mode(); {
	case mode.Type() == fs.ModeSymlink:
		if target, err = os.Readlink(at); err != nil {
			return err
		}
	case !mode.IsRegular() && !mode.IsDir():
		return nil // a socket of a daemon of git's
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Uid, h.Gid = name, "", "", 0, 0
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, info.Size())
	return err
}
