package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

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

// hash returns the ids that files of the worktree have as blobs, in order, by git
// hash-object with these arguments. With -w it stores them: what is recorded is
// what was written, even if a file changes meanwhile.
func (s *scan) hash(ctx context.Context, names []string, args ...string) ([]string, error) {
	var ids []string
	for part := range slices.Chunk(names, batch) {
		var list strings.Builder
		for i, name := range part {
			file := name
			if at, ok := s.contents[name]; ok {
				file = at
			} else if target, err := os.Readlink(s.file(name)); err == nil {
				file = filepath.Join(s.tmp, fmt.Sprintf("link-%d", i))
				if err := os.WriteFile(file, []byte(filepath.ToSlash(target)), 0o600); err != nil {
					return nil, err
				}
			}
			list.WriteString(quote(file))
		}
		c := s.call(append([]string{"hash-object", "--stdin-paths"}, args...)...)
		c.Stdin, c.Config = []byte(list.String()), []string{"core.fsync=all"}
		out, err := git.Output(ctx, c)
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
	ids, err := s.hash(ctx, names)
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
		if ids, err = s.hash(ctx, []string{name}); err == nil {
			out[name] = ids[0]
		} else if git.ExitCode(err) < 0 {
			return nil, err
		}
	}
	return out, nil
}

// writeTree writes the tree that comes of changes to the head's.
func (s *scan) writeTree(ctx context.Context, changes map[string]blob) (string, error) {
	index := filepath.Join(s.tmp, "tree-index")
	os.Remove(index)
	run := func(stdin string, args ...string) (string, error) {
		c := s.call(args...)
		c.Index, c.Stdin = index, []byte(stdin)
		return git.Line(ctx, c)
	}
	if s.headID != "" {
		if _, err := run("", "read-tree", s.headID); err != nil {
			return "", err
		}
	}
	var gone, there strings.Builder
	for name, b := range changes {
		if before := s.head[name]; b == (blob{}) || before.mode == modeRepo {
			fmt.Fprintf(&gone, "0 %s\t%s\x00", before.id, name)
		}
		if b != (blob{}) {
			fmt.Fprintf(&there, "%s %s\t%s\x00", b.mode, b.id, name)
		}
	}
	// What goes first makes room: a file may have become a folder.
	if _, err := run(gone.String()+there.String(), "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return run("", "write-tree")
}
