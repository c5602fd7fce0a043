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
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session/workflow/machine"
)

// A Subject is what the checks of a step are about.
type Subject struct {
	Root    string // where the session works
	Step    string
	Job     string
	Checks  []job.StepCheck
	Outputs []string           // the paths that were submitted
	Shared  bool               // other agents change the folder at the same time
	Began   *machine.Protected // how the files of protect were when the step began; nil if there are none
}

// The values of machine.CheckRun.Bound.
const (
	ToTree    = "tree"    // the outputs and the git tree: tracked and untracked files that git does not ignore
	ToFiles   = "files"   // the outputs and the files that the check names
	ToOutputs = "outputs" // the outputs alone
)

// A Content is a Subject at a moment.
type Content struct {
	Outputs map[string]string // hex SHA-256 of each submitted path

	subject *Subject
	tree    *tree
	whole   string     // the digest of the tree, once it is needed
	faults  [][]string // of each check: how protected files differ
	digests []string   // of each check
}

// Look reads a subject. An error says what cannot be read.
func (s *Subject) Look(ctx context.Context) (*Content, error) {
	c := &Content{subject: s}
	var err error
	if c.Outputs, err = gate.HashFiles(ctx, s.Root, s.Outputs); err != nil || len(s.Checks) == 0 {
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

// bound returns what a check is about.
func (c *Content) bound(i int) string {
	switch {
	case c.subject.Checks[i].Files != nil:
		return ToFiles
	case c.subject.Shared || !c.tree.git:
		return ToOutputs
	}
	return ToTree
}

// digest returns the digest of what a check is about: its definition and the content.
func (c *Content) digest(i int) string {
	h, k := sha256.New(), &c.subject.Checks[i]
	definition, _ := json.Marshal([]any{k.Run, k.In, k.Limit(), k.Files, k.Protect, k.PassEnv})
	fmt.Fprintf(h, "deepwork check 1\n%s\n%s\n", definition, c.bound(i))
	for _, path := range c.subject.Outputs {
		fmt.Fprintf(h, "%q %s\n", path, c.Outputs[path])
	}
	for _, fault := range c.faults[i] {
		fmt.Fprintf(h, "protected %q\n", fault)
	}
	switch c.bound(i) {
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

// write writes what identifies the files that one of the patterns names.
func (t *tree) write(w io.Writer, patterns []string) {
	for _, name := range t.named(patterns) {
		io.WriteString(w, name)
		io.WriteString(w, "\x00"+t.ids[name]+"\x00")
	}
}

// Key identifies a check among those of its step.
func Key(k *job.StepCheck) string { return "check/" + k.Name }

// Digest returns the digest of what a check is about: a result counts for it alone.
func (c *Content) Digest(i int) string { return c.digests[i] }

// Bound returns the digest of what all checks are about, together with what else is judged.
func (c *Content) Bound(judged string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n", judged, c.digests)
	return hex.EncodeToString(h.Sum(nil))
}

// maxNamed is how many files a reply names.
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
	if c.bound(i) != ToOutputs {
		patterns := c.subject.Checks[i].Files
		for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.tree.named(patterns), was.tree.named(patterns))))) {
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
