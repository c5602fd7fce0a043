package job

import (
	"path"

	"deepwork/catalog/internal/yamltree"
)

func (d *decoder) step(v value) (s Step, nodes stepNodes) {
	var stopHooks []Hook
	d.Mapping(v, d.stepShape(&s, &nodes, &stopHooks))
	s.Hooks.AfterAgent = append(s.Hooks.AfterAgent, stopHooks...)
	return s, nodes
}

func (d *decoder) stepShape(s *Step, nodes *stepNodes, stopHooks *[]Hook) *yamltree.Shape {
	return &yamltree.Shape{What: "a step", Keys: []yamltree.Key{
		yamltree.Required("id", "an id, such as id: draft", func(v value) {
			// An id that breaks the pattern is still one that others may name.
			if s.ID, _ = d.text(v, identifier); s.ID != "" {
				nodes.id = v.Node
			}
		}),
		yamltree.Required("name", "a title for people", d.into(&s.Name)),
		yamltree.Required("description", "what the step does", d.into(&s.Description)),
		yamltree.Required("instructions_file", "the path of a Markdown file, such as instructions_file: steps/draft.md", func(v value) {
			if file, ok := d.text(v, insidePath); ok {
				s.InstructionsFile, s.instructionsAt = path.Clean(file), yamltree.At(v.Key)
			}
		}),
		yamltree.Required("outputs", "a mapping of output names, or outputs: {} for none", func(v value) { s.Outputs = d.outputs(v) }),
		yamltree.Required("reviews", "a list of reviews, or reviews: [] for none", func(v value) {
			d.List(v, "a list of reviews ([] for none)", func(i int, v value) {
				r, at := Review{}, spot{index: i}
				if d.Mapping(v, d.reviewShape(&r, &at)) {
					s.Reviews, nodes.runEach = append(s.Reviews, r), append(nodes.runEach, at)
				}
			})
		}),
		yamltree.Optional("inputs", func(v value) {
			d.List(v, "a list of inputs", func(i int, v value) {
				if in, at, ok := d.input(i, v); ok {
					s.Inputs, nodes.fromSteps = append(s.Inputs, in), append(nodes.fromSteps, at)
				}
			})
		}),
		yamltree.Optional("dependencies", func(v value) {
			d.List(v, "a list of step ids", func(i int, v value) {
				if id, ok := d.text(v, filled); ok {
					s.Dependencies, nodes.dependencies = append(s.Dependencies, id), append(nodes.dependencies, spot{v.Node, i})
				}
			})
		}),
		yamltree.Optional("hooks", func(v value) { d.Mapping(v, d.hooksShape(&s.Hooks)) }),
		yamltree.Optional("stop_hooks", d.hooks(stopHooks)),
		yamltree.Optional("exposed", d.boolean(&s.Exposed)),
		yamltree.Optional("hidden", d.boolean(&s.Hidden)),
		yamltree.Optional("agent", d.optional(&s.Agent)),
	}}
}

func (d *decoder) outputs(v value) []Output {
	outputs := []Output{}
	_, ok := d.Entries(v, "a mapping of output names ({} for none)", func(v value) {
		if fault := freeName(v.Key.Value); fault != "" {
			d.Fault(yamltree.At(v.Key), "%s", fault)
		}
		o := Output{Name: v.Key.Value, Required: true}
		d.Mapping(v, d.outputShape(&o))
		outputs = append(outputs, o)
	})
	if !ok {
		return nil
	}
	return outputs
}

func (d *decoder) outputShape(o *Output) *yamltree.Shape {
	return &yamltree.Shape{What: "an output", Keys: []yamltree.Key{
		yamltree.Required("type", "type: file, or type: files", func(v value) {
			if s, ok := d.text(v, outputType); ok {
				o.Type = OutputType(s)
			}
		}),
		yamltree.Required("description", "what the output is", d.into(&o.Description)),
		yamltree.Optional("required", d.boolean(&o.Required)),
	}}
}

func (d *decoder) reviewShape(r *Review, at *spot) *yamltree.Shape {
	return &yamltree.Shape{What: "a review", Keys: []yamltree.Key{
		yamltree.Required("run_each", "run_each: step, or the name of an output", func(v value) {
			var ok bool
			if r.RunEach, ok = d.text(v, filled); ok {
				at.node = v.Node
			}
		}),
		yamltree.Required("quality_criteria", "a mapping of criteria to questions", func(v value) {
			count, ok := d.Entries(v, "a mapping of criteria to questions", func(v value) {
				if filled(v.Key.Value) != "" {
					d.Fault(yamltree.At(v.Key), "is an empty name: give it one")
				}
				if q, ok := d.text(v, filled); ok {
					r.Criteria = append(r.Criteria, Criteria{v.Key.Value, q})
				}
			})
			if ok && count == 0 {
				d.Fault(v.At(), "has no entries: add at least one criterion, as in Complete: Does it cover everything?")
			}
		}),
		yamltree.Optional("additional_review_guidance", d.optional(&r.Guidance)),
	}}
}

func (d *decoder) input(i int, v value) (in Input, at spot, ok bool) {
	var given [4]bool // parallel to the keys of the shape
	at.index = i
	shape := d.inputShape(&in, &at, &given)
	if !d.Mapping(v, shape) {
		return in, at, false
	}
	byUser, byStep := given[0] || given[1], given[2] || given[3]
	const forms = "write either name and description, or file and from_step"
	switch {
	case byUser && byStep:
		d.Fault(v.At(), "mixes two kinds of input: %s", forms)
	case !byUser && !byStep:
		d.Fault(v.At(), "says nothing: %s", forms)
	default:
		for i, k := range shape.Keys {
			if !given[i] && (i < 2) == byUser {
				d.Fault(v.At(), "%s is missing: %s", k.Name, forms)
			}
		}
	}
	return in, at, true
}

func (d *decoder) inputShape(in *Input, at *spot, given *[4]bool) *yamltree.Shape {
	read := func(i int, to *string, rule textRule) func(value) {
		return func(v value) {
			given[i] = true
			var ok bool
			if *to, ok = d.text(v, rule); ok && i == 3 {
				at.node = v.Node
			}
		}
	}
	return &yamltree.Shape{What: "an input", Keys: []yamltree.Key{
		yamltree.Optional("name", read(0, &in.Name, freeName)),
		yamltree.Optional("description", read(1, &in.Description, anything)),
		yamltree.Optional("file", read(2, &in.File, freeName)),
		yamltree.Optional("from_step", read(3, &in.FromStep, filled)),
	}}
}

func (d *decoder) hooksShape(h *Hooks) *yamltree.Shape {
	return &yamltree.Shape{What: "hooks", Keys: []yamltree.Key{
		yamltree.Optional("after_agent", d.hooks(&h.AfterAgent)),
		yamltree.Optional("before_tool", d.hooks(&h.BeforeTool)),
		yamltree.Optional("before_prompt", d.hooks(&h.BeforePrompt)),
	}}
}

func (d *decoder) hooks(to *[]Hook) func(value) {
	return func(v value) {
		d.List(v, "a list of hooks", func(_ int, v value) {
			var h Hook
			count := 0
			if !d.Mapping(v, d.hookShape(&h, &count)) {
				return
			}
			if count != 1 {
				d.Fault(v.At(), "has %d of prompt, prompt_file and script: write exactly one", count)
			}
			*to = append(*to, h)
		})
	}
}

func (d *decoder) hookShape(h *Hook, count *int) *yamltree.Shape {
	read := func(name string, to *string, rule textRule) yamltree.Key {
		return yamltree.Optional(name, func(v value) {
			*count++
			if s, ok := d.text(v, rule); ok {
				if name != "prompt" {
					s = path.Clean(s)
				}
				*to, h.at, h.path = s, yamltree.At(v.Key), d.Path()
			}
		})
	}
	return &yamltree.Shape{What: "a hook", Keys: []yamltree.Key{
		read("prompt", &h.Prompt, filled), read("prompt_file", &h.PromptFile, insidePath), read("script", &h.Script, insidePath),
	}}
}
