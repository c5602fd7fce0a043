package job

import (
	"path"
	"regexp"

	"deepwork/catalog/internal/yamltree"
)

func (d *decoder) step(s *Step, spots *stepSpots) yamltree.Shape {
	return yamltree.Shape{What: "a step", Keys: []yamltree.Key{
		required("id", "an id, such as id: draft", func(v value) {
			// An id that breaks the pattern may still be referred to.
			if d.into(&s.ID, identifier)(v); s.ID != "" {
				spots.id = d.spot(v)
			}
		}),
		required("name", "a title for people", d.into(&s.Name)),
		required("description", "what the step does", d.into(&s.Description)),
		required("instructions_file", "the path of a Markdown file, such as instructions_file: steps/draft.md", func(v value) {
			if file, ok := d.text(v, insidePath); ok {
				s.InstructionsFile, s.instructionsAt = path.Clean(file), yamltree.At(v.Key)
			}
		}),
		required("outputs", "a mapping of output names, or outputs: {} for none", d.outputs(&s.Outputs)),
		required("reviews", "a list of reviews, or reviews: [] for none", func(v value) {
			d.List(v, "a list of reviews ([] for none)", func(_ int, v value) {
				var r Review
				var runEach spot
				if d.Mapping(v, d.review(&r, &runEach)) {
					s.Reviews, spots.runEach = append(s.Reviews, r), append(spots.runEach, runEach)
				}
			})
		}),
		optional("inputs", func(v value) {
			d.List(v, "a list of inputs", func(_ int, v value) {
				var in Input
				var from spot
				given := make(map[string]bool)
				if d.Mapping(v, d.input(&in, &from, given)) {
					d.checkInput(v, given)
					s.Inputs, spots.fromSteps = append(s.Inputs, in), append(spots.fromSteps, from)
				}
			})
		}),
		optional("dependencies", func(v value) {
			d.List(v, "a list of step ids", func(_ int, v value) {
				if id, ok := d.text(v, filled); ok {
					s.Dependencies, spots.dependencies = append(s.Dependencies, id), append(spots.dependencies, d.spot(v))
				}
			})
		}),
		optional("hooks", func(v value) { d.Mapping(v, d.hooks(&s.Hooks)) }),
		optional("stop_hooks", d.hookList(&spots.stopHooks)),
		optional("exposed", d.boolean(&s.Exposed)),
		optional("hidden", d.boolean(&s.Hidden)),
		optional("agent", d.pointer(&s.Agent)),
		optional("executor", func(v value) {
			if name, ok := d.text(v, filled); ok && !executorName.MatchString(name) {
				d.Fault(v.At(), "%q is not NAME or NAME:VARIANT of an executor, as in CLAUDE_CODE", name)
			} else if ok {
				s.Executor, s.executorAt = name, yamltree.At(v.Key)
			}
		}),
	}}
}

// executorName matches the name of an executor of the config, perhaps with a variant.
var executorName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*(:[A-Z][A-Z0-9_]*)?$`)

func (d *decoder) outputs(to *[]Output) func(value) {
	var o Output
	shape := d.output(&o)
	return func(v value) {
		outputs := []Output{}
		_, ok := d.Entries(v, "a mapping of output names ({} for none)", func(v value) {
			if fault := freeName(v.Key.Value); fault != "" {
				d.Fault(yamltree.At(v.Key), "%s", fault)
			}
			o = Output{Name: v.Key.Value, Required: true}
			d.Mapping(v, shape)
			outputs = append(outputs, o)
		})
		if ok {
			*to = outputs
		}
	}
}

func (d *decoder) output(o *Output) yamltree.Shape {
	return yamltree.Shape{What: "an output", Keys: []yamltree.Key{
		required("type", "type: file, or type: files", d.into((*string)(&o.Type), outputType)),
		required("description", "what the output is", d.into(&o.Description)),
		optional("required", d.boolean(&o.Required)),
	}}
}

func (d *decoder) review(r *Review, runEach *spot) yamltree.Shape {
	return yamltree.Shape{What: "a review", Keys: []yamltree.Key{
		required("run_each", "run_each: step, or the name of an output", d.named(&r.RunEach, runEach, filled)),
		required("quality_criteria", "a mapping of criteria to questions", func(v value) {
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
		optional("additional_review_guidance", d.pointer(&r.Guidance)),
		optional("by", func(v value) {
			_, r.ByHuman = d.text(v, judge)
		}),
	}}
}

// input records in given which keys are present.
func (d *decoder) input(in *Input, from *spot, given map[string]bool) yamltree.Shape {
	key := func(name string, read func(value)) yamltree.Key {
		return optional(name, func(v value) {
			given[name] = true
			read(v)
		})
	}
	return yamltree.Shape{What: "an input", Keys: []yamltree.Key{
		key("name", d.into(&in.Name, freeName)),
		key("description", d.into(&in.Description)),
		key("file", d.into(&in.File, freeName)),
		key("from_step", d.named(&in.FromStep, from, filled)),
	}}
}

func (d *decoder) checkInput(v value, given map[string]bool) {
	const forms = "write either name and description, or file and from_step"
	keys := []string{"name", "description"}
	byUser, byStep := given["name"] || given["description"], given["file"] || given["from_step"]
	switch {
	case byUser && byStep:
		d.Fault(v.At(), "mixes two kinds of input: %s", forms)
		return
	case !byUser && !byStep:
		d.Fault(v.At(), "says nothing: %s", forms)
		return
	case byStep:
		keys = []string{"file", "from_step"}
	}
	for _, k := range keys {
		if !given[k] {
			d.Fault(v.At(), "%s is missing: %s", k, forms)
		}
	}
}

func (d *decoder) hooks(h *Hooks) yamltree.Shape {
	return yamltree.Shape{What: "hooks", Keys: []yamltree.Key{
		optional("after_agent", d.hookList(&h.AfterAgent)),
		optional("before_tool", d.hookList(&h.BeforeTool)),
		optional("before_prompt", d.hookList(&h.BeforePrompt)),
	}}
}

func (d *decoder) hookList(to *[]Hook) func(value) {
	return func(v value) {
		d.List(v, "a list of hooks", func(_ int, v value) {
			var h Hook
			count := 0
			if !d.Mapping(v, d.hook(&h, &count)) {
				return
			}
			if count != 1 {
				d.Fault(v.At(), "has %d of prompt, prompt_file and script: write exactly one", count)
			}
			*to = append(*to, h)
		})
	}
}

func (d *decoder) hook(h *Hook, count *int) yamltree.Shape {
	file := func(name string, to *string) yamltree.Key {
		return optional(name, func(v value) {
			*count++
			if file, ok := d.text(v, insidePath); ok {
				*to, h.at, h.path = path.Clean(file), yamltree.At(v.Key), d.Path()
			}
		})
	}
	return yamltree.Shape{What: "a hook", Keys: []yamltree.Key{
		optional("prompt", func(v value) {
			*count++
			d.into(&h.Prompt, filled)(v)
		}),
		file("prompt_file", &h.PromptFile),
		file("script", &h.Script),
	}}
}
