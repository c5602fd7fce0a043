package job

import (
	"path"

	"deepwork/catalog/internal/yamltree"
)

type stepReader struct {
	*decoder
	Step
	nodes     stepNodes
	stopHooks []Hook
}

var stepShape = yamltree.Shape[*stepReader]{What: "a step", Keys: []yamltree.Key[*stepReader]{
	yamltree.Required("id", "an id, such as id: draft", func(r *stepReader, v value) {
		// An id that breaks the pattern is still one that others may name.
		if r.ID, _ = r.text(v, identifier); r.ID != "" {
			r.nodes.id = v.Node
		}
	}),
	yamltree.Required("name", "a title for people", func(r *stepReader, v value) { r.Name, _ = r.text(v) }),
	yamltree.Required("description", "what the step does", func(r *stepReader, v value) { r.Description, _ = r.text(v) }),
	yamltree.Required("instructions_file", "the path of a Markdown file, such as instructions_file: steps/draft.md", func(r *stepReader, v value) {
		if file, ok := r.text(v, insidePath); ok {
			r.InstructionsFile, r.instructionsAt = path.Clean(file), yamltree.At(v.Key)
		}
	}),
	yamltree.Required("outputs", "a mapping of output names, or outputs: {} for none", func(r *stepReader, v value) { r.Outputs = r.outputs(v) }),
	yamltree.Required("reviews", "a list of reviews, or reviews: [] for none", func(r *stepReader, v value) {
		r.List(v, "a list of reviews ([] for none)", func(i int, v value) {
			review := reviewReader{decoder: r.decoder, runEach: spot{index: i}}
			if reviewShape.Read(&r.Decoder, &review, v) {
				r.Reviews, r.nodes.runEach = append(r.Reviews, review.Review), append(r.nodes.runEach, review.runEach)
			}
		})
	}),
	yamltree.Optional("inputs", func(r *stepReader, v value) {
		r.List(v, "a list of inputs", func(i int, v value) {
			if in, from, ok := r.input(i, v); ok {
				r.Inputs, r.nodes.fromSteps = append(r.Inputs, in), append(r.nodes.fromSteps, from)
			}
		})
	}),
	yamltree.Optional("dependencies", func(r *stepReader, v value) {
		r.List(v, "a list of step ids", func(i int, v value) {
			if id, ok := r.text(v, filled); ok {
				r.Dependencies, r.nodes.dependencies = append(r.Dependencies, id), append(r.nodes.dependencies, spot{v.Node, i})
			}
		})
	}),
	yamltree.Optional("hooks", func(r *stepReader, v value) { hooksShape.Read(&r.Decoder, hooksReader{r.decoder, &r.Hooks}, v) }),
	yamltree.Optional("stop_hooks", func(r *stepReader, v value) { r.stopHooks = r.hooks(v) }),
	yamltree.Optional("exposed", func(r *stepReader, v value) { r.boolean(v, &r.Exposed) }),
	yamltree.Optional("hidden", func(r *stepReader, v value) { r.boolean(v, &r.Hidden) }),
	yamltree.Optional("agent", func(r *stepReader, v value) { r.Agent = r.optional(v) }),
}}

type outputReader struct {
	*decoder
	Output
}

var outputShape = yamltree.Shape[*outputReader]{What: "an output", Keys: []yamltree.Key[*outputReader]{
	yamltree.Required("type", "type: file, or type: files", func(r *outputReader, v value) {
		if s, ok := r.text(v, outputType); ok {
			r.Type = OutputType(s)
		}
	}),
	yamltree.Required("description", "what the output is", func(r *outputReader, v value) { r.Description, _ = r.text(v) }),
	yamltree.Optional("required", func(r *outputReader, v value) { r.boolean(v, &r.Required) }),
}}

func (d *decoder) outputs(v value) []Output {
	outputs := []Output{}
	_, ok := d.Entries(v, "a mapping of output names ({} for none)", func(v value) {
		if fault := freeName(v.Key.Value); fault != "" {
			d.Fault(yamltree.At(v.Key), "%s", fault)
		}
		r := outputReader{d, Output{Name: v.Key.Value, Required: true}}
		outputShape.Read(&d.Decoder, &r, v)
		outputs = append(outputs, r.Output)
	})
	if !ok {
		return nil
	}
	return outputs
}

type reviewReader struct {
	*decoder
	Review
	runEach spot
}

var reviewShape = yamltree.Shape[*reviewReader]{What: "a review", Keys: []yamltree.Key[*reviewReader]{
	yamltree.Required("run_each", "run_each: step, or the name of an output", func(r *reviewReader, v value) {
		var ok bool
		if r.RunEach, ok = r.text(v, filled); ok {
			r.runEach.node = v.Node
		}
	}),
	yamltree.Required("quality_criteria", "a mapping of criteria to questions", func(r *reviewReader, v value) {
		count, ok := r.Entries(v, "a mapping of criteria to questions", func(v value) {
			if filled(v.Key.Value) != "" {
				r.Fault(yamltree.At(v.Key), "is an empty name: give it one")
			}
			if q, ok := r.text(v, filled); ok {
				r.Criteria = append(r.Criteria, Criteria{v.Key.Value, q})
			}
		})
		if ok && count == 0 {
			r.Fault(v.At(), "has no entries: add at least one criterion, as in Complete: Does it cover everything?")
		}
	}),
	yamltree.Optional("additional_review_guidance", func(r *reviewReader, v value) { r.Guidance = r.optional(v) }),
}}

type inputReader struct {
	*decoder
	Input
	from  spot
	given [4]bool // parallel to the keys of the shape
}

func (r *inputReader) read(key int, v value, to *string, rule textRule) {
	r.given[key] = true
	var ok bool
	if *to, ok = r.text(v, rule); ok && to == &r.FromStep {
		r.from.node = v.Node
	}
}

var inputShape = yamltree.Shape[*inputReader]{What: "an input", Keys: []yamltree.Key[*inputReader]{
	yamltree.Optional("name", func(r *inputReader, v value) { r.read(0, v, &r.Name, freeName) }),
	yamltree.Optional("description", func(r *inputReader, v value) { r.read(1, v, &r.Description, anything) }),
	yamltree.Optional("file", func(r *inputReader, v value) { r.read(2, v, &r.File, freeName) }),
	yamltree.Optional("from_step", func(r *inputReader, v value) { r.read(3, v, &r.FromStep, filled) }),
}}

func (d *decoder) input(i int, v value) (in Input, from spot, ok bool) {
	r := inputReader{decoder: d, from: spot{index: i}}
	if !inputShape.Read(&d.Decoder, &r, v) {
		return in, from, false
	}
	byUser, byStep := r.given[0] || r.given[1], r.given[2] || r.given[3]
	const forms = "write either name and description, or file and from_step"
	switch {
	case byUser && byStep:
		d.Fault(v.At(), "mixes two kinds of input: %s", forms)
	case !byUser && !byStep:
		d.Fault(v.At(), "says nothing: %s", forms)
	default:
		for i, k := range inputShape.Keys {
			if !r.given[i] && (i < 2) == byUser {
				d.Fault(v.At(), "%s is missing: %s", k.Name, forms)
			}
		}
	}
	return r.Input, r.from, true
}

type hooksReader struct {
	*decoder
	*Hooks
}

var hooksShape = yamltree.Shape[hooksReader]{What: "hooks", Keys: []yamltree.Key[hooksReader]{
	yamltree.Optional("after_agent", func(r hooksReader, v value) { r.AfterAgent = r.hooks(v) }),
	yamltree.Optional("before_tool", func(r hooksReader, v value) { r.BeforeTool = r.hooks(v) }),
	yamltree.Optional("before_prompt", func(r hooksReader, v value) { r.BeforePrompt = r.hooks(v) }),
}}

func (d *decoder) hooks(v value) (hooks []Hook) {
	d.List(v, "a list of hooks", func(_ int, v value) {
		r := hookReader{decoder: d}
		if !hookShape.Read(&d.Decoder, &r, v) {
			return
		}
		if r.count != 1 {
			d.Fault(v.At(), "has %d of prompt, prompt_file and script: write exactly one", r.count)
		}
		hooks = append(hooks, r.Hook)
	})
	return hooks
}

type hookReader struct {
	*decoder
	Hook
	count int
}

func (r *hookReader) readFile(v value, to *string) {
	r.count++
	if file, ok := r.text(v, insidePath); ok {
		*to, r.at, r.path = path.Clean(file), yamltree.At(v.Key), r.Path()
	}
}

var hookShape = yamltree.Shape[*hookReader]{What: "a hook", Keys: []yamltree.Key[*hookReader]{
	yamltree.Optional("prompt", func(r *hookReader, v value) {
		r.count++
		r.Prompt, _ = r.text(v, filled)
	}),
	yamltree.Optional("prompt_file", func(r *hookReader, v value) { r.readFile(v, &r.PromptFile) }),
	yamltree.Optional("script", func(r *hookReader, v value) { r.readFile(v, &r.Script) }),
}}
