package worktree

import (
	"bytes"
	"context"
	"deepwork/session/git"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// putBack restores the files and index entries that a move has changed. What somebody else has
// changed since stays, so nothing is lost.
func (k *Keeper) putBack(ctx context.Context, f *fileMove) error {
	if !isDir(f.Path) || !isDir(f.Admin) {
		return nil
	}
	if head, err := commitOf(ctx, f.call(), "HEAD"); err != nil {
		return err
	} else if head != f.From {
		k.log.Warn("a merge was interrupted in a worktree that has another commit checked out now; look at its changes with git status", "worktree", f.Path, "was", f.From, "now", head)
		return nil
	}
	out, err := git.Output(ctx, f.call("diff-tree", "-r", "-z", "--no-renames", "--raw", "--no-abbrev", f.From, f.To))
	if err != nil {
		return err
	}
	index, err := f.index(ctx)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(f.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	var entries, restore strings.Builder
	for fields := git.Fields(out); len(fields) > 1; fields = fields[2:] {
		part := strings.Fields(strings.TrimPrefix(fields[0], ":"))
		if len(part) < 4 {
			return fmt.Errorf("git diff-tree: unexpected %q", fields[0])
		}
		name := fields[1]
		old, now, has := blob{part[0], part[2]}, blob{part[1], part[3]}, index[name]
		if old.mode == "000000" {
			old = blob{}
		}
		if now.mode == "000000" {
			now = blob{}
		}
		if has != old && has != now && has != conflicted {
			continue // somebody has staged something else
		}
		if has != old {
			fmt.Fprintf(&entries, "0 %s\t%s\x00", strings.Repeat("0", len(part[2])), name)
			if old != (blob{}) {
				fmt.Fprintf(&entries, "%s %s\t%s\x00", old.mode, old.id, name)
			}
		}
		if old.mode == modeRepo || now.mode == modeRepo {
			continue // git does not touch the files of submodules
		}
		ours, err := f.wrote(ctx, root, name, now)
		switch {
		case err != nil:
			return err
		case !ours:
		case old != (blob{}):
			restore.WriteString(name + "\x00")
			fallthrough
		default:
			if err := removeFile(root, name); err != nil {
				return err
			}
		}
	}
	c := f.call("update-index", "-z", "--index-info")
	if c.Stdin = []byte(entries.String()); len(c.Stdin) > 0 {
		if _, err := git.Output(ctx, c); err != nil {
			return err
		}
	}
	k.at("index put back")
	c = f.call("checkout-index", "--force", "--quiet", "--index", "-z", "--stdin")
	if c.Stdin = []byte(restore.String()); len(c.Stdin) > 0 {
		_, err = git.Output(ctx, c)
	}
	return err
}

// conflicted is the index's entry of a path with conflicts.
var conflicted = blob{mode: "conflict"}

// index returns the entries of the index.
func (f *fileMove) index(ctx context.Context) (map[string]blob, error) {
	out, err := git.Output(ctx, f.call("ls-files", "--stage", "-z"))
	if err != nil {
		return nil, err
	}
	index := map[string]blob{}
	for _, line := range git.Fields(out) {
		info, name, _ := strings.Cut(line, "\t")
		part := strings.Fields(info)
		if len(part) == 3 && part[2] == "0" {
			index[name] = blob{part[0], part[1]}
		} else {
			index[name] = conflicted
		}
	}
	return index, nil
}

// wrote reports whether a file is missing, or has the content of an entry or the beginning of it: git
// was killed while it replaced it.
func (f *fileMove) wrote(ctx context.Context, root *os.Root, name string, b blob) (bool, error) {
	path := filepath.FromSlash(name)
	info, err := root.Lstat(path)
	if missing(err) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	if info.IsDir() || b == (blob{}) {
		return false, nil
	}
	var have []byte
	if b.mode == modeLink {
		target, err := root.Readlink(path)
		if err != nil {
			return false, nil
		}
		have = []byte(filepath.ToSlash(target))
	} else if !info.Mode().IsRegular() || info.Size() > listLimit {
		return false, nil
	} else if have, err = root.ReadFile(path); err != nil {
		return false, err
	}
	c := f.call("cat-file", "--filters", "--path="+name, b.id)
	c.User, c.Limit = true, len(have)+1 // User keeps the filters of the repository's config out
	if b.mode == modeLink {
		c.Args = []string{"cat-file", "blob", b.id}
	}
	r, err := git.Once(ctx, c)
	if err != nil && len(r.Stdout) < len(have) && git.ExitCode(err) < 0 && ctx.Err() != nil {
		return false, err
	}
	return bytes.HasPrefix(r.Stdout, have), nil
}

// removeFile removes a file, and the folders above it that it leaves empty.
func removeFile(root *os.Root, name string) error {
	path := filepath.FromSlash(name)
	if err := root.Remove(path); err != nil && !missing(err) {
		return err
	}
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if fi, err := root.Lstat(dir); err != nil || !fi.IsDir() || root.Remove(dir) != nil {
			break // a file may be in the place of a folder
		}
	}
	return nil
}
