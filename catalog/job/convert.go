package job

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// A Conversion is the job.yml of a format before ours, converted.
type Conversion struct {
	Was       string   // the versions it was written for: "DeepWork 0.1 to 0.6"
	Source    []byte   // the new job.yml
	Changelog string   // the text for CHANGELOG.md; "" means none
	Notes     []string // what changed, and what a person should look at
}

// ErrCurrent means that a file is of a format that is read as it is.
var ErrCurrent = errors.New("the file is of a format that deepwork reads as it is")

// Convert converts the bytes of a job.yml of DeepWork 0.1 to 0.7. No question of a quality check is lost:
// lists of criteria and prompts of hooks become reviews. Errors: ErrCurrent, and what is not YAML.
func Convert(source []byte) (*Conversion, error) {
	d := newDecoder(FileName)
	root := d.Open(source)
	if root == nil {
		return nil, fmt.Errorf("%s cannot be converted: %w", FileName, d.Diagnostics().Err())
	}
	was := d.earlier()
	if was == "" {
		return nil, ErrCurrent
	}
	c := &converter{Conversion: Conversion{Was: was}}
	c.job(root)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(root), e.Close()); err != nil {
		return nil, fmt.Errorf("%s cannot be converted: %w", FileName, err)
	}
	c.Source = b.Bytes()
	return &c.Conversion, nil
}

// earlier returns the versions that a file was written for, if that was before 0.8, or "".
func (d *decoder) earlier() string {
	root := d.Find().Target()
	steps := get(root, "steps")
	if root.Kind != yaml.MappingNode || steps == nil || yamltree.Target(steps).Kind != yaml.SequenceNode {
		return ""
	}
	criteria, lists := false, false
	for _, s := range yamltree.Target(steps).Content {
		if s = yamltree.Target(s); s.Kind == yaml.MappingNode {
			outputs := get(s, "outputs")
			criteria = criteria || get(s, "quality_criteria") != nil
			lists = lists || outputs != nil && yamltree.Target(outputs).Kind == yaml.SequenceNode
		}
	}
	told := get(root, "common_job_info_provided_to_all_steps_at_runtime") != nil
	switch {
	case criteria, lists && !told:
		return "DeepWork 0.1 to 0.6"
	case get(root, "changelog") != nil, !told && get(root, "description") != nil:

		return "DeepWork 0.7"
	}
	return ""
}

// reportEarlier reports a file of an earlier format: first which it is and what to do, then what will
// be converted.
func (d *decoder) reportEarlier(was, dir string) {
	name := dir[strings.LastIndexAny(dir, `/\`)+1:]
	d.FaultIn(yamltree.Position{Line: 1, Column: 1}, "", "was written for %s: convert it with deepwork jobs convert %s", was, name)
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
	for _, c := range []struct{ key, becomes string }{{"changelog", "moves to CHANGELOG.md"}, {"description", "is told to every step as common_job_info_provided_to_all_steps_at_runtime"}} {
		if d.Has(place{c.key}) {
			d.FaultAt(place{c.key}, "%s", c.becomes)
		}
	}
}

type converter struct{ Conversion }

func (c *converter) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

func (c *converter) job(root *yaml.Node) {
	if get(root, "common_job_info_provided_to_all_steps_at_runtime") == nil {
		if description := get(root, "description"); description != nil {
			rename(root, "description", "common_job_info_provided_to_all_steps_at_runtime")
			c.note("description is now what every step is told")
		} else {
			set(root, "common_job_info_provided_to_all_steps_at_runtime", text("Nothing more is known of this job."))
			c.note("common_job_info_provided_to_all_steps_at_runtime is required: write what every step should know")
		}
	}
	if log := remove(root, "changelog"); log != nil {
		c.Changelog = changelog(log)
		c.note("changelog is now CHANGELOG.md")
	}
	steps := yamltree.Target(get(root, "steps"))
	for _, s := range steps.Content {
		if s = yamltree.Target(s); s.Kind == yaml.MappingNode {
			c.step(s)
		}
	}
	if w := get(root, "workflows"); w == nil || len(yamltree.Target(w).Content) == 0 {
		remove(root, "workflows")
		entries := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, id := range inOrder(steps) {
			entries.Content = append(entries.Content, text(id))
		}
		summary := text("All steps, in their order")
		set(root, "workflows", list(mapping("name", text("full"), "summary", summary, "steps", entries)))
		c.note("each step was started by itself; the new workflow full has all of them")
	}
}

func (c *converter) step(s *yaml.Node) {
	id := scalar(get(s, "id"))
	if outputs := get(s, "outputs"); outputs == nil {
		set(s, "outputs", mapping())
	} else if outputs = yamltree.Target(outputs); outputs.Kind == yaml.SequenceNode {
		made := mapping()
		for _, o := range outputs.Content {
			c.output(made, yamltree.Target(o))
		}
		replace(s, "outputs", made)
		c.note("step %s: each output is now named by its path", id)
	}
	reviews := get(s, "reviews")
	if reviews == nil {
		reviews = list()
		set(s, "reviews", reviews)
	}
	reviews = yamltree.Target(reviews)
	if criteria := remove(s, "quality_criteria"); criteria != nil {
		if made := criteriaOf(yamltree.Target(criteria)); len(made.Content) > 0 {
			reviews.Content = append(reviews.Content, mapping("run_each", text("step"), "quality_criteria", made))
			c.note("step %s: its quality_criteria are now a review", id)
		}
	}
	checks := mapping()
	for _, hooks := range []*yaml.Node{get(s, "stop_hooks"), get(yamltree.Target(get(s, "hooks")), "after_agent")} {
		if hooks = yamltree.Target(hooks); hooks == nil {
			continue
		}
		hooks.Content = slices.DeleteFunc(hooks.Content, func(h *yaml.Node) bool {
			prompt := scalar(get(yamltree.Target(h), "prompt"))
			if prompt == "" {
				c.note("step %s: a hook with a script or a prompt file is not run by deepwork: make it a review", id)
				return false
			}
			set(checks, fmt.Sprintf("check_%d", 1+len(checks.Content)/2), text("Does it pass this check? "+prompt))
			return true
		})
	}
	if len(checks.Content) > 0 {
		reviews.Content = append(reviews.Content, mapping("run_each", text("step"), "quality_criteria", checks))
		c.note("step %s: the prompts of its hooks are now a review", id)
	}
	dropEmpty(s, "stop_hooks")
	if hooks := yamltree.Target(get(s, "hooks")); hooks != nil {
		dropEmpty(hooks, "after_agent")
		dropEmpty(s, "hooks")
	}
	c.dependencies(s, id)
}

// output adds an item of a list of outputs to a mapping.
func (c *converter) output(made, o *yaml.Node) {
	path, kind := scalar(o), "file"
	about := ""
	if o.Kind == yaml.MappingNode {
		if path = scalar(get(o, "file")); path == "" {
			path, kind = scalar(get(o, "directory")), "files"
		}
		for _, key := range []string{"doc_spec", "document_type", "dtd"} {
			if spec := scalar(get(o, key)); spec != "" {
				about = "; it must conform to " + spec
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

// criteriaOf returns a mapping of names to questions for a list of criteria, or for a mapping of them.
func criteriaOf(criteria *yaml.Node) *yaml.Node {
	made := mapping()
	if criteria.Kind == yaml.MappingNode {
		return criteria
	}
	for i, q := range criteria.Content {
		question, name := scalar(yamltree.Target(q)), fmt.Sprintf("criterion_%d", i+1)
		if m := bold.FindStringSubmatch(question); m != nil && get(made, m[1]) == nil && strings.TrimSpace(question[len(m[0]):]) != "" {
			name, question = m[1], question[len(m[0]):]
		}
		if question != "" {
			set(made, name, text(question))
		}
	}
	return made
}

// dependencies adds the steps from which a step has inputs.
func (c *converter) dependencies(s *yaml.Node, id string) {
	inputs := yamltree.Target(get(s, "inputs"))
	if inputs == nil {
		return
	}
	for _, in := range inputs.Content {
		from := scalar(get(yamltree.Target(in), "from_step"))
		if from == "" {
			continue
		}
		all := yamltree.Target(get(s, "dependencies"))
		if all == nil || all.Kind != yaml.SequenceNode {
			remove(s, "dependencies")
			all = list()
			set(s, "dependencies", all)
		}
		if !slices.ContainsFunc(all.Content, func(n *yaml.Node) bool { return scalar(n) == from }) {
			all.Content = append(all.Content, text(from))
			c.note("step %s: %s is now among its dependencies", id, from)
		}
	}
}

// inOrder returns the ids of steps as they are declared, each after those that it depends on.
func inOrder(steps *yaml.Node) (ids []string) {
	needs := map[string][]string{}
	var declared []string
	for _, s := range steps.Content {
		s = yamltree.Target(s)
		id := scalar(get(s, "id"))
		declared = append(declared, id)
		if all := yamltree.Target(get(s, "dependencies")); all != nil {
			for _, n := range all.Content {
				needs[id] = append(needs[id], scalar(n))
			}
		}
	}
	seen := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		if seen[id] || !slices.Contains(declared, id) {
			return
		}
		seen[id] = true
		for _, need := range needs[id] {
			visit(need)
		}
		ids = append(ids, id)
	}
	for _, id := range declared {
		visit(id)
	}
	return ids
}

// changelog returns a changelog as Markdown.
func changelog(log *yaml.Node) string {
	b := new(strings.Builder)
	b.WriteString("# Changelog\n")
	if log = yamltree.Target(log); log.Kind != yaml.SequenceNode {
		return b.String() + "\n" + scalar(log) + "\n"
	}
	for _, e := range log.Content {
		e = yamltree.Target(e)
		fmt.Fprintf(b, "\n## %s\n\n%s\n", scalar(get(e, "version")), strings.TrimSpace(scalar(get(e, "changes"))))
	}
	return b.String()
}

// get returns the value of a key of a mapping, or nil.
func get(m *yaml.Node, key string) *yaml.Node {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

// remove removes a key of a mapping, and returns its value or nil.
func remove(m *yaml.Node, key string) *yaml.Node {
	value := get(m, key)
	for i := 0; value != nil && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content = slices.Delete(m.Content, i, i+2)
			break
		}
	}
	return value
}

func dropEmpty(m *yaml.Node, key string) {
	if v := yamltree.Target(get(m, key)); v != nil && len(v.Content) == 0 {
		remove(m, key)
	}
}

func rename(m *yaml.Node, key, to string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content[i].Value = to
		}
	}
}

func replace(m *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content[i+1] = value
		}
	}
}

func set(m *yaml.Node, key string, value *yaml.Node) {
	m.Content = append(m.Content, text(key), value)
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
	if n = yamltree.Target(n); n == nil || n.Kind != yaml.ScalarNode || yamltree.IsNull(n) {
		return ""
	}
	return n.Value
}
