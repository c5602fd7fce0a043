package board

import (
	"encoding/json"
	"errors"
	"slices"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
)

// Inputs are values of the inputs of a workflow, by name: each is a text, a path, or a list of paths.
type Inputs map[string]outputs.Value

// forTask returns the values in the form of a task, and refuses values that its workflow does not take.
// Values may be missing, since the agent can ask for them; files may not exist yet, since earlier tasks may
// make them.
func (in Inputs) forTask(wf *job.Workflow) (json.RawMessage, error) {
	if len(in) == 0 {
		return nil, nil
	}

	if wf == nil {
		return nil, session.Wrong(codes.BadInputs,
			"The task has no workflow that takes inputs. Name its job and workflow, or leave the inputs out.").
			With("argument", "inputs")
	}

	lenient := *wf
	lenient.Inputs = slices.Clone(wf.Inputs)
	for i := range lenient.Inputs {
		lenient.Inputs[i].Required, lenient.Inputs[i].Default = false, nil
	}

	values, err := outputs.ParseInputs(&lenient, in)
	return Stored(in.Of(values)), err
}

// Of returns the given values, unchanged, in the workflow's order. Defaults are filled in when the workflow
// starts.
func (in Inputs) Of(checked outputs.Map) (all outputs.Map) {
	for _, v := range checked {
		if given, ok := in[v.Key]; ok {
			given.List = given.List || v.Value.List
			all = append(all, jsontext.Pair[outputs.Value]{Key: v.Key, Value: given})
		}
	}
	return all
}

// Stored returns values in the form of a task.
func Stored(values outputs.Map) json.RawMessage {
	if len(values) == 0 {
		return nil
	}
	data, _ := json.Marshal(values) // encoding texts never fails
	return data
}

// InputsOf returns the known values of the inputs of a task's workflow.
func InputsOf(t *task.Task) (all outputs.Map) {
	_ = json.Unmarshal(t.Inputs, &all) // checked by the board; empty Inputs give an error
	return all
}

// RunInputs returns the values for a run of a task. It refuses the run if its workflow needs others.
func RunInputs(t *task.Task, wf *job.Workflow) (outputs.Map, error) {
	values := InputsOf(t)
	if wf == nil {
		return values, nil
	}
	_, err := outputs.ParseInputs(wf, Given(values))
	if refused, ok := errors.AsType[*session.Error](err); ok {
		refused.Add("The task does not have them.").Next("set its inputs", "update_task")
	}
	return values, err
}

// Given returns values in the form of start_workflow's arguments.
func Given(values outputs.Map) Inputs {
	given := Inputs{}
	for _, v := range values {
		given[v.Key] = v.Value
	}
	return given
}
