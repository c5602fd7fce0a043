package job

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/actor/xslices"
	"deepwork/catalog/internal/yamltree"
)

// A Conversion is a converted job.yml that was written for an earlier version.
type Conversion struct {
	Was       string   // the versions it was written for: "DeepWork 0.1 to 0.6"
	Before    []byte   // job.yml before the conversion
	Source    []byte   // the new job.yml
	Changelog string   // the text for CHANGELOG.md; "" means none
	Notes     []string // what changed, and what a person should look at
}

// ErrCurrent means that a file needs no conversion, since its format is read directly.
var ErrCurrent = errors.New("the file is of a format that deepwork reads as it is")

// Convert converts the bytes of a job.yml of DeepWork 0.1 to 0.7, or of our own format if that lacks
// workflows or dependencies, or has hooks with a prompt, which nothing runs. No question of a quality check
// is lost: lists of criteria and prompts of hooks become reviews. dir is the job's folder, from which it
// reads the files of such prompts. Errors: ErrCurrent, and what is not YAML.
func Convert(dir string, source []byte) (*Conversion, error) {
	d := newDecoder(FileName)
	root := d.Open(bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))) // otherwise comments are lost
	if err := d.Diagnostics().Err(); err != nil {
		return nil, fmt.Errorf("%s cannot be converted: %w", FileName, err)
	} else if root == nil {
		return nil, fmt.Errorf("%s cannot be converted: it is empty", FileName)
	}

	was := d.earlier()
	if was == "" && !isListed(root) {
		return nil, ErrCurrent
	}
	c := &converter{
		Conversion: Conversion{Was: cmp.Or(was, "DeepWork 0.8 to 0.9"), Before: source},
		dir:        dir,
		earlier:    was != "",
	}
	old := root
	root = expand(root)
	c.job(root)

	if !c.changed {
		return nil, ErrCurrent
	}

	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)

	if err := errors.Join(e.Encode(root), e.Close()); err != nil {
		return nil, fmt.Errorf("%s cannot be converted: %w", FileName, err)
	}

	c.Source = b.Bytes()
	c.keepLost(old, root)
	return &c.Conversion, nil
}

const commonInfo = "common_job_info_provided_to_all_steps_at_runtime"

// isListed reports whether a file has steps as a list, and workflows, if any, that name them: every format
// except that of 0.10 and later.
func isListed(root *yaml.Node) bool {
	steps, workflows := yamltree.Target(get(root, "steps")), yamltree.Target(get(root, "workflows"))
	return steps != nil && steps.Kind == yaml.SequenceNode &&
		(workflows == nil || workflows.Kind != yaml.MappingNode) && get(root, "step_arguments") == nil
}

// earlier returns the versions for which a file was written, if they are before 0.8, or "".
func (d *decoder) earlier() string {
	root := d.Find().Target()
	if !isListed(root) {
		return ""
	}
	has := func(key string, kinds ...yaml.Kind) bool { // has reports whether a step has this key
		return slices.ContainsFunc(yamltree.Target(get(root, "steps")).Content, func(s *yaml.Node) bool {
			v := yamltree.Target(get(yamltree.Target(s), key))
			return v != nil && slices.Contains(kinds, v.Kind)
		})
	}

	told := get(root, commonInfo) != nil
	switch {
	case has("quality_criteria", yaml.SequenceNode, yaml.MappingNode, yaml.ScalarNode),
		!told && has("outputs", yaml.SequenceNode):
		return "DeepWork 0.1 to 0.6"
	case get(root, "changelog") != nil, !told && get(root, "description") != nil:
		return "DeepWork 0.7"
	}

	return ""
}

// reportEarlier reports a file of an earlier format: first the format and what to do, then what will be
// converted.
func (d *decoder) reportEarlier(was, dir string) {
	name := dir[strings.LastIndexAny(dir, `/\`)+1:]
	d.FaultIn(yamltree.Position{Line: 1, Column: 1}, "",
		"this job was written for %s: convert it with 'deepwork jobs convert %s', which loses nothing of it", was, name)
	steps := yamltree.Target(get(d.Find().Target(), "steps"))
	for i, s := range steps.Content {
		for _, c := range []struct{ key, becomes string }{
			{"quality_criteria", "becomes a review"}, {"outputs", "becomes a mapping of names"},
		} {
			if v := get(yamltree.Target(s), c.key); v != nil && yamltree.Target(v).Kind == yaml.SequenceNode {
				d.FaultAt(place{"steps", i, c.key}, "is a list: it %s", c.becomes)
			}
		}
	}

	for _, c := range []struct{ key, becomes string }{{"changelog", "moves to CHANGELOG.md"},
		{"description", "is told to every step as common_job_info_provided_to_all_steps_at_runtime"}} {
		if d.Has(place{c.key}) {
			d.FaultAt(place{c.key}, "%s", c.becomes)
		}
	}
}

// A converter changes the tree of a file by rules. Each rule is applied to all steps before the next.
type converter struct {
	Conversion
	dir     string
	earlier bool         // the file is of an earlier format than ours
	steps   []*yaml.Node // the steps that are mappings
	changed bool
}

// note adds a note for a person.
func (c *converter) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// recordChange adds a note about a change.
func (c *converter) recordChange(format string, args ...any) {
	c.changed = true
	c.note(format, args...)
}

// expand returns a copy of a tree without aliases and merge keys, so that each value can be changed
// separately.
func expand(n *yaml.Node) *yaml.Node {
	n = yamltree.Target(n)
	made := *n
	made.Anchor, made.Content = "", nil

	var merged []*yaml.Node
	for i, child := range n.Content {
		made.Content = append(made.Content, expand(child))
		if made.Kind != yaml.MappingNode || i%2 == 0 || n.Content[i-1].Tag != "!!merge" {
			continue
		}
		last := len(made.Content) - 1
		if value := made.Content[last]; value.Kind == yaml.SequenceNode {
			merged = append(merged, value.Content...)
		} else {
			merged = append(merged, value)
		}
		made.Content = made.Content[:last-1]
	}
	for _, m := range merged {
		for i := 0; m.Kind == yaml.MappingNode && i < len(m.Content); i += 2 {
			if get(&made, m.Content[i].Value) == nil { // what is written in the mapping itself takes precedence
				made.Content = append(made.Content, m.Content[i:i+2]...)
			}
		}
	}
	return &made
}

func (c *converter) job(root *yaml.Node) {
	if c.earlier && get(root, commonInfo) == nil {
		if i := find(root, "description"); i >= 0 {
			root.Content[i].Value = commonInfo
			c.recordChange("description is now what every step is told")
		} else {
			set(root, commonInfo, text("Nothing more is known of this job."))
			c.recordChange("%s is required: write what every step should know", commonInfo)
		}
	}
	if log := get(root, "changelog"); log != nil {
		set(root, "changelog", nil)
		c.Changelog = changelog(log)
		c.recordChange("changelog is now CHANGELOG.md")
	}

	for _, s := range get(root, "steps").Content {
		if s.Kind == yaml.MappingNode {
			c.steps = append(c.steps, s)
		}
	}
	for _, rule := range []func(s *yaml.Node, id string){c.outputs, c.checks, c.inputs} {
		for _, s := range c.steps {
			rule(s, scalar(get(s, "id")))
		}
	}
	if w := get(root, "workflows"); w == nil || len(w.Content) == 0 {
		summary := text("All steps, in their order")
		set(root, "workflows", list(mapping("name", text("full"), "summary", summary, "steps", c.inOrder())))
		c.recordChange("each step was started alone; the new workflow full has all of them")
	}
}

// step returns the step with an id, or nil.
func (c *converter) step(id string) *yaml.Node {
	if i := slices.IndexFunc(c.steps, func(s *yaml.Node) bool { return scalar(get(s, "id")) == id }); i >= 0 {
		return c.steps[i]
	}
	return nil
}

// outputs names the outputs of a step, and gives it instructions if it has none.
func (c *converter) outputs(s *yaml.Node, id string) {
	for _, key := range []string{"inputs", "outputs", "reviews", "quality_criteria", "hooks", "stop_hooks",
		"dependencies"} {
		if v := get(s, key); v != nil && yamltree.IsNull(v) {
			set(s, key, nil)
		}
	}

	about := scalar(get(s, "description"))
	if about != "" && get(s, "instructions_file") == nil && get(s, "instructions") == nil {
		set(s, "instructions", text(about))
		c.recordChange("step %s: it had no instructions, so its description is the instructions", id)
	}

	if outputs := get(s, "outputs"); outputs == nil && c.earlier {
		set(s, "outputs", mapping())
	} else if outputs != nil && outputs.Kind == yaml.SequenceNode {
		named := mapping()
		for _, o := range outputs.Content {
			addOutput(named, o)
		}
		set(s, "outputs", named)
		c.recordChange("step %s: each output is now named by its path", id)
	}
}

// byPerson matches names of steps in which a person decides.
var byPerson = regexp.MustCompile(`(?i)approv|sign.?off|(human|user|manual)[ _-]?(check|review|confirm|gate)`)

// checks makes reviews of a step's criteria and hooks.
func (c *converter) checks(s *yaml.Node, id string) {
	if byPerson.MatchString(id + " " + scalar(get(s, "name"))) {
		c.note("step %s: if a person decides there, a review with by: human of the step before asks that person, and "+
			"no agent can pass it", id)
	}

	reviews := cmp.Or(get(s, "reviews"), list())
	for _, r := range reviews.Content {
		if criteria := get(r, "quality_criteria"); criteria != nil && criteria.Kind != yaml.MappingNode {
			set(r, "quality_criteria", criteriaOf(criteria))
			c.recordChange("step %s: the criteria of its reviews now have names", id)
		}
	}
	review := func(criteria *yaml.Node, what string) {
		if len(criteria.Content) > 0 {
			reviews.Content = append(reviews.Content, mapping("run_each", text("step"), "quality_criteria", criteria))
			reviews.Style = 0
			c.recordChange("step %s: %s are now a review", id, what)
		}
	}
	if criteria := get(s, "quality_criteria"); criteria != nil {
		set(s, "quality_criteria", nil)
		review(criteriaOf(criteria), "its quality_criteria")
	}

	prompts, hooks := mapping(), get(s, "hooks")
	for _, at := range []struct {
		of  *yaml.Node
		key string
	}{{s, "stop_hooks"}, {hooks, "after_agent"}, {s, "hooks"}} {
		all := get(at.of, at.key)
		if all != nil && all.Kind == yaml.SequenceNode {
			all.Content = slices.DeleteFunc(all.Content, func(h *yaml.Node) bool { return c.hook(prompts, h, id) })
		}
		if all != nil && all.Kind != yaml.ScalarNode && len(all.Content) == 0 {
			set(at.of, at.key, nil)
		}
	}
	review(prompts, "the prompts of its hooks")
	if get(hooks, "before_tool") != nil || get(hooks, "before_prompt") != nil {
		c.note("step %s: nothing runs its hooks before_tool and before_prompt", id)
	}

	if get(s, "reviews") == nil && (c.earlier || len(reviews.Content) > 0) {
		set(s, "reviews", reviews)
	}
}

// hook adds the prompt of a hook to criteria, and reports whether it has one.
func (c *converter) hook(criteria, h *yaml.Node, id string) bool {
	prompt := scalar(get(h, "prompt"))
	if file := scalar(get(h, "prompt_file")); prompt == "" && file != "" && c.dir != "" {
		data, _ := readInside(c.dir, file)
		prompt = strings.TrimSpace(string(data))
	}
	if prompt == "" {
		c.note("step %s: nothing runs its hook with a script or a prompt file that cannot be read: make it a review",
			id)
		return false
	}
	set(criteria, fmt.Sprintf("check_%d", 1+len(criteria.Content)/2), text("Does it pass this check? "+prompt))
	return true
}

// addOutput adds an item of a list of outputs to a mapping.
func addOutput(made, o *yaml.Node) {
	path, kind := scalar(o), "file"
	about := ""
	if o.Kind == yaml.MappingNode {
		if path = scalar(get(o, "file")); path == "" {
			path, kind = scalar(get(o, "directory")), "files"
		}
		if path == "" && len(o.Content) > 0 { // "- report.md: what it is"
			path = o.Content[0].Value
			kind = "file"
			about = "; " + allText(o.Content[1])
		} else if told := scalar(get(o, "description")); told != "" {
			about = "; " + told
		}
		for _, key := range []string{"doc_spec", "document_type", "dtd"} {
			if spec := scalar(get(o, key)); spec != "" {
				about += "; it must conform to " + spec
			}
		}
	}
	if strings.HasSuffix(path, "/") || strings.Contains(path, "*") {
		kind = "files"
	}
	if path == "" || get(made, path) != nil {
		return
	}
	set(made, path, mapping("type", text(kind), "description", text(path+about)))
}

var bold = regexp.MustCompile(`^\*\*([^*]+)\*\*:?\s*`)

// criteriaOf returns a mapping of names to questions for a list or a mapping of criteria.
func criteriaOf(criteria *yaml.Node) *yaml.Node {
	made := mapping()
	add := func(name, question string) {
		for get(made, name) != nil {
			name += "_"
		}
		set(made, name, text(question))
	}

	switch criteria.Kind {
	case yaml.MappingNode:
		return criteria
	case yaml.ScalarNode:
		criteria = list(criteria)
	}
	for i, q := range criteria.Content {
		if q.Kind == yaml.MappingNode { // "- Complete: Is it complete?", which YAML takes for a mapping
			for k := 0; k < len(q.Content); k += 2 {
				add(q.Content[k].Value, allText(q.Content[k+1]))
			}
			continue
		}

		question, name := allText(q), fmt.Sprintf("criterion_%d", i+1)
		if m := bold.FindStringSubmatch(question); m != nil && strings.TrimSpace(question[len(m[0]):]) != "" {
			name, question = m[1], question[len(m[0]):]
		}
		if question != "" {
			add(name, question)
		}
	}

	return made
}

// inputs corrects inputs of a step that are files: each names an output of a step on which it depends.
func (c *converter) inputs(s *yaml.Node, id string) {
	inputs := cmp.Or(get(s, "inputs"), list())
	for _, in := range inputs.Content {
		file, from := scalar(get(in, "file")), scalar(get(in, "from_step"))
		if from == "" && file != "" { // of an existing file
			name, about := scalar(get(in, "name")), scalar(get(in, "description"))
			if name != "" {
				about = strings.TrimSpace(about + " (the file " + file + ")")
			}
			*in = *mapping("name", text(cmp.Or(name, file)), "description", text(cmp.Or(about, "the file "+file)))
			c.recordChange("step %s: the input %s is asked for, since no step makes it", id, file)
		}

		if from == "" {
			continue
		}

		for _, key := range []string{"name", "description"} { // an input is a value or a file
			if get(in, key) != nil {
				set(in, key, nil)
				c.recordChange("step %s: the input of step %s is its file, without a %s", id, from, key)
			}
		}

		made := get(c.step(from), "outputs")
		if made != nil && len(made.Content) == 2 && file != made.Content[0].Value {
			set(in, "file", text(made.Content[0].Value))
			c.recordChange("step %s: the input %s of step %s is now the output %s, the only one that it makes", id,
				file, from, made.Content[0].Value)
		}

		all := get(s, "dependencies")
		if all == nil || all.Kind != yaml.SequenceNode {
			all = list()
			set(s, "dependencies", all)
		}
		if !slices.ContainsFunc(all.Content, func(n *yaml.Node) bool { return scalar(n) == from }) {
			all.Content = append(all.Content, text(from))
			all.Style = 0
			c.recordChange("step %s: %s is now among its dependencies", id, from)
		}
	}
}

// inOrder returns a list of the ids of the steps in their declared order, but each after those on which it
// depends.
func (c *converter) inOrder() *yaml.Node {
	entries := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	seen := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		s := c.step(id)
		if s == nil || seen[id] {
			return
		}
		seen[id] = true

		for _, need := range cmp.Or(get(s, "dependencies"), list()).Content {
			visit(scalar(need))
		}
		entries.Content = append(entries.Content, text(id))
	}
	for _, s := range c.steps {
		visit(scalar(get(s, "id")))
	}

	return entries
}

const changelogTitle = "# Changelog\n"

// changelog returns a changelog as Markdown.
func changelog(log *yaml.Node) string {
	b := new(strings.Builder)
	b.WriteString(changelogTitle)
	if log.Kind != yaml.SequenceNode {
		return b.String() + "\n" + scalar(log) + "\n"
	}

	for _, e := range log.Content {
		fmt.Fprintf(b, "\n## %s\n\n%s\n", scalar(get(e, "version")), strings.TrimSpace(scalar(get(e, "changes"))))
	}
	return b.String()
}

// find returns the index of a key in the Content of a mapping, or -1.
func find(m *yaml.Node, key string) int {
	for i := 0; m != nil && m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// get returns the value of a key of a mapping, or nil.
func get(m *yaml.Node, key string) *yaml.Node {
	if i := find(m, key); i >= 0 {
		return m.Content[i+1]
	}
	return nil
}

// set sets the value of a key of a mapping; nil removes the key.
func set(m *yaml.Node, key string, value *yaml.Node) {
	switch i := find(m, key); {
	case i >= 0 && value == nil:
		m.Content = slices.Delete(m.Content, i, i+2)
	case i >= 0:
		m.Content[i+1] = value
	case value != nil:
		m.Content = append(m.Content, text(key), value)
	}
}

// text returns a node of a text.
func text(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}

func list(items ...*yaml.Node) *yaml.Node { return &yaml.Node{Kind: yaml.SequenceNode, Content: items} }

func mapping(pairs ...any) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		set(m, pairs[i].(string), pairs[i+1].(*yaml.Node))
	}
	return m
}

// scalar returns the text of a scalar, or "".
func scalar(n *yaml.Node) string {
	n = yamltree.Target(n)
	if n == nil || n.Kind != yaml.ScalarNode || yamltree.IsNull(n) {
		return ""
	}
	return n.Value
}

// allText returns the text of a scalar, or the texts in a list or mapping one after another.
func allText(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return scalar(n)
	}
	return strings.Join(xslices.Map(n.Content, allText), " ")
}
