package job

import (
	"path"

	"gopkg.in/yaml.v3"
)

var (
	inputShape = newShape("an input",
		keyShape{"name", ""}, keyShape{"description", ""}, keyShape{"file", ""}, keyShape{"from_step", ""},
	)
	outputShape = newShape("an output",
		keyShape{"type", "type: file, or type: files"},
		keyShape{"description", "what the output is"},
		keyShape{"required", ""},
	)
	reviewShape = newShape("a review",
		keyShape{"run_each", "run_each: step, or the name of an output"},
		keyShape{"quality_criteria", "a mapping of criteria to questions"},
		keyShape{"additional_review_guidance", ""},
	)
	hooksShape = newShape("hooks",
		keyShape{"after_agent", ""}, keyShape{"before_tool", ""}, keyShape{"before_prompt", ""},
	)
	hookShape = newShape("a hook",
		keyShape{"prompt", ""}, keyShape{"prompt_file", ""}, keyShape{"script", ""},
	)
)

func (d *decoder) step(f field) (s Step, nodes stepNodes) {
	var fs [13]field
	if !d.object(f, stepShape, fs[:]) {
		return s, nodes
	}
	// An id that breaks the pattern still is one that others may name.
	if s.ID, _ = d.textIn("id", fs[0], identifier); s.ID != "" {
		nodes.id = fs[0].value
	}
	s.Name, _ = d.textIn("name", fs[1])
	s.Description, _ = d.textIn("description", fs[2])
	if file, ok := d.textIn("instructions_file", fs[3], insidePath); ok {
		s.InstructionsFile = path.Clean(file)
		s.instructionsAt = placeOf(fs[3].key)
	}
	if fs[4].value != nil {
		s.Outputs = d.outputs(fs[4])
	}
	s.Reviews, nodes.runEach = d.reviews(fs[5])
	s.Inputs, nodes.fromSteps = d.inputs(fs[6])
	s.Dependencies, nodes.dependencies = d.texts("dependencies", fs[7], "a list of step ids", filled)
	s.Hooks = d.hooks(fs[8])
	s.Hooks.AfterAgent = append(s.Hooks.AfterAgent, d.hookList("stop_hooks", fs[9])...)
	s.Exposed = d.boolean("exposed", fs[10], false)
	s.Hidden = d.boolean("hidden", fs[11], false)
	s.Agent = d.optionalText("agent", fs[12])
	return s, nodes
}

func (d *decoder) outputs(f field) []Output {
	d.into("outputs")
	defer d.out()
	entries, ok := d.entries(f, "a mapping of output names ({} for none)")
	if !ok {
		return nil
	}
	outputs := make([]Output, 0, len(entries))
	for _, e := range entries {
		d.into(e.key.Value)
		if fault := freeName(e.key.Value); fault != "" {
			d.fault(placeOf(e.key), "%s", fault)
		}
		var fs [3]field
		o := Output{Name: e.key.Value, Required: true}
		if d.object(e, outputShape, fs[:]) {
			o.Type = d.outputType(fs[0])
			o.Description, _ = d.textIn("description", fs[1])
			o.Required = d.boolean("required", fs[2], true)
		}
		outputs = append(outputs, o)
		d.out()
	}
	return outputs
}

func (d *decoder) outputType(f field) OutputType {
	s, ok := d.textIn("type", f, func(s string) string {
		switch OutputType(s) {
		case File, Files:
			return ""
		}
		return quote(s) + " is not one of file, files"
	})
	if !ok {
		return ""
	}
	return OutputType(s)
}

func (d *decoder) reviews(f field) (reviews []Review, runEach []spot) {
	items, ok := d.list("reviews", f, "a list of reviews ([] for none)")
	if !ok {
		return nil, nil
	}
	d.each("reviews", items, func(i int, f field) {
		var fs [3]field
		if !d.object(f, reviewShape, fs[:]) {
			return
		}
		var r Review
		var at *yaml.Node
		if r.RunEach, ok = d.textIn("run_each", fs[0], filled); ok {
			at = fs[0].value
		}
		if fs[1].value != nil {
			r.Criteria = d.criteria(fs[1])
		}
		r.Guidance = d.optionalText("additional_review_guidance", fs[2])
		reviews, runEach = append(reviews, r), append(runEach, spot{at, i})
	})
	return reviews, runEach
}

func (d *decoder) criteria(f field) []Criteria {
	d.into("quality_criteria")
	defer d.out()
	entries, ok := d.entries(f, "a mapping of criteria to questions")
	if !ok {
		return nil
	}
	if len(entries) == 0 {
		d.fault(f.at(), "has no entries: add at least one criterion, as in Complete: Does it cover everything?")
	}
	criteria := make([]Criteria, 0, len(entries))
	for _, e := range entries {
		d.into(e.key.Value)
		if fault := filled(e.key.Value); fault != "" {
			d.fault(placeOf(e.key), "is an empty name: give it one")
		}
		if q, ok := d.text(e, filled); ok {
			criteria = append(criteria, Criteria{e.key.Value, q})
		}
		d.out()
	}
	return criteria
}

func (d *decoder) inputs(f field) (inputs []Input, fromSteps []spot) {
	items, ok := d.list("inputs", f, "a list of inputs")
	if !ok {
		return nil, nil
	}
	d.each("inputs", items, func(i int, f field) {
		var fs [4]field
		if !d.object(f, inputShape, fs[:]) {
			return
		}
		var in Input
		var from *yaml.Node
		byUser := fs[0].value != nil || fs[1].value != nil
		byStep := fs[2].value != nil || fs[3].value != nil
		const forms = "write either name and description, or file and from_step"
		switch {
		case byUser && byStep:
			d.fault(f.at(), "mixes two kinds of input: %s", forms)
		case !byUser && !byStep:
			d.fault(f.at(), "says nothing: %s", forms)
		default:
			for i, k := range inputShape.keys {
				if fs[i].value == nil && (i < 2) == byUser {
					d.fault(f.at(), "%s is missing: %s", k.name, forms)
				}
			}
		}
		in.Name, _ = d.textIn("name", fs[0], freeName)
		in.Description, _ = d.textIn("description", fs[1])
		in.File, _ = d.textIn("file", fs[2], freeName)
		if in.FromStep, ok = d.textIn("from_step", fs[3], filled); ok {
			from = fs[3].value
		}
		inputs, fromSteps = append(inputs, in), append(fromSteps, spot{from, i})
	})
	return inputs, fromSteps
}

func (d *decoder) hooks(f field) (h Hooks) {
	if f.value == nil {
		return h
	}
	d.into("hooks")
	defer d.out()
	var fs [3]field
	if d.object(f, hooksShape, fs[:]) {
		h.AfterAgent = d.hookList("after_agent", fs[0])
		h.BeforeTool = d.hookList("before_tool", fs[1])
		h.BeforePrompt = d.hookList("before_prompt", fs[2])
	}
	return h
}

func (d *decoder) hookList(name string, f field) (hooks []Hook) {
	items, ok := d.list(name, f, "a list of hooks")
	if !ok {
		return nil
	}
	d.each(name, items, func(_ int, f field) {
		var fs [3]field
		if !d.object(f, hookShape, fs[:]) {
			return
		}
		count := 0
		h := Hook{}
		for i := range fs {
			if fs[i].value != nil {
				count++
				h.at = placeOf(fs[i].key)
			}
		}
		if count != 1 {
			d.fault(f.at(), "has %d of prompt, prompt_file and script: write exactly one", count)
		}
		h.Prompt, _ = d.textIn("prompt", fs[0], filled)
		if file, ok := d.textIn("prompt_file", fs[1], insidePath); ok {
			h.PromptFile, h.path = path.Clean(file), d.path()+".prompt_file"
		}
		if file, ok := d.textIn("script", fs[2], insidePath); ok {
			h.Script, h.path = path.Clean(file), d.path()+".script"
		}
		hooks = append(hooks, h)
	})
	return hooks
}
