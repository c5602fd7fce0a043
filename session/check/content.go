// Package check runs the checks of steps: programs that decide whether the work is done, before any review.
//
// To change it, know these:
//   - Subject, Content: what the checks of a step are about, and how that is at a moment;
//   - Bound: whether a check is about a git tree, files that it names, or the outputs alone;
//   - machine.Protected: how protected files were when a step began;
//   - Round, Result: one run of the checks that have no result for the content.
package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session/git"
	"deepwork/session/judging"
	"deepwork/session/machine"
)

// A Subject is what the checks of a step judge.
type Subject struct {
	Root    string // where the session works
	Step    string
	Job     string
	Checks  []job.StepCheck
	Outputs []string           // the submitted paths
	Shared  bool               // other agents may change the folder at the same time
	Began   *machine.Protected // the protected files when the step began; nil if there are none
}

// The values of judging.CheckRun.Bound.
const (
	ToTree    = "tree"    // the outputs and the git tree: tracked files, and untracked ones that are not ignored
	ToFiles   = "files"   // the outputs and the files that the check names
	ToOutputs = "outputs" // the outputs alone
)

// A Content is the content of a Subject at a moment.
type Content struct {
	Outputs map[string]string // hex SHA-256 of each submitted path

	subject *Subject
	tree    *tree
	whole   string     // the digest of the tree, once needed
	faults  [][]string // for each check: how protected files differ
	digests []string   // for each check
}

// Look reads a subject. Its error says what cannot be read.
func (s *Subject) Look(ctx context.Context) (*Content, error) {
	c := &Content{subject: s}
	var err error
	c.Outputs, err = gate.HashFiles(ctx, s.Root, s.Outputs)
	if err != nil || len(s.Checks) == 0 {
		return c, err
	}

	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return nil, err
	}

	var patterns []string
	for _, k := range s.Checks {
		patterns = slices.Concat(patterns, k.Files, k.Protect)
	}
	if c.tree, err = look(ctx, root, patterns); err != nil {
		return nil, err
	}

	c.faults = make([][]string, len(s.Checks))
	if s.Began != nil {
		changed, err := c.tree.changed(ctx, s.Began)
		if err != nil {
			return nil, err
		}
		for i, k := range s.Checks {
			for _, change := range changed {
				if job.Matches(k.Protect, change.name) {
					c.faults[i] = append(c.faults[i], change.String())
				}
			}
		}
	}
	for i := range s.Checks {
		c.digests = append(c.digests, c.digest(i))
	}

	return c, nil
}

// BoundTo returns what a check is bound to.
func (c *Content) BoundTo(i int) string {
	switch {
	case c.subject.Checks[i].Files != nil:
		return ToFiles
	case c.subject.Shared || !c.tree.git:
		return ToOutputs
	}
	return ToTree
}

// digest returns the digest of a check's definition and the content that it judges.
func (c *Content) digest(i int) string {
	h, k := sha256.New(), &c.subject.Checks[i]
	definition, _ := json.Marshal([]any{k.Run, k.In, k.Limit(), k.Files, k.Protect, k.PassEnv})
	fmt.Fprintf(h, "deepwork check 1\n%s\n%s\n", definition, c.BoundTo(i))
	for _, path := range c.subject.Outputs {
		fmt.Fprintf(h, "%q %s\n", path, c.Outputs[path])
	}
	for _, fault := range c.faults[i] {
		fmt.Fprintf(h, "protected %q\n", fault)
	}

	switch c.BoundTo(i) {
	case ToFiles:
		c.tree.write(h, k.Files)
	case ToTree:
		if c.whole == "" {
			all := sha256.New()
			c.tree.write(all, nil)
			c.whole = hex.EncodeToString(all.Sum(nil))
		}
		io.WriteString(h, c.whole)
	}

	return hex.EncodeToString(h.Sum(nil))
}

// write writes what identifies the files that match one of the patterns.
func (t *tree) write(w io.Writer, patterns []string) {
	for _, name := range t.named(patterns) {
		io.WriteString(w, name)
		io.WriteString(w, "\x00"+t.ids[name]+"\x00")
	}
}

// Key identifies a check within its step.
func Key(k *job.StepCheck) string { return "check/" + k.Name }

// Digest returns the digest of what a check judges. A result counts only for this digest.
func (c *Content) Digest(i int) string { return c.digests[i] }

// Bound returns the digest of what all checks judge, combined with the digest of what else is judged.
func (c *Content) Bound(judged string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n", judged, c.digests)
	return hex.EncodeToString(h.Sum(nil))
}

// maxNamed is the maximum number of files that a reply names.
const maxNamed = 20

// differs names the files of a check that differ from an earlier content.
func (c *Content) differs(i int, was *Content) (names []string) {
	if c.Digest(i) == was.Digest(i) {
		return nil
	}

	for _, path := range c.subject.Outputs {
		if c.Outputs[path] != was.Outputs[path] {
			names = append(names, path)
		}
	}
	if c.BoundTo(i) != ToOutputs {
		patterns := c.subject.Checks[i].Files
		for _, name := range slices.Compact(
			slices.Sorted(slices.Values(slices.Concat(c.tree.named(patterns), was.tree.named(patterns))))) {
			if c.tree.ids[name] != was.tree.ids[name] && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, fault := range c.faults[i] {
		if !slices.Contains(was.faults[i], fault) {
			names = append(names, fault)
		}
	}
	return names
}

// maxProtected is how many files the checks of a step may protect; maxRules is how many of git's rules about
// ignored files are kept.
const (
	maxProtected = 5000
	maxRules     = 5000
	maxRulesFile = 1 << 20
)

// Protect returns the current state of the files that checks protect, or nil if they protect none.
func Protect(ctx context.Context, root string, checks []job.StepCheck) (*machine.Protected, error) {
	var patterns []string
	for _, k := range checks {
		patterns = append(patterns, k.Protect...)
	}
	if len(patterns) == 0 {
		return nil, nil
	}

	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	t, err := look(ctx, root, patterns)
	if err != nil {
		return nil, err
	}

	names := t.named(patterns)
	if len(names) > maxProtected {
		return nil, fmt.Errorf("its checks protect %d files (%s), and %d are the most: name fewer under protect",
			len(names), strings.Join(patterns, ", "), maxProtected)
	}

	p := &machine.Protected{Patterns: patterns, Files: []judging.FileHash{}}
	for _, name := range names {
		id, err := t.onDisk(ctx, name)
		if err != nil {
			return nil, err
		}
		if id != "" {
			p.Files = append(p.Files, judging.FileHash{Path: name, SHA256: id})
		}
	}
	if t.git {
		p.Ignored, err = t.rules(ctx)
	}
	return p, err
}

// Changed returns how the files that a step protects have changed since it began.
func Changed(ctx context.Context, root string, was *machine.Protected) (all []string, err error) {
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	t, err := look(ctx, root, was.Patterns)
	if err != nil {
		return nil, err
	}

	changed, err := t.changed(ctx, was)
	return xslices.Map(changed, change.String), err
}

// onDisk identifies a file by reading it, without using git's index; "" if it is gone. A file behind a link
// counts as another file.
func (t *tree) onDisk(ctx context.Context, name string) (string, error) {
	full := filepath.Join(t.root, filepath.FromSlash(name))
	if real, err := filepath.EvalSymlinks(filepath.Dir(full)); err == nil && real != filepath.Dir(full) {
		return "behind a link", nil
	}
	id, err := fileID(ctx, full, sha256.New())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	return id, nil
}

// A change is a protected file that has changed.
type change struct{ name, how string }

func (c change) String() string { return fmt.Sprintf("'%s' was %s", c.name, c.how) }

// changed returns how protected files differ from when the step began.
func (t *tree) changed(ctx context.Context, was *machine.Protected) (all []change, err error) {
	known := map[string]bool{}
	for _, f := range was.Files {
		known[f.Path] = true
		switch id, err := t.onDisk(ctx, f.Path); {
		case err != nil:
			return nil, err
		case id == "":
			all = append(all, change{f.Path, "deleted"})
		case id != f.SHA256:
			all = append(all, change{f.Path, "changed"})
		}
	}

	names := t.named(was.Patterns)
	if t.git {
		hidden, err := t.hidden(ctx, was)
		if err != nil {
			return nil, err
		}
		names = append(names, hidden...)
	}
	for _, name := range names {
		if !known[name] {
			all = append(all, change{name, "added"})
		}
	}
	return all, nil
}

// ruleOf returns how a rule is kept. Only the hash is of one that is not of a .gitignore: its file may be any of the
// user's, to which the repository's config or a link leads.
func ruleOf(source, text string) string {
	if source == "" {
		sum := sha256.Sum256([]byte(text))
		text = hex.EncodeToString(sum[:8])
	}
	return source + "\t" + text
}

// rules returns the rules by which git ignores files, as ruleOf does. Those that are not of a .gitignore count
// together.
func (t *tree) rules(ctx context.Context) (all []string, err error) {
	out, err := git.Output(ctx, git.Command{
		Dir:   t.root,
		Limit: maxListed,
		Args: []string{"ls-files", "-z", "--full-name", "--cached", "--others", "--exclude-standard", "--",
			":(top,glob)**/.gitignore"},
	})
	if err != nil {
		return nil, err
	}

	top, err := git.TopLevel(ctx, t.root)
	if err != nil {
		return nil, err
	}

	files := map[string]string{}
	for _, name := range git.Fields(out) {
		files[filepath.Join(top, filepath.FromSlash(name))] = name
	}

	if exclude, err := git.Line(ctx, git.Command{
		Dir:  t.root,
		Args: []string{"rev-parse", "--path-format=absolute", "--git-path", "info/exclude"},
	}); err == nil {
		files[exclude] = ""
	}

	if global, err := git.Line(ctx,
		git.Command{Dir: t.root, Args: []string{"config", "--path", "core.excludesFile"}}); err == nil {
		files[global] = ""
	} else if dir, err := os.UserConfigDir(); err == nil {
		files[filepath.Join(dir, "git", "ignore")] = ""
	}

	for file, source := range files {
		read := durable.Read // git follows no link to a .gitignore
		if source == "" {
			read = durable.ReadLinked
		}
		data, _, err := read(file, maxRulesFile)
		if err != nil {
			continue // a missing file ignores nothing
		}
		for line := range strings.Lines(string(data)) {
			if text := strings.TrimRight(line, " \r\n"); text != "" && text[0] != '#' && len(all) < maxRules {
				all = append(all, ruleOf(source, text))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// hidden returns the protected files that git ignores by a rule added since the beginning. It skips rules of
// a .gitignore in a folder without files from then, such as tools make for their caches.
func (t *tree) hidden(ctx context.Context, was *machine.Protected) (names []string, err error) {
	args := []string{"ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--"}
	for _, p := range was.Patterns {
		args = append(args, ":(glob)"+path.Clean(p))
	}
	out, err := git.Output(ctx, git.Command{Dir: t.root, Limit: maxListed, Args: args})
	if err != nil || out == "" {
		return nil, err
	}
	prefix, err := git.Line(ctx, git.Command{Dir: t.root, Args: []string{"rev-parse", "--show-prefix"}})
	if err != nil {
		return nil, err
	}

	verbose, err := git.Output(ctx, git.Command{
		Dir:   t.root,
		Limit: maxListed,
		Stdin: []byte(out),
		Args:  []string{"check-ignore", "-z", "--verbose", "--stdin"},
	})
	if err != nil && git.ExitCode(err) != 1 {
		return nil, err
	}
	for found := range slices.Chunk(git.Fields(verbose), 4) {
		if len(found) < 4 || !job.Matches(was.Patterns, found[3]) {
			continue
		}

		source := filepath.ToSlash(found[0])
		rule := found[2]
		name := found[3]
		if path.Base(source) != ".gitignore" {
			source = ""
		}
		folder := strings.TrimPrefix(path.Dir(source)+"/", prefix)
		tools := source != "" && folder != "./" && strings.HasPrefix(name, folder) &&
			!slices.ContainsFunc(was.Files, func(f judging.FileHash) bool { return strings.HasPrefix(f.Path, folder) })
		rule = strings.TrimRight(rule, " ")
		old := slices.Contains(was.Ignored, ruleOf(source, rule)) ||
			slices.Contains(was.Ignored, source+"\t"+rule) // kept so by earlier versions
		if !old && !tools {
			names = append(names, name)
		}
	}
	return names, nil
}
