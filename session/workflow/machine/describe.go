package machine

import (
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// A Described is an entry as an agent reads it.
type Described struct {
	First  *StepInfo  // its instructions end with a paragraph about its group (seed 000, 001.4.18)
	Others []StepInfo // nil if there is no group
	Group  *string    // how to hand out the members; nil if there is no group
}

// Describe describes the steps of an entry for an agent.
func (s *State) Describe(def *Definition, entry job.Entry, texts Instructions) Described {
	infos, room := make([]StepInfo, len(entry)), listing(listedBytes)
	for i, id := range entry {
		st := def.Job.Step(id)
		infos[i] = stepInfo(def, st, texts[id])
		infos[i].Inputs = s.inputs(def, st, &room)
		if i == 0 {
			infos[i].SessionID, infos[i].BranchName, infos[i].BranchStatus = s.SessionID, s.BranchName, s.BranchStatus
		} else {
			infos[i].JobDir, infos[i].CommonJobInfo = "", nil
		}
	}
	d := Described{First: &infos[0]}
	if len(entry) > 1 {
		infos[0].Instructions, d.Others, d.Group = withGroup(infos[0].Instructions, entry), infos[1:], new(handOut(s.SessionID))
	}
	return d
}

// stepInfo describes one step (seed 000, 001.3.11 to 001.3.14).
func stepInfo(def *Definition, st *job.Step, text string) StepInfo {
	info := StepInfo{
		StepID: st.ID, JobDir: def.Job.Dir, Instructions: text, CommonJobInfo: &def.Job.CommonInfo,
		ExpectedOutputs: make([]ExpectedOutput, len(st.Outputs)),
		Reviews:         make([]ReviewInfo, len(st.Reviews)),
		QualityCriteria: []string{},
	}
	for i, o := range st.Outputs {
		syntax := "filepath" // seed 000, 001.3.14
		if o.Type == job.Files {
			syntax = "array of filepaths for all individual files"
		}
		info.ExpectedOutputs[i] = ExpectedOutput{o.Name, string(o.Type), o.Description, o.Required, syntax}
	}
	for i, r := range st.Reviews {
		criteria := make(jsontext.OrderedMap[string], len(r.Criteria))
		for k, c := range r.Criteria {
			criteria[k] = jsontext.Pair[string]{Key: c.Name, Value: c.Question}
			info.QualityCriteria = append(info.QualityCriteria, c.Question)
		}
		info.Reviews[i] = ReviewInfo{RunEach: r.RunEach, Criteria: criteria, Guidance: r.Guidance}
		if r.ByHuman {
			info.Reviews[i].By = "human"
		}
	}
	return info
}

// withGroup ends a primary's instructions with a paragraph about its group.
func withGroup(instructions string, entry job.Entry) string {
	return strings.TrimRight(instructions, "\n") + "\n\n**CONCURRENT STEPS** The text above is for step '" + entry[0] + "' alone. " +
		"It is the first of " + Count(len(entry), "step") + " to be done at the same time, each by its own subagent (with the Task tool, or another tool that starts one): " + quoteList(entry) + ". " +
		"If you distribute them, the other steps are in concurrent_steps, and how to hand them out is in concurrent_group."
}

// handOut says how the members of a group are distributed.
func handOut(sessionID string) string {
	return "Start one subagent for each step and have it call get_step with session_id '" + sessionID + "' and its step_id: the reply is all it needs. " +
		"A subagent without these tools gets its step's description from you, with job_dir and common_job_info of begin_step. " +
		"Report each step with finished_step, with session_id, step_id and its outputs, in any order; the reply to the last one has the next step. " +
		"Without subagents, do the steps one after the other."
}

// Notice returns a notice, or nil, with further texts that are not empty.
func Notice(of *string, texts ...string) *string {
	for _, text := range texts {
		switch {
		case text == "":
		case of == nil:
			of = &text
		default:
			of = new(*of + " " + text)
		}
	}
	return of
}

// Preview returns the text that an agent reads when a step begins, without the parts of a session
// (its id and branch). A step in different groups of workflows is described for the first of them.
// Errors are those of job.Instructions.
func Preview(j *job.Job, st *job.Step) (*StepInfo, error) {
	text, err := job.Instructions(j, st)
	if err != nil {
		return nil, err
	}
	def := &Definition{Job: j}
	info := stepInfo(def, st, text)
	info.Inputs = (*State)(nil).inputs(def, st, nil)
	for i := range j.Workflows {
		wf := &j.Workflows[i]
		if at := wf.Find(st.ID); at >= 0 {
			if entry := wf.Entries[at]; len(entry) > 1 && entry[0] == st.ID {
				info.Instructions = withGroup(info.Instructions, entry)
			}
			break
		}
	}
	return &info, nil
}
