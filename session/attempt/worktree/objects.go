package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepwork/session/git"
)

// quoted quotes a path for a list that git reads.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// hash returns the blob ids of files of the worktree by git hash-object with these arguments. With
// -w it also stores them, so that ids and contents match even if a file changes meanwhile.
func (s *scan) hash(ctx context.Context, names []string, args ...string) (map[string]string, error) {
	ids := make(map[string]string, len(names))
	if len(names) == 0 {
		return ids, nil
	}
	var list strings.Builder
	for i, name := range names {
		file := name
		if at, ok := s.contents[name]; ok {
			file = at
		} else if target, err := os.Readlink(s.file(name)); err == nil {
			file = filepath.Join(s.tmp, fmt.Sprintf("link-%d", i))
			if err := os.WriteFile(file, []byte(filepath.ToSlash(target)), 0o600); err != nil {
				return nil, err
			}
		}
		list.WriteString(`"` + quoted.Replace(file) + "\"\n")
	}
	c := s.call(append([]string{"hash-object", "--stdin-paths"}, args...)...)
	c.Stdin, c.Config = []byte(list.String()), []string{"core.fsync=all"}
	out, err := git.Output(ctx, c)
	if err != nil {
		return nil, err
	}
	got := strings.Fields(out)
	if len(got) != len(names) {
		return nil, fmt.Errorf("git hash-object: %d ids for %d files", len(got), len(names))
	}
	for i, name := range names {
		ids[name] = got[i]
	}
	return ids, nil
}

// cleaned returns the ids of files after git's clean filters. If a filter fails no file has an id:
// all are rescued as they are.
func (s *scan) cleaned(ctx context.Context, names []string) (map[string]string, error) {
	ids, err := s.hash(ctx, names)
	if err != nil && git.ExitCode(err) > 0 {
		s.k.log.Warn("git's filters fail; files are kept as they are", "worktree", s.root, "error", err)
		return nil, nil
	}
	return ids, err
}

// writeTree writes the head's tree with the changes applied.
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
	// Deletions first: a file may have become a folder.
	if _, err := run(gone.String()+there.String(), "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return run("", "write-tree")
}
