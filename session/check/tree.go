package check

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"deepwork/actor/durable"
	"deepwork/catalog/job"
	"deepwork/session/git"
)

// A tree has the files of a folder and what identifies the content of each. In a git repository these are the
// files that git does not ignore. Outside, and in a folder that the repository ignores, they are those that
// match the patterns. Exports of sessions are left out.
type tree struct {
	root string // with links resolved
	git  bool
	ids  map[string]string // by the path relative to root, with slashes
}

// maxListed limits git's output about the files of a repository, in bytes.
const maxListed = 512 << 20

// exact are the settings with which git notices every change, whatever the repository's config says.
var exact = []string{"core.trustctime=true", "core.checkStat=default", "core.ignoreStat=false",
	"core.untrackedCache=false", "core.fileMode=true", "core.symlinks=true"}

// ownFiles is the folder to which this program writes while steps are worked on.
const ownFiles = ".deepwork/tmp/"

// look lists a folder. Outside a git repository it lists only files that match one of the patterns.
func look(ctx context.Context, root string, patterns []string) (*tree, error) {
	t := &tree{root: root, ids: map[string]string{}}
	if inGit(root) && !ignored(ctx, root) {
		t.git = true
		return t, t.fromGit(ctx)
	}

	if len(patterns) == 0 {
		return t, nil
	}
	return t, t.walk(ctx, patterns)
}

// inGit reports whether a folder is in the work tree of a git repository.
func inGit(root string) bool {
	for dir := root; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// ignored reports whether the repository around a folder ignores the whole folder.
func ignored(ctx context.Context, root string) bool {
	if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
		return false
	}
	_, err := git.Output(ctx, git.Command{Dir: root, Args: []string{"check-ignore", "--quiet", "."}})
	return err == nil
}

// fromGit lists the files, at about the cost of git status. Files that are unchanged in the index are
// identified by their blobs, others by reading them, so neither a commit nor git add changes the result.
func (t *tree) fromGit(ctx context.Context) error {
	var changed string
	var failed error
	var beside sync.WaitGroup
	beside.Go(func() {
		changed, failed = git.Output(ctx, git.Command{Dir: t.root, Config: exact, Limit: maxListed,
			Args: []string{"diff-files", "-z", "--name-only", "--relative", "--no-renames", "--ignore-submodules=all"}})
	})
	out, err := git.Output(ctx, git.Command{Dir: t.root, Config: exact, Limit: maxListed,
		Args: []string{"ls-files", "-z", "-v", "--stage", "--cached", "--others", "--exclude-standard"}})
	beside.Wait()
	if err = cmp.Or(err, failed); err != nil {
		return fmt.Errorf("listing the files of %s: %w", t.root, err)
	}

	newHash := sha1.New
	read := git.Fields(changed)
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		tag, rest, _ := strings.Cut(line, " ")
		entry, name, staged := strings.Cut(rest, "\t")
		if tag == "?" || !staged {
			name = rest
		}
		if name == "" || strings.HasPrefix(name, ownFiles) {
			continue
		}
		mode, blob, _ := strings.Cut(entry, " ")
		blob, stage, _ := strings.Cut(blob, " ")
		if tag == "H" && stage == "0" && mode != "160000" {
			if len(blob) == 2*sha256.Size {
				newHash = sha256.New
			}
			t.ids[name] = mode + " " + blob
		} else { // untracked, in conflict, or with a mark that hides changes
			read = append(read, name)
		}
	}
	for _, name := range read {
		if err := t.read(ctx, name, newHash); err != nil {
			return err
		}
	}

	return nil
}

// walk lists the files that match the patterns, without following links.
func (t *tree) walk(ctx context.Context, patterns []string) error {
	return filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		switch rel, _ := filepath.Rel(t.root, path); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil:
			return fmt.Errorf("listing the files of %s: %w", t.root, err)
		case d.IsDir() && strings.HasPrefix(filepath.ToSlash(rel)+"/", ownFiles):
			return fs.SkipDir
		case !d.IsDir() && job.Matches(patterns, filepath.ToSlash(rel)):
			return t.read(ctx, filepath.ToSlash(rel), sha256.New)
		}

		return nil
	})
}

// read identifies a file by reading it. A missing file is not in the tree.
func (t *tree) read(ctx context.Context, name string, newHash func() hash.Hash) error {
	id, err := fileID(ctx, filepath.Join(t.root, filepath.FromSlash(name)), newHash())
	if errors.Is(err, fs.ErrNotExist) {
		delete(t.ids, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	t.ids[name] = id
	return nil
}

// maxRead is the size up to which a file's content is read; larger files are identified by size and time.
const maxRead = 64 << 20

// fileID identifies a file as git does: by its mode and the hash of its blob.
func fileID(ctx context.Context, path string, h hash.Hash) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		inner, ok := errors.AsType[*fs.PathError](err)
		if ok && strings.Contains(inner.Err.Error(), "not a directory") {
			err = fs.ErrNotExist
		}
		return "", err
	}

	mode := "100644"
	switch {
	case info.IsDir(): // another repository
		return "folder", nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		fmt.Fprintf(h, "blob %d\x00%s", len(target), filepath.ToSlash(target))
		return "120000 " + hex.EncodeToString(h.Sum(nil)), err
	case !info.Mode().IsRegular():
		return info.Mode().Type().String(), nil
	case info.Mode()&0o100 != 0:
		mode = "100755"
	}
	if info.Size() > maxRead {
		return fmt.Sprintf("%s %d %d", mode, info.Size(), info.ModTime().UnixNano()), nil
	}

	f, _, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()

	fmt.Fprintf(h, "blob %d\x00", info.Size())
	if _, err := io.Copy(h, io.LimitReader(f, maxRead+1)); err != nil {
		return "", err
	}
	return mode + " " + hex.EncodeToString(h.Sum(nil)), nil
}

// named returns the paths that match one of the patterns, sorted; all paths if patterns is nil.
func (t *tree) named(patterns []string) (names []string) {
	for name := range t.ids {
		if patterns == nil || job.Matches(patterns, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
