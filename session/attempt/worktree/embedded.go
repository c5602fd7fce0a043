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

// An agent may clone or create repositories inside a worktree. git would save only a commit's id
// for each, so they are rescued as files, and the history that only they have as an archive of
// their git directory.

// archiveName is the name of that archive, in the folder of the repository.
const archiveName = ".deepwork-git.tar"

// embedded rescues a repository in the worktree; link is the submodule that is committed there, if
// any.
func (s *scan) embedded(ctx context.Context, name string, link blob) error {
	dir := s.file(name)
	s.repos[name] = true
	gitDir, err := git.Line(ctx, within(dir, "rev-parse", "--absolute-git-dir"))
	if err != nil {
		return fmt.Errorf("the repository %s inside it cannot be read; repair or move it: %w", name, err)
	}
	history, err := s.history(ctx, name, gitDir)
	if err != nil {
		return err
	}
	if link != (blob{}) && !history {
		head, err := commitOf(ctx, within(dir), "HEAD")
		if err != nil {
			return err
		}
		if clean, err := isClean(ctx, dir); err != nil {
			return err
		} else if head == link.id && clean {
			return nil // a submodule as it was committed
		}
	}
	if link != (blob{}) {
		s.changes[name] = blob{} // it becomes a folder
	}
	files, err := listFiles(ctx, within(dir), true, "--cached", "--others")
	if err != nil {
		return err
	}
	for _, file := range files {
		file = path.Join(name, file) // without the slash of a repository in it
		if !isDir(s.file(file)) {
			s.candidates[file] = true
		} else if err := s.insideLink(ctx, file, blob{}); err != nil {
			return err
		}
	}
	return nil
}

// isClean reports whether a repository and the submodules checked out in it have no changes. It asks
// git about each separately, as each has programs in its config that git must not run.
func isClean(ctx context.Context, dir string) (bool, error) {
	dirt, err := git.Output(ctx, within(dir, "status", "--porcelain", "-z", "--untracked-files=all"))
	if err != nil || dirt != "" {
		return false, err
	}
	staged, err := git.Output(ctx, within(dir, "ls-files", "--stage", "-z"))
	if err != nil {
		return false, err
	}
	for _, line := range git.Fields(staged) {
		name, is := strings.CutPrefix(line, modeRepo+" ")
		if _, name, _ = strings.Cut(name, "\t"); !is || !isThere(filepath.Join(dir, name, ".git")) {
			continue
		}
		if clean, err := isClean(ctx, filepath.Join(dir, name)); err != nil || !clean {
			return false, err
		}
	}
	return true, nil
}

// within returns a git command for a repository inside the worktree, never for one around it.
func within(dir string, args ...string) git.Command {
	return git.Command{Dir: dir, Env: []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(canonical(dir))}, Args: args, Limit: listLimit}
}

// filesOf lists the output of git ls-files for a repository at name in a worktree, and for those
// inside it, tracked and untracked, relative to the worktree. A repository that cannot be read is
// one entry, with a slash at its end.
func filesOf(ctx context.Context, c git.Command, root, name string, flags ...string) ([]string, error) {
	files, err := listFiles(ctx, c, false, flags...)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range files {
		file = path.Join(name, file) // without the slash of a repository in it
		at := filepath.Join(root, filepath.FromSlash(file))
		switch info, err := os.Lstat(at); {
		case err != nil: // it has been deleted
		case !info.IsDir():
			out = append(out, file)
		case isThere(filepath.Join(at, ".git")): // otherwise a submodule that is not checked out
			inner, err := filesOf(ctx, within(at), root, file, "--cached", "--others")
			if err != nil && git.ExitCode(err) < 0 && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			} else if err != nil {
				inner = []string{file + "/"}
			}
			out = append(out, inner...)
		}
	}
	return out, nil
}

// insideLink searches the folder of a submodule. If it is not checked out, git ignores everything
// in it.
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

// overlaid rescues the history of repositories that were created in folders with tracked files: git
// does not recognize those as repositories.
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

// overlay rescues the history of a repository whose files are handled elsewhere.
func (s *scan) overlay(ctx context.Context, name string) error {
	dir := s.file(name)
	gitDir, err := git.Line(ctx, within(dir, "rev-parse", "--absolute-git-dir"))
	if err != nil {
		if git.ExitCode(err) < 0 {
			return err
		}
		if gitDir = filepath.Join(dir, ".git"); isDir(gitDir) {
			return s.archive(name, gitDir) // it is broken, but nothing else is left
		}
		return nil
	}
	_, err = s.history(ctx, name, gitDir)
	return err
}

// history archives a repository inside, and reports true, if it has commits that would be lost with
// the worktree: on no remote, and in a git directory that goes too.
func (s *scan) history(ctx context.Context, name, gitDir string) (bool, error) {
	dir := s.file(name)
	common, err := commonDir(gitDir)
	if err != nil {
		return false, err
	}
	head, err := commitOf(ctx, within(dir), "HEAD")
	if err != nil {
		return false, err
	}
	var tips []string
	if head != "" {
		tips = []string{head}
	}
	goes := isWithin(common, canonical(s.root)) || s.admin != "" && isWithin(common, canonical(s.admin))
	if !goes && common == s.common {
		s.commits = append(s.commits, head)
		return false, nil
	}
	not := []string{"--not", "--remotes"}
	if goes {
		tips = append(tips, "--branches", "--tags")
		stash, err := refTip(ctx, within(dir), "refs/stash")
		if err != nil {
			return false, err
		}
		if stash != "" {
			tips = append(tips, stash)
		}
	} else {
		not = append(not, "--branches", "--tags")
	}
	if len(tips) == 0 {
		return false, nil
	}
	own, err := git.Line(ctx, within(dir, append(append([]string{"rev-list", "--max-count=1"}, tips...), not...)...))
	if err != nil {
		return false, err
	}
	if own != "" && !goes {
		return false, fmt.Errorf("%s inside it is a worktree of another repository, %s, and has commits on no branch; make a branch of them there", name, common)
	}
	if own == "" {
		return false, nil
	}
	return true, s.archive(name, gitDir)
}

func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// archive adds an archive of a git directory to the rescued files.
func (s *scan) archive(name, gitDir string) error {
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
	w := tar.NewWriter(f)
	err = filepath.WalkDir(gitDir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return pack(w, gitDir, at, d)
	})
	if err != nil {
		err = fmt.Errorf("archiving %s: %w", gitDir, err)
	}
	s.candidates[dest], s.contents[dest] = true, f.Name()
	return errors.Join(err, w.Close(), f.Close())
}

// pack adds one file, folder or symlink of a git directory to an archive.
func pack(w *tar.Writer, gitDir, at string, d fs.DirEntry) error {
	rel, err := filepath.Rel(gitDir, at)
	if err != nil || d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 { // or a socket
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if d.Type() == fs.ModeSymlink {
		if target, err = os.Readlink(at); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Uid, h.Gid = path.Join(".git", filepath.ToSlash(rel)), "", "", 0, 0
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
