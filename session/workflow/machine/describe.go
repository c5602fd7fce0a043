package machine

import (
	"strings"

	"deepwork/catalog/job"
)

// Describe describes the steps of an entry for an agent, the first separately; its instructions end
// with the message about its group (seed 000, 001.4.18). others is nil if there is no group.
func (s *State) Describe(def *Definition, entry job.Entry, texts Instructions) (first *StepInfo, others []StepInfo) {
	infos := make([]StepInfo, len(entry))
	for i, id := range entry {
		infos[i] = stepInfo(def, def.Job.Step(id), texts[id])
		infos[i].SessionID, infos[i].BranchName = s.SessionID, s.BranchName
	}
	if len(entry) > 1 {
		infos[0].Instructions, others = withGroup(infos[0].Instructions, entry), infos[1:]
	}
	return &infos[0], others
}

// stepInfo describes one step (seed 000, 001.3.11 to 001.3.14).
func stepInfo(def *Definition, st *job.Step, text string) StepInfo {
	info := StepInfo{
		StepID: st.ID, JobDir: def.Job.Dir, Instructions: text, CommonJobInfo: def.Job.CommonInfo,
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
		criteria := make(OrderedMap[string], len(r.Criteria))
		for k, c := range r.Criteria {
			criteria[k] = Pair[string]{c.Name, c.Question}
			info.QualityCriteria = append(info.QualityCriteria, c.Question)
		}
		info.Reviews[i] = ReviewInfo{RunEach: r.RunEach, Criteria: criteria, Guidance: r.Guidance}
	}
	return info
}

// withGroup appends to a primary's instructions how to do the members of its group.
func withGroup(instructions string, entry job.Entry) string {
	return strings.TrimRight(instructions, "\n") + "\n\n**CONCURRENT STEPS**\n\n" +
		"This step is one of " + Count(len(entry), "step") + " that are done in parallel: " + quoteList(entry) + ".\n" +
		"Use the Task tool, or whatever starts subagents here, to do them at the same time: one subagent for each. " +
		"Give each subagent its step's whole description: this one is begin_step, the others are in concurrent_steps. " +
		"Each reports its own step with finished_step, passing session_id, step_id and that step's outputs, in any order. " +
		"The workflow goes on when all of them are finished; the reply to the last one has the next step. " +
		"Where there are no subagents, do them one after the other in the same way."
}

// NoticeOf returns the notice of a definition, or nil.
func NoticeOf(def *Definition) *string {
	if def.Notice == "" {
		return nil
	}
	return new(def.Notice)
}

// Preview returns the text that an agent reads when a step begins, without the parts of a session
// (its id and branch). A step in different groups of workflows is described for the first of them.
// Errors are those of job.Instructions.
func Preview(j *job.Job, st *job.Step) (*StepInfo, error) {
	text, err := job.Instructions(j, st)
	if err != nil {
		return nil, err
	}
	info := stepInfo(&Definition{Job: j}, st, text)
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
