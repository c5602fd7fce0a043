package worktree

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// newHash is that of a repository's objects, "sha1" or "sha256".
func newHash(format string) hash.Hash {
	if format == "sha256" {
		return sha256.New()
	}
	return sha1.New()
}

// hashFile is the id that a file's bytes have as a blob, filters left out. The
// file is streamed. One that changes meanwhile gets an id of nothing, which is
// different from what is committed: that is all it is compared with.
func hashFile(path string, size int64, format string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := newHash(format)
	fmt.Fprintf(h, "blob %d\x00", size)
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashText(text, format string) string {
	h := newHash(format)
	fmt.Fprintf(h, "blob %d\x00%s", len(text), text)
	return hex.EncodeToString(h.Sum(nil))
}

// quote formats a path as git reads it from a list.
func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString("\"\n")
	return b.String()
}

// batch is how many files one git is given.
const batch = 4000

// hashObjects runs git hash-object on files of the worktree, or elsewhere, and
// returns their ids, in order.
func (s *scan) hashObjects(ctx context.Context, files []string, args ...string) ([]string, error) {
	var ids []string
	for part := range slices.Chunk(files, batch) {
		var list strings.Builder
		for _, f := range part {
			list.WriteString(quote(f))
		}
		c := s.call(append([]string{"hash-object", "--stdin-paths"}, args...)...)
		c.Stdin, c.Config = []byte(list.String()), []string{"core.fsync=all"}
		out, err := s.k.git(ctx, c)
		if err != nil {
			return nil, err
		}
		got := strings.Fields(out)
		if len(got) != len(part) {
			return nil, fmt.Errorf("git hash-object: %d ids for %d files", len(got), len(part))
		}
		ids = append(ids, got...)
	}
	return ids, nil
}

// oneByOne bounds how many files have a git each, where one of them has a filter
// that fails.
const oneByOne = 200

// cleaned gives the ids that files have after git's clean filters. A file whose
// filter fails has no id: it is kept as it is.
func (s *scan) cleaned(ctx context.Context, names []string) (map[string]string, error) {
	out := map[string]string{}
	if len(names) == 0 {
		return out, nil
	}
	ids, err := s.hashObjects(ctx, names)
	if err == nil {
		for i, name := range names {
			out[name] = ids[i]
		}
		return out, nil
	}
	if git.ExitCode(err) < 0 {
		return nil, err
	}
	s.k.log.Warn("git's filters fail; files are kept as they are", "worktree", s.root, "error", err)
	if len(names) > oneByOne {
		return out, nil
	}
	for _, name := range names {
		if ids, err = s.hashObjects(ctx, []string{name}); err == nil {
			out[name] = ids[0]
		} else if git.ExitCode(err) < 0 {
			return nil, err
		}
	}
	return out, nil
}

// store writes the bytes of files into the repository, without filters. What is
// recorded is what was written, even if a file changes meanwhile.
func (s *scan) store(ctx context.Context, names []string) error {
	files := make([]string, len(names))
	for i, name := range names {
		files[i] = name
		if at, ok := s.contents[name]; ok {
			files[i] = at
		} else if info, err := os.Lstat(s.file(name)); err != nil {
			return err
		} else if info.Mode().Type() == os.ModeSymlink {
			target, err := os.Readlink(s.file(name))
			if err != nil {
				return err
			}
			files[i] = filepath.Join(s.tmp, fmt.Sprintf("link-%d", i))
			if err := os.WriteFile(files[i], []byte(filepath.ToSlash(target)), 0o600); err != nil {
				return err
			}
		}
	}
	ids, err := s.hashObjects(ctx, files, "-w", "--no-filters")
	if err != nil {
		return err
	}
	for i, name := range names {
		b := s.changes[name]
		b.id = ids[i]
		s.changes[name] = b
	}
	return nil
}

// writeTree writes the tree that comes of changes to the head's.
func (s *scan) writeTree(ctx context.Context, changes map[string]blob) (string, error) {
	index := filepath.Join(s.tmp, "tree-index")
	os.Remove(index)
	run := func(stdin []byte, args ...string) (string, error) {
		c := s.call(args...)
		c.Index, c.Stdin = index, stdin
		return s.k.line(ctx, c)
	}
	if s.headID != "" {
		if _, err := run(nil, "read-tree", s.headID); err != nil {
			return "", err
		}
	}
	var gone, there strings.Builder
	for name, b := range changes {
		if b == (blob{}) || s.head[name].mode == modeRepo {
			fmt.Fprintf(&gone, "0 %s\t%s\x00", strings.Repeat("0", len(hashText("", s.repo.hash))), name)
		}
		if b != (blob{}) {
			fmt.Fprintf(&there, "%s %s\t%s\x00", b.mode, b.id, name)
		}
	}
	// What goes first makes room: a file may have become a folder.
	if _, err := run([]byte(gone.String()+there.String()), "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return run(nil, "write-tree")
}
