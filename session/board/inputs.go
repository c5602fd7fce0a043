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
	"deepwork/session/workflow/machine"
)

// Inputs are values of the inputs of a workflow, by name: each is a text, a path, or a list of paths.
type Inputs map[string]machine.OutputValue

// forTask returns the values as a task has them, and refuses those that its workflow does not take. Others
// may be missing, as the agent can ask for them; files are not looked for, as earlier tasks may make them.
func (in Inputs) forTask(wf *job.Workflow) (json.RawMessage, error) {
	if len(in) == 0 {
		return nil, nil
	}

	if wf == nil {
		return nil, session.Wrong(codes.BadInputs,
			"The task has no workflow that takes inputs. Pass job_name and workflow_name, or leave inputs out.").
			With("argument", "inputs")
	}

	lenient := *wf
	lenient.Inputs = slices.Clone(wf.Inputs)
	for i := range lenient.Inputs {
		lenient.Inputs[i].Required, lenient.Inputs[i].Default = false, nil
	}

	values, err := machine.ParseInputs(&lenient, in)
	return Stored(in.Of(values)), err
}

// Of returns the values that were given, unchanged, in the workflow's order. Defaults are filled in when the workflow
// starts.
func (in Inputs) Of(checked machine.Outputs) (all machine.Outputs) {
	for _, v := range checked {
		if given, ok := in[v.Key]; ok {
			given.List = given.List || v.Value.List
			all = append(all, jsontext.Pair[machine.OutputValue]{Key: v.Key, Value: given})
		}
	}
	return all
}

// Stored returns values as a task has them.
func Stored(values machine.Outputs) json.RawMessage {
	if len(values) == 0 {
		return nil
	}
	data, _ := json.Marshal(values) // texts can be encoded
	return data
}

// InputsOf returns the values of the inputs of a task's workflow that are known.
func InputsOf(t *task.Task) (all machine.Outputs) {
	_ = json.Unmarshal(t.Inputs, &all) // the board has checked them; none are an error
	return all
}

// RunInputs returns the values for a run of a task. It refuses the run if its workflow needs others.
func RunInputs(t *task.Task, wf *job.Workflow) (machine.Outputs, error) {
	values := InputsOf(t)
	if wf == nil {
		return values, nil
	}
	_, err := machine.ParseInputs(wf, Given(values))
	if refused, ok := errors.AsType[*session.Error](err); ok {
		refused.Message += " The task does not have them; update_task sets its inputs."
	}
	return values, err
}

// Given returns values as they are given when a workflow is started.
func Given(values machine.Outputs) Inputs {
	given := Inputs{}
	for _, v := range values {
		given[v.Key] = v.Value
	}
	return given
}
