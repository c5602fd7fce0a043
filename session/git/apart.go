package git

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

	"deepwork/actor/durable"
)

// Commands that look at the content of a work tree run the filters and drivers that the config has
// at that moment, and an agent may change it at any time, also between its inspection and the
// command. So these commands see another git folder than the agent: one of their own, with what was
// inspected, on the index and the objects of the repository.

// partLimit bounds each file that is copied from a git folder, in bytes.
const partLimit = 1 << 30

// apart returns a command that does the same in a git folder of its own, whose HEAD is detached, and
// that has no refs but the command's Refs; done removes the folder. It runs git once.
func apart(ctx context.Context, c Command, g *guard) (own Command, done func(), err error) {
	find := c
	find.Args, find.Stdin, find.Limit = []string{"rev-parse", "--absolute-git-dir", "--git-common-dir"}, nil, 0
	if c.WorkTree == "" {
		find.Args = append(find.Args, "--show-toplevel")
	}
	find.Args = append(find.Args, "--revs-only", "HEAD") // nothing if there is no commit yet
	r, err := once(ctx, find, unused)
	if err != nil {
		return c, nil, err
	}
	lines := append(strings.Split(strings.TrimRight(strings.ReplaceAll(string(r.Stdout), "\r\n", "\n"), "\n"), "\n"), "", "", "")
	gitDir, common, head := filepath.FromSlash(lines[0]), filepath.FromSlash(lines[1]), lines[2]
	if !filepath.IsAbs(common) { // it is relative to the folder that a link in the place of Dir leads to
		dir, err := filepath.EvalSymlinks(c.Dir)
		if err != nil {
			return c, nil, err
		}
		common = filepath.Join(dir, common)
	}
	own = c
	if c.WorkTree == "" {
		own.WorkTree, head = filepath.FromSlash(lines[2]), lines[3]
		if err := within(own.WorkTree, c.Dir); err != nil {
			return c, nil, err
		}
	}
	if own.GitDir, err = os.MkdirTemp("", "deepwork-git-*"); err != nil {
		return c, nil, err
	}
	done = func() { os.RemoveAll(own.GitDir) }
	if own.Objects = filepath.Join(common, "objects"); c.Index == "" {
		own.Index = filepath.Join(gitDir, "index")
	}
	if c.Head != "" {
		head = c.Head
	}
	if head == "" {
		head = "ref: refs/heads/none"
	}
	lfs := g.lfs
	if !filepath.IsAbs(lfs) {
		lfs = filepath.Join(common, lfs)
	}
	var config strings.Builder
	if c.User {
		config.WriteString(g.users)
	} else {
		config.WriteString(g.config)
	}
	// With lfs.storage, LFS would put what it pushes to a remote on this machine there, too.
	if fi, err := os.Stat(lfs); !c.Network || err != nil || !fi.IsDir() || os.Symlink(lfs, filepath.Join(own.GitDir, "lfs")) != nil {
		setting(&config, "lfs.storage", lfs, true)
	}
	var refs strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Refs)) {
		fmt.Fprintf(&refs, "%s %s\n", c.Refs[name], name)
	}
	for name, text := range map[string]string{"HEAD": head + "\n", "config": config.String(), "packed-refs": refs.String()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(own.GitDir, name), []byte(text), 0o600))
	}
	err = errors.Join(err, os.Mkdir(filepath.Join(own.GitDir, "refs"), 0o700), os.Mkdir(filepath.Join(own.GitDir, "info"), 0o700))
	parts := []string{filepath.Join(common, "shallow"), filepath.Join(common, "info", "attributes"), filepath.Join(common, "info", "exclude"), filepath.Join(gitDir, "info", "sparse-checkout")}
	shared, _ := filepath.Glob(filepath.Join(gitDir, "sharedindex.*")) // of a split index
	for _, part := range append(parts, shared...) {
		err = errors.Join(err, copyPart(part, own.GitDir))
	}
	if err != nil {
		done()
		return c, nil, &Error{Command: c.Args[0], Err: err}
	}
	return own, done, nil
}

// copyPart copies a file of a git folder, if it exists, to its place in another.
func copyPart(from, to string) error {
	data, _, err := durable.Read(from, partLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if dir := filepath.Base(filepath.Dir(from)); dir == "info" {
		to = filepath.Join(to, dir)
	}
	return os.WriteFile(filepath.Join(to, filepath.Base(from)), data, 0o600)
}

// within returns an error if the folder dir is not in the work tree at top: core.worktree of a
// repository may name any.
func within(top, dir string) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if rel, err := filepath.Rel(top, dir); err != nil || !filepath.IsLocal(rel) {
		return &Error{Command: "config", Err: fmt.Errorf("core.worktree of the repository at %s names the folder %s, which is not around it: remove that setting", dir, top)}
	}
	return nil
}

// TopLevel returns the top of the work tree around a folder. A repository whose config names another
// folder is an error.
func TopLevel(ctx context.Context, dir string) (string, error) {
	top, err := Line(ctx, Command{Dir: dir, Args: []string{"rev-parse", "--show-toplevel"}})
	if err != nil {
		return "", err
	}
	top = filepath.FromSlash(top)
	return top, within(top, dir)
}

// setting adds a setting to the text of a config file (git-config(1), "Syntax").
func setting(b *strings.Builder, name, value string, valued bool) {
	section, key, _ := strings.Cut(name, ".")
	if dot := strings.LastIndex(key, "."); dot >= 0 {
		section, key = fmt.Sprintf(`%s "%s"`, section, escaped.Replace(key[:dot])), key[dot+1:]
	}
	fmt.Fprintf(b, "[%s]\n\t%s", section, key)
	if valued {
		fmt.Fprintf(b, ` = "%s"`, escaped.Replace(value))
	}
	b.WriteByte('\n')
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
