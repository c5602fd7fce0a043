package job

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// A Form is what an entry of a workflow does with its steps besides doing them in order: for many items,
// on a condition, or repeatedly. Exactly one of the pointers is set.
type Form struct {
	ForEach *ForEach
	When    *Condition
	Repeat  *Repeat
	Body    []Entry // its steps, in order
}

// ForEach does the steps for each item of a list, several at once.
type ForEach struct {
	Output   string `yaml:"for_each" as:"name"` // an output of an earlier step: a JSON list of texts or objects, or files
	AtOnce   int    `yaml:"at_once" min:"1" max:"100"`
	MaxItems int    `yaml:"max_items" min:"1" max:"10000"`
}

// String returns what a form does with its steps, in a few words.
func (f *Form) String() string {
	switch {
	case f.ForEach != nil:
		return fmt.Sprintf("for each of %s, %d at once", f.ForEach.Output, f.ForEach.AtOnce)
	case f.When != nil:
		return "if " + f.When.String()
	}
	return fmt.Sprintf("in rounds until %s, at most %d", &f.Repeat.Until, f.Repeat.AtMost)
}

// The limits of a list of items that its author has not set.
const (
	defaultAtOnce   = 4
	defaultMaxItems = 100
)

// A Condition compares a text, which an earlier step or the caller has given, without blanks at its ends.
// Exactly one of Output and Input is set, and one of Is, IsNot and In; or, where rounds end, Run alone.
type Condition struct {
	Output string   `yaml:"output" as:"name"`
	Input  string   `yaml:"input" as:"name"`
	Is     *string  `yaml:"is" written:""`
	IsNot  *string  `yaml:"is_not" written:""`
	In     []string `yaml:"in" is:"a list of texts" written:"" nonempty:"name the texts that it may be"`

	Run     []string      `yaml:"run" is:"a program and its arguments, as a list such as [go, test, ./...]" each:"filled" nonempty:"name the program"`
	Timeout time.Duration `yaml:"timeout" min:"1s" max:"24h"` // of Run; 0 means DefaultCheckTimeout
}

// check returns the check that Run is, nil if it is none. It fails no step: it ends the rounds when it passes.
func (c *Condition) check() *StepCheck {
	if c.Run == nil {
		return nil
	}
	return &StepCheck{Name: "until", Run: c.Run, Timeout: c.Timeout, Ends: true}
}

// Holds reports whether a text is as the condition wants it.
func (c *Condition) Holds(text string) bool {
	text = strings.TrimSpace(text)
	switch {
	case c.Is != nil:
		return text == strings.TrimSpace(*c.Is)
	case c.IsNot != nil:
		return text != strings.TrimSpace(*c.IsNot)
	}
	return slices.ContainsFunc(c.In, func(one string) bool { return text == strings.TrimSpace(one) })
}

// String returns the condition in words, such as: output verdict is "ready".
func (c *Condition) String() string {
	if c.Run != nil {
		return strings.Join(c.Run, " ") + " passes"
	}
	what := "output " + c.Output
	if c.Input != "" {
		what = "input " + c.Input
	}
	switch {
	case c.Is != nil:
		return what + " is " + yamltree.Quote(*c.Is)
	case c.IsNot != nil:
		return what + " is not " + yamltree.Quote(*c.IsNot)
	}
	quoted := make([]string, len(c.In))
	for i, one := range c.In {
		quoted[i] = yamltree.Quote(one)
	}
	return what + " is one of " + strings.Join(quoted, ", ")
}

// Repeat does the steps until a condition holds at the end of a round.
type Repeat struct {
	Until  Condition `yaml:"until" add:"until: {output: verdict, is: ready}, what ends it"`
	AtMost int       `yaml:"at_most" min:"1" max:"1000" add:"at_most: 5, the number of rounds after which a person is asked"`
}

// A Call is a workflow that a step is: the session's workflow goes on when that one is complete.
type Call struct {
	Job      string // "" means the same
	Workflow string
	Inputs   []CallInput // in format 2, nil: what has the name of an input is given
}

// A CallInput is the value of an input of a called workflow: that of an output or input of this name here,
// or a text.
type CallInput struct {
	Name  string  `yaml:",key"`
	From  string  // "" if Value is set
	Value *string `yaml:"value" written:""`
}

// callPrefix begins the id of a step that is a workflow, such as workflow:publish.
const callPrefix = "workflow:"

// String returns how the workflow is called: as publish, or as other_job/publish.
func (c *Call) String() string {
	if c.Job != "" {
		return c.Job + "/" + c.Workflow
	}
	return c.Workflow
}

// entryFile is an entry of a workflow that is a mapping, as it is written.
type entryFile struct {
	ForEach
	Workflow string      `yaml:"workflow" as:"called"`
	Inputs   []CallInput `yaml:"inputs" as:"call inputs"`
	When     *Condition  `yaml:"when"`
	Repeat   *struct {
		Repeat
		Steps Sequence `yaml:"steps" as:"body" add:"steps: the ids of steps"`
	} `yaml:"repeat"`
	Steps Sequence `yaml:"steps" as:"body"`
}

// kinds are the keys by which the kind of an entry is told, with what goes with each.
var kinds = map[string][]string{
	"for_each": {"steps", "at_once", "max_items"},
	"when":     {"steps"},
	"repeat":   {},
	"workflow": {"inputs"},
}

// A Sequence is what a workflow does, in order.
type Sequence struct {
	Entries []Entry // may be empty, which is a warning; of ForEach, the entry has all its steps
	// Forms are those of the entries, which share one if they are of one When or Repeat; nil means none.
	Forms []*Form

	calls []Step    // those that are workflows
	at    [][]place // of each id in Entries, in the file below the steps of the workflow
}

// addForm decodes the n-th entry of the file, which is a mapping.
func (w *Sequence) addForm(d *yamltree.Decoder, n int, v value) {
	var kind, stray []string
	for i := 0; i+1 < len(v.Target().Content); i += 2 {
		if key := v.Target().Content[i].Value; kinds[key] != nil {
			kind = append(kind, key)
		}
	}
	if len(kind) != 1 {
		d.Fault(v.At(), "has %d of for_each, when, repeat and workflow: write exactly one; what needs more is a workflow of its own", len(kind))
		w.add(nil, nil, n)
		return
	}
	for i := 0; i+1 < len(v.Target().Content); i += 2 {
		if key := v.Target().Content[i].Value; key != kind[0] && !slices.Contains(kinds[kind[0]], key) && slices.Contains([]string{"steps", "at_once", "max_items", "inputs"}, key) {
			stray = append(stray, key)
		}
	}
	if stray != nil {
		d.Fault(v.At(), "%s does not go with %s: remove it", strings.Join(stray, ", "), kind[0])
	}
	f, faults := entryFile{ForEach: ForEach{AtOnce: defaultAtOnce, MaxItems: defaultMaxItems}}, d.Faults()
	d.Decode(v, &f)
	if kind[0] == "workflow" {
		w.call(f.call(), n)
		return
	}
	made, steps, within := new(Form), &f.Steps, place{n, "steps"}
	switch kind[0] {
	case "for_each":
		made.ForEach = &f.ForEach
	case "when":
		if made.When = f.When; made.When == nil {
			made.When = new(Condition)
		}
	case "repeat":
		made.Repeat, within = new(Repeat), place{n, "repeat", "steps"}
		if f.Repeat != nil {
			made.Repeat, steps = &f.Repeat.Repeat, &f.Repeat.Steps
		}
	}
	made.Body, w.calls = steps.Entries, append(w.calls, steps.calls...)
	if len(made.Body) == 0 {
		if d.Faults() == faults {
			d.Fault(v.At(), "has no steps: add steps: [id], what is done")
		}
		made.Body = []Entry{{""}}
	}
	if made.ForEach == nil {
		for k, e := range made.Body {
			w.add(e, made, append(slices.Clip(within), k)...)
		}
		return
	}
	w.Entries, w.Forms, w.at = append(w.Entries, slices.Concat(made.Body...)), append(w.Forms, made), append(w.at, nil)
	for k, e := range made.Body {
		w.locate(e, append(slices.Clip(within), k))
	}
}

// add adds an entry that is at a place below the steps.
func (w *Sequence) add(e Entry, f *Form, at ...any) {
	w.Entries, w.Forms, w.at = append(w.Entries, e), append(w.Forms, f), append(w.at, nil)
	w.locate(e, at)
}

// call adds an entry that is a workflow.
func (w *Sequence) call(c *Call, at ...any) Entry {
	id := callPrefix + c.String()
	w.calls = append(w.calls, Step{ID: id, Name: "Workflow " + c.String(), Description: "The workflow " + c.String() + ", step by step", Call: c})
	w.add(Entry{id}, nil, at...)
	return Entry{id}
}

// call returns the workflow that an entry names.
func (f *entryFile) call() *Call {
	c := &Call{Workflow: f.Workflow, Inputs: f.Inputs}
	if job, name, ok := strings.Cut(f.Workflow, "/"); ok {
		c.Job, c.Workflow = job, name
	}
	if c.Inputs == nil {
		c.Inputs = []CallInput{}
	}
	return c
}

// locate records where the ids of an entry are in the file.
func (w *Sequence) locate(e Entry, at place) {
	last := len(w.at) - 1
	for m := range e {
		w.at[last] = append(w.at[last], append(slices.Clip(at), m))
	}
}

// Form returns the form that the entry at an index belongs to, or nil.
func (w *Sequence) Form(index int) *Form {
	if index < 0 || index >= len(w.Forms) {
		return nil
	}
	return w.Forms[index]
}

// SameForms reports whether two versions of a workflow have the same forms, and call the same workflows.
func (w *Workflow) SameForms(other *Workflow) bool {
	forms := func(w *Workflow) (all []Form, calls []Call) {
		for i, f := range w.Forms {
			if f != nil && (i == 0 || w.Forms[i-1] != f) {
				all = append(all, *f)
			}
		}
		for _, s := range w.called() {
			calls = append(calls, *s.Call)
		}
		return all, calls
	}
	mine, calls := forms(w)
	theirs, otherCalls := forms(other)
	return reflect.DeepEqual(mine, theirs) && reflect.DeepEqual(calls, otherCalls)
}

// Shared reports whether several agents may work in the folder at the same time while an entry is done.
func (w *Workflow) Shared(index int) bool {
	f := w.Form(index)
	if f != nil && f.ForEach != nil {
		return f.ForEach.AtOnce > 1 || slices.ContainsFunc(f.Body, func(e Entry) bool { return len(e) > 1 })
	}
	return len(w.Entries[index]) > 1
}

// Span returns the indices of the entries that belong to a form: from first to before after.
func (w *Sequence) Span(f *Form) (first, after int) {
	first = slices.Index(w.Forms, f)
	for after = first; after < len(w.Forms) && w.Forms[after] == f; after++ {
	}
	return first, after
}

// Item returns the id of a step for the item at an index of its list, such as port[3].
func Item(stepID string, index int) string { return stepID + "[" + strconv.Itoa(index) + "]" }

// SplitItem is the reverse of Item: item is false for the id of a step alone.
func SplitItem(id string) (stepID string, index int, item bool) {
	stepID, rest, found := strings.Cut(id, "[")
	digits, closed := strings.CutSuffix(rest, "]")
	n, err := strconv.Atoi(digits)
	if !found || !closed || err != nil || n < 0 || Item(stepID, n) != id {
		return id, 0, false
	}
	return stepID, n, true
}

// readEntry decodes an entry that is the id of a step, or a list of ids.
func readEntry(d *yamltree.Decoder, v value) (e Entry) {
	member := func(what string, v value) {
		id, _ := d.Text(v, what, "filled")
		e = append(e, id)
	}
	if v.Target().Kind != yaml.SequenceNode {
		member("the id of a step, or a list of ids that run concurrently", v)
	} else if count, _ := d.List(v, "", func(_ int, v value) {
		if v.Target().Kind == yaml.SequenceNode {
			d.Fault(v.At(), "is a list inside of a group: groups do not nest, name the step itself")
			e = append(e, "")
			return
		}
		member("the id of a step", v)
	}); count == 0 {
		d.Fault(v.At(), "is an empty group: name the steps that run concurrently, or remove it")
	}
	return e
}

// entriesForm decodes the entries of a workflow; a faulty one keeps its place.
func entriesForm(d *yamltree.Decoder, v value, to any) {
	w := to.(*Sequence)
	d.List(v, "a list of step ids, of lists of them, or of the forms for_each, when, repeat and workflow", func(n int, v value) {
		if v.Target().Kind == yaml.MappingNode {
			w.addForm(d, n, v)
			return
		}
		w.add(readEntry(d, v), nil, n)
	})
}

// bodyForm decodes the steps of a form.
func bodyForm(d *yamltree.Decoder, v value, to any) {
	w := to.(*Sequence)
	d.List(v, "a list of step ids, of lists of them, or of workflow entries", func(n int, v value) {
		if v.Target().Kind != yaml.MappingNode {
			w.add(readEntry(d, v), nil, n)
			return
		}
		for i := 0; i+1 < len(v.Target().Content); i += 2 {
			key := v.Target().Content[i].Value
			if kinds[key] != nil && key != "workflow" {
				d.Fault(v.At(), "is %s inside of a form: make a workflow of its own of it, and write workflow: NAME here", key)
				w.add(Entry{""}, nil, n)
				return
			}
		}
		w.addForm(d, n, v)
	})
}

// callInputs decodes the inputs of a called workflow: by name, the name of what is here, or a text.
func callInputs(d *yamltree.Decoder, v value, to any) {
	all := to.(*[]CallInput)
	*all = []CallInput{}
	d.Mapping(v, "a mapping of the workflow's inputs to outputs or inputs here, or to {value: text}", func(v value) {
		in := CallInput{Name: v.Key.Value}
		if v.Target().Kind == yaml.MappingNode {
			var given struct {
				Value *string `yaml:"value" written:"" add:"value: the text"`
			}
			d.Decode(v, &given)
			in.Value = given.Value
		} else {
			in.From, _ = d.Text(v, "the name of an output or input here, or {value: text}", "name")
		}
		*all = append(*all, in)
	})
}

// checkForms checks the forms of a workflow: that what they name was made before, as a text or a list.
func (d *decoder) checkForms(j *Job, w *Workflow, at place) {
	for i, f := range w.Forms {
		if f == nil || i > 0 && w.Forms[i-1] == f || d.Full() {
			continue
		}
		here := slices.Concat(at, w.at[i][0][:1])
		first, after := w.Span(f)
		switch {
		case f.ForEach != nil:
			if d.Has(here, "for_each") {
				d.made(j, w, 0, first, f.ForEach.Output, append(here, "for_each"), "before this entry", File, Files, Text)
			}
		case f.When != nil:
			d.checkCondition(j, w, f.When, 0, first, append(here, "when"), "before this entry")
			d.warnLeftOut(j, w, first, after, at)
		case f.Repeat != nil && d.Has(here, "repeat", "until"):
			d.checkCondition(j, w, &f.Repeat.Until, first, after, append(here, "repeat", "until"), "that is repeated")
		}
	}
}

// checkCondition checks that a condition has one subject, which is a text, and one comparison. It may be
// about the outputs of the steps in the entries from first to before after, which are where the words say.
func (d *decoder) checkCondition(j *Job, w *Workflow, c *Condition, first, after int, at place, where string) {
	if c.Run != nil || d.Has(at, "run") {
		last := w.Entries[after-1]
		switch given, _ := d.given(at, "output", "input", "is", "is_not", "in"); {
		case given != "":
			d.FaultAt(at, "has run and %s: write run alone, or a text and what it must be", given)
		case at[len(at)-1] == "when":
			d.FaultAt(at, "has run: a program ends rounds (repeat), and a condition compares a text: have a step run the program, and say in an output what it found")
		case len(last) > 1 || strings.HasPrefix(last[0], callPrefix):
			d.FaultAt(at, "has run, and the steps that are repeated do not end with one step, after which it could run: add one")
		}
		return
	}
	if d.Has(at, "timeout") {
		d.FaultAt(at, "has timeout without run: remove it")
	}
	if given, count := d.given(at, "output", "input"); count != 1 && given != notMapping {
		d.FaultAt(at, "has %d of output and input: write exactly one, the text that it is about", count)
	}
	if given, count := d.given(at, "is", "is_not", "in"); count != 1 && given != notMapping {
		d.FaultAt(at, "has %d of is, is_not and in: write exactly one, as in is: \"yes\"", count)
	}
	if c.Output != "" {
		d.made(j, w, first, after, c.Output, append(slices.Clip(at), "output"), where, Text)
	}
	if c.Input == "" {
		return
	}
	names := make([]string, len(w.Inputs))
	for i, p := range w.Inputs {
		names[i] = p.Name
		if p.Name == c.Input && p.Type != Text {
			d.FaultAt(append(slices.Clip(at), "input"), "%s is of type %s: only a text can be compared, type: string", yamltree.Quote(c.Input), p.Type)
		}
	}
	if !slices.Contains(names, c.Input) {
		hint := "declare it in its inputs"
		if len(names) > 0 {
			hint = nearest(c.Input, names, "its inputs are ")
		}
		d.FaultAt(append(slices.Clip(at), "input"), "the workflow has no input %s: %s", yamltree.Quote(c.Input), hint)
	}
}

// made checks that a step in the entries from first to before after has an output of one of the types.
func (d *decoder) made(j *Job, w *Workflow, first, after int, output string, at place, where string, types ...OutputType) {
	var names []string
	many, wanted := false, "only a text can be compared, type: string"
	if len(types) > 1 {
		wanted = "a list of items is of type string, file or files"
	}
	for e := first; e < after; e++ {
		each := w.Form(e) != nil && w.Form(e).ForEach != nil
		for _, id := range w.Entries[e] {
			s := j.Step(id)
			if s == nil {
				return // which is a fault already
			}
			switch o := s.Output(output); {
			case o != nil && each:
				many = true
			case o != nil && !slices.Contains(types, o.Type) && o.Type != "":
				d.FaultAt(at, "%s is of type %s: %s", yamltree.Quote(output), o.Type, wanted)
				return
			case o != nil:
				return
			case !each:
				for _, o := range s.Outputs {
					names = append(names, o.Name)
				}
			}
		}
	}
	if many {
		d.FaultAt(at, "%s is made for each item, so that it is many values: name an output of a step that is done once", yamltree.Quote(output))
		return
	}
	if names == nil {
		d.FaultAt(at, "no step %s has an output: name the step that makes %s there", where, yamltree.Quote(output))
		return
	}
	d.FaultAt(at, "no step %s has an output %s: %s", where, yamltree.Quote(output), nearest(output, names, "their outputs are "))
}

// warnLeftOut warns of steps after a condition that need what it may leave out.
func (d *decoder) warnLeftOut(j *Job, w *Workflow, first, after int, at place) {
	inside := slices.Concat(w.Entries[first:after]...)
	for e := after; e < len(w.Entries); e++ {
		for m, id := range w.Entries[e] {
			s := j.Step(id)
			if s == nil {
				return
			}
			for _, in := range s.Inputs {
				if slices.Contains(inside, in.FromStep) {
					at := slices.Concat(at, w.at[e][m])
					if !d.Has(at) {
						at = at[:len(at)-1]
					}
					d.WarnAt(at, "%s takes %s from %s, which the condition may leave out: it is then shown as not made", yamltree.Quote(id), yamltree.Quote(in.File), yamltree.Quote(in.FromStep))
				}
			}
		}
	}
}

// place returns where the entry with a call is in the file, below the steps.
func (w *Workflow) place(call string) place {
	e := w.Find(call)
	at := w.at[e][slices.Index(w.Entries[e], call)]
	return at[:len(at)-1] // its entry has one member
}

// endChecks returns the checks that end rounds of a workflow, by the step after which they run.
func (w *Workflow) endChecks() map[string]*StepCheck {
	var all map[string]*StepCheck
	for _, f := range w.Forms {
		if f == nil || f.Repeat == nil || f.Repeat.Until.Run == nil {
			continue
		}
		if all == nil {
			all = map[string]*StepCheck{}
		}
		all[f.Body[len(f.Body)-1][0]] = f.Repeat.Until.check()
	}
	return all
}

// called returns the steps of a workflow that are workflows.
func (w *Workflow) called() (all []*Step) {
	for _, steps := range [][]Step{w.calls, w.Steps} {
		for i := range steps {
			if steps[i].Call != nil {
				all = append(all, &steps[i])
			}
		}
	}
	return all
}

// checkCalls checks that the workflows of this job that others call exist, get what they need, and do not
// call each other in a circle.
func (d *decoder) checkCalls(j *Job, at func(workflow int, step *Step) place) {
	names := make([]string, len(j.Workflows))
	for i := range j.Workflows {
		names[i] = j.Workflows[i].Name
	}
	const open, closed = 1, 2
	state := map[string]int{}
	var trail []string
	var visit func(i int)
	visit = func(i int) {
		w := &j.Workflows[i]
		state[w.Name] = open
		trail = append(trail, w.Name)
		for _, s := range w.called() {
			if d.Full() || s.Call.Job != "" && s.Call.Job != j.Name {
				continue // it is checked when a session begins
			}
			to := slices.Index(names, s.Call.Workflow)
			switch {
			case to < 0 && s.Call.Workflow != "":
				d.FaultAt(at(i, s), "this job has no workflow %s: %s", yamltree.Quote(s.Call.Workflow), nearest(s.Call.Workflow, names, "its workflows are "))
			case to < 0 || state[s.Call.Workflow] == closed:
			case state[s.Call.Workflow] == open:
				circle := append(slices.Clone(trail[slices.Index(trail, s.Call.Workflow):]), s.Call.Workflow)
				d.FaultAt(at(i, s), "the workflows call each other in a circle, %s: remove one of the calls", strings.Join(circle, " -> "))
			default:
				visit(to)
			}
			if to >= 0 {
				d.checkCallInputs(j, w, s, &j.Workflows[to], at(i, s))
			}
		}
		trail = trail[:len(trail)-1]
		state[w.Name] = closed
	}
	for i := range j.Workflows {
		if state[j.Workflows[i].Name] == 0 {
			visit(i)
		}
	}
}

// checkCallInputs checks the values that a call gives to a workflow.
func (d *decoder) checkCallInputs(j *Job, w *Workflow, s *Step, of *Workflow, at place) {
	if s.Call.Inputs == nil {
		return // what has the name of an input is given
	}
	here := w.Find(s.ID)
	var available []string
	for _, p := range w.Inputs {
		available = append(available, p.Name)
	}
	for _, id := range slices.Concat(w.Entries[:max(here, 0)]...) {
		if s := j.Step(id); s != nil {
			for _, o := range s.Outputs {
				available = append(available, o.Name)
			}
		}
	}
	var takes []string
	for _, p := range of.Inputs {
		takes = append(takes, p.Name)
		if p.Required && p.Default == nil && !slices.ContainsFunc(s.Call.Inputs, func(in CallInput) bool { return in.Name == p.Name }) {
			d.FaultAt(at, "the workflow %s needs the input %s: add it to inputs, with the name of an output or input here, or {value: text}", of.Name, yamltree.Quote(p.Name))
		}
	}
	for _, in := range s.Call.Inputs {
		at := append(slices.Clip(at), "inputs", in.Name)
		switch {
		case !slices.Contains(takes, in.Name):
			d.FaultAt(at, "the workflow %s has no input %s: %s", of.Name, yamltree.Quote(in.Name), nearest(in.Name, takes, "its inputs are "))
		case in.From != "" && !slices.Contains(available, in.From):
			d.FaultAt(at, "no earlier step has an output %s, and the workflow has no input of this name: %s", yamltree.Quote(in.From), nearest(in.From, available, "there are "))
		}
	}
}
