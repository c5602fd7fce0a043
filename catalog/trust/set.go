// Package trust decides whether a project's config may run programs, connect to something or reach outside
// the project (cmd/deepwork/docs/reference/security.md). A Set has everything of that kind in a config, with
// the content of the project's files that its commands name. The user grants whole sets, with deepwork trust;
// a grant for a path is valid until it is revoked.
//
// A grant does not cover the programs that an approved program runs (make, npm), nor the instructions in
// jobs.
package trust

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/catalog/config"
)

// A Set has the approvals that a config asks for, ordered by key.
type Set []Entry

// An Entry is an element of a Set.
type Entry struct {
	Key   string          `json:"key"`   // as in the file: executors.CODEX
	Value json.RawMessage `json:"value"` // its value in the config, with sorted keys
	// Files are the files inside the project that its command names, by paths relative to the root, with
	// slashes, and the SHA-256 of each, as hexadecimal digits.
	Files map[string]string `json:"files,omitempty"`

	// Runs means that the entry has commands. Unchecked are those of their words that name something in the
	// project whose content is not part of the set, as in the file. Neither field is stored.
	Runs      bool     `json:"-"`
	Unchecked []string `json:"-"`

	// Fault is why the entry cannot be granted, for example because others may write to one of its files. ""
	// means that it can.
	Fault string `json:"-"`
}

// SetOf returns the set of a project's config. It reads the files that commands name.
func SetOf(root string, c *config.Config) (Set, error) {
	b := builder{root: root, dir: root}
	b.add(config.AgentsKey, "may be started")
	a, q := c.Attempts, c.QualityGate
	for _, e := range []struct {
		asked    bool
		key      string
		value    any
		commands [][]string
	}{
		{q.AgentReviewCommand != nil, "quality_gate.agent_review_command", q.AgentReviewCommand,
			[][]string{q.AgentReviewCommand}},
		{q.ReviewerExecutor != "", "quality_gate.reviewer_executor", q.ReviewerExecutor, nil},
		{c.Git.Branch != config.BranchName, "git.branch", c.Git.Branch, nil},
		{c.Run.Executor != "", "run.executor", c.Run.Executor, nil},
		{a.Worktrees != "", "attempts.worktrees", a.Worktrees, nil},
		{a.Copy != nil, "attempts.copy", a.Copy, nil},
		{a.PushTo != "", "attempts.push_to", a.PushTo, nil},
		{a.Setup != nil, "attempts.setup", a.Setup, [][]string{a.Setup}},
	} {
		if e.asked {
			b.add(e.key, e.value, e.commands...)
		}
	}

	c.EachContain(b.contain)

	for _, s := range c.WorkflowTools.Sources {
		value := map[string]any{
			"command":  s.Command,
			"env":      s.Env,
			"pass_env": s.PassEnv,
			"url":      s.URL,
			"headers":  s.Headers,
			"tools":    s.Tools,
		}
		for key, tool := range map[string]string{
			"list":    s.ListTool,
			"execute": s.ExecuteTool,
			"status":  s.StatusTool,
			"cancel":  s.CancelTool,
		} {
			if tool != "workflows-"+key+"-tool" { // the default
				value[key+"_tool"] = tool
			}
		}
		b.add("workflow_tools.sources."+s.Name, value, s.Command)
	}

	b.executors(c.Executors)
	b.projects(c.Projects)
	if s := a.AutoStart; s != nil {
		b.add("attempts.auto_start",
			map[string]any{"executor": s.Executor, "variant": s.Variant, "max_in_review": s.MaxInReview})
	}
	if keep := c.Sessions.KeepEnded; keep > 0 { // since it removes sessions
		b.add("sessions.keep_ended", keep.String())
	}

	slices.SortFunc(b.set, func(x, y Entry) int { return cmp.Compare(x.Key, y.Key) })
	return b.set, b.err
}

func (b *builder) executors(all []config.Executor) {
	for _, e := range all {
		commands := [][]string{e.Command, e.Resume}
		variants := map[string]any{}
		for _, v := range e.Variants {
			commands = append(commands, v.Command, v.Resume)
			variants[v.Name] = map[string]any{
				"command": v.Command,
				"prompt":  v.Prompt,
				"resume":  v.Resume,
				"env":     v.Env,
			}
		}
		if e.Prompt == "" && e.Resume == nil && e.Env == nil && e.Variants == nil && e.Command == nil {
			continue // a known one
		}
		b.add("executors."+e.Name, map[string]any{
			"command":  e.Command,
			"prompt":   e.Prompt,
			"resume":   e.Resume,
			"env":      e.Env,
			"variants": variants,
		}, commands...)
	}
}

func (b *builder) contain(path string, c config.Contain) {
	value := map[string]any{}
	for key, v := range map[string]string{"mode": string(c.Mode), "home": c.Home} {
		if v != "" {
			value[key] = v
		}
	}
	if len(c.Allow) > 0 {
		value["allow"] = c.Allow
	}
	if len(value) > 0 {
		b.add(path, value)
	}
}

// contains returns what programs may reach, by its keys, and the other entries.
func (s Set) contains() (all map[string]config.Contain, others Set) {
	all = map[string]config.Contain{}
	for _, e := range s {
		var c config.Contain
		if strings.HasSuffix(e.Key, ".contain") && json.Unmarshal(e.Value, &c) == nil {
			all[e.Key] = c
		} else {
			others = append(others, e)
		}
	}
	return all, others
}

// narrows reports whether the user approved s by approving was: what programs may reach is the same or less, and the
// other entries are the same.
func (s Set) narrows(was Set, same func(x, y Entry) bool) bool {
	reach, others := s.contains()
	reached, approved := was.contains()
	for key := range reached {
		if _, still := reach[key]; !still {
			reach[key] = config.Contain{} // which is less strict
		}
	}
	for key, c := range reach {
		if !c.Narrower(reached[key]) {
			return false
		}
	}
	return slices.EqualFunc(others, approved, same)
}

func (b *builder) projects(all []config.Project) {
	for _, p := range all {
		repos := map[string]any{}
		var commands [][]string
		for _, r := range p.Repos {
			commands = append(commands, r.Setup)
			repos[r.Name] = map[string]any{"path": r.Path, "copy": r.Copy, "setup": r.Setup}
		}
		b.add("projects."+p.Name, repos, commands...)
		for _, r := range p.Repos { // files are compared only in the project's own repository
			if path := r.Path; len(r.Setup) > 0 {
				if !filepath.IsAbs(path) {
					path = filepath.Join(b.root, path)
				}
				if process.Resolved(path) != process.Resolved(b.root) {
					e := &b.set[len(b.set)-1]
					e.Unchecked = append(e.Unchecked, r.Path)
				}
			}
		}
	}
}

type builder struct {
	root string
	dir  string // the folder in which commands run
	set  Set
	err  error
}

func (b *builder) add(key string, value any, commands ...[]string) {
	e := Entry{Key: key}
	var err error
	e.Value, err = json.Marshal(value)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%s: %w", key, err)
	}
	for _, command := range commands {
		e.Runs = e.Runs || len(command) > 0
		e.Unchecked = append(e.Unchecked, unchecked(b.root, b.dir, command)...)
		for _, f := range filesOf(b.root, b.dir, command) {
			sum, fault, err := f.read()
			if err != nil && b.err == nil {
				b.err = fmt.Errorf("%s: %w", key, err)
			}
			if f.path == "" {
				continue
			}

			if e.Files == nil {
				e.Files = map[string]string{}
			}
			e.Files[f.name] = sum
			e.Fault = cmp.Or(e.Fault, fault)
		}
	}

	b.set = append(b.set, e)
}

// Hash identifies the set: 64 hexadecimal digits.
func (s Set) Hash() string {
	text, err := json.Marshal(s)
	if err != nil {
		return "" // impossible: Marshal made every Value
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Fault returns why the set cannot be granted, or "".
func (s Set) Fault() string {
	for _, e := range s {
		if e.Fault != "" {
			return e.Key + ": " + e.Fault
		}
	}
	return ""
}

// A Change is a difference between two sets: an entry that was added, removed or changed. Was is nil if it
// was added, Is is nil if it was removed.
type Change struct{ Was, Is *Entry }

// Changes returns the changes from was to s, by key.
func (s Set) Changes(was Set) []Change {
	byKey := map[string]*Change{}
	at := func(key string) *Change {
		if byKey[key] == nil {
			byKey[key] = &Change{}
		}
		return byKey[key]
	}
	for i := range was {
		at(was[i].Key).Was = &was[i]
	}
	for i := range s {
		at(s[i].Key).Is = &s[i]
	}

	var all []Change
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		c := byKey[key]
		if c.Was == nil || c.Is == nil || !c.Was.same(*c.Is) {
			all = append(all, *c)
		}
	}
	return all
}

// Files returns the files that are the only difference between the entries, as Word writes them; nil means
// that more differs.
func (c Change) Files() []string {
	if c.Was == nil || c.Is == nil || !c.Was.sameValue(*c.Is) {
		return nil
	}
	return differing(c.Was.Files, c.Is.Files)
}

// differing returns the files whose sums differ between the maps, as Word writes them.
func differing(was, is map[string]string) (names []string) {
	all := map[string]string{}
	maps.Copy(all, was)
	maps.Copy(all, is)
	maps.DeleteFunc(all, func(name, _ string) bool { return was[name] == is[name] })
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names = append(names, Word(name))
	}
	return names
}

// same reports whether two entries have the same value, and files with the same content.
func (e Entry) same(o Entry) bool { return e.sameValue(o) && maps.Equal(e.Files, o.Files) }

func (e Entry) sameValue(o Entry) bool { return e.Key == o.Key && bytes.Equal(e.Value, o.Value) }

// Print prints what an entry asks for. It quotes texts, so that every character can be recognized and none
// can move the cursor.
func (e Entry) Print(w io.Writer, indent string) {
	if e.Key == config.AgentsKey {
		fmt.Fprintf(w, "%scoding agents may be started here, with all your rights\n", indent)
		return
	}

	var value any
	if json.Unmarshal(e.Value, &value) == nil {
		showValue(w, indent, "", value)
	}

	checked := false
	for _, name := range slices.Sorted(maps.Keys(e.Files)) {
		if sum := e.Files[name]; sum != "" {
			fmt.Fprintf(w, "%schecks the content of %s (SHA-256 %.12s…)\n", indent, Quote(name), sum)
			checked = true
		}
	}
	for _, word := range e.Unchecked {
		fmt.Fprintf(w, "%sdoes NOT check the content of %s\n", indent, Quote(word))
	}
	if e.Runs && !checked && len(e.Unchecked) == 0 {
		fmt.Fprintf(w, "%sdoes NOT check the content of what it runs\n", indent)
	}
}

var blanks = regexp.MustCompile(` {4,}`)

// Quote quotes a text so that every character can be recognized: it escapes what is not ASCII, and shows the
// number of many spaces.
func Quote(text string) string {
	return blanks.ReplaceAllStringFunc(strconv.QuoteToASCII(text), func(run string) string {
		return fmt.Sprintf(`\x20{%d}`, len(run))
	})
}

// Word is Quote without the quotation marks if nothing is escaped.
func Word(text string) string {
	if safe := Quote(text); safe != `"`+text+`"` {
		return safe
	}
	return text
}

// showValue prints the settings in a value, one line per key.
func showValue(w io.Writer, indent, name string, value any) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			under := Word(key)
			if name != "" {
				under = name + "." + under
			}
			showValue(w, indent, under, v[key])
		}
	case []any:
		showLine(w, indent, name,
			strings.Join(xslices.Map(v, func(word any) string { return Quote(fmt.Sprint(word)) }), " "))
	case string:
		if v != "" || strings.HasPrefix(name, "env.") || strings.Contains(name, ".env.") {
			showLine(w, indent, name, Quote(v))
		}
	default:
		showLine(w, indent, name, fmt.Sprint(v))
	}
}

func showLine(w io.Writer, indent, name, text string) {
	if name != "" {
		name += ": "
	}
	fmt.Fprintf(w, "%s%s%s\n", indent, name, text)
}
