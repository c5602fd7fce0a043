package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/replies"
)

// A Definition is a workflow of a job, as a session uses it. It is immutable.
type Definition struct {
	Job      *job.Job // the job as the workflow's sessions see it, made by Job.Of
	Workflow *job.Workflow
	Ref      DefinitionRef
	// Notice tells callers about the definition; "" if it is the current job's.
	Notice string
	// Kept means that the current job cannot continue the session, so this is the stored definition, with
	// instructions.
	Kept bool

	// Protected is the current state of the files that the steps of a transition protect, by step.
	Protected map[string]*Protected

	Texts   map[string]string          // the instructions by step, if stored
	Schemas map[string]json.RawMessage // Bundle.Schemas, if stored
	// Data is the bundle of Ref, to be stored with the transition that uses it; nil if already stored.
	Data []byte
}

// Define returns the definition of a workflow that the job has. It has no Ref yet.
func Define(j *job.Job, workflow string) *Definition {
	return &Definition{Job: j.Of(workflow), Workflow: j.Workflow(workflow)}
}

// For returns the definition as a session sees it; see State.Isolated.
func (def *Definition) For(s *State) *Definition {
	if !s.Isolated {
		return def
	}
	isolated := *def
	isolated.Workflow = def.Workflow.Isolated()
	return &isolated
}

// A Bundle is the content of a stored definition.
type Bundle struct {
	JobDir       string            `json:"job_dir"`
	Workflow     string            `json:"workflow"`
	Source       string            `json:"source"`       // the text of job.yml
	Instructions map[string]string `json:"instructions"` // by step id; unreadable ones are left out

	// by file: the schemas of outputs, also of nested workflows; unreadable ones are left out
	Schemas map[string]json.RawMessage `json:"schemas,omitempty"`
}

// Encode returns the bundle's bytes and their hash.
func (b *Bundle) Encode() (data []byte, hash string, err error) {
	data, err = jsontext.Encode(b) // map keys are sorted, so equal Bundles have equal bytes
	return data, session.Digest(string(data)), err
}

// DecodeBundle makes a stored definition from a bundle's bytes.
func DecodeBundle(ref DefinitionRef, data []byte) (*Definition, error) {
	var b Bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("reading the kept definition %s: %w", ref.Hash, err)
	}

	j, faults := job.Parse(b.JobDir, job.FileName, []byte(b.Source))
	if j == nil {
		return nil, fmt.Errorf("reading the kept definition %s: %w", ref.Hash, faults)
	}
	j.SetSchemas(b.Schemas)
	def := Define(j, b.Workflow)
	if def.Workflow == nil {
		return nil, fmt.Errorf("reading the kept definition %s: it has no workflow %q", ref.Hash, b.Workflow)
	}
	def.Ref = ref
	def.Kept = true
	def.Texts = b.Instructions
	def.Schemas = b.Schemas
	return def, nil
}

// KeptTexts returns the instructions of an entry of a stored definition.
func (def *Definition) KeptTexts(entry job.Entry) (Instructions, error) {
	texts := make(Instructions, len(entry))
	for _, id := range entry {
		template, _, _ := job.SplitItem(id)
		text, ok := def.Texts[template]
		if !ok {
			return nil, session.NotNow(codes.InstructionsLost,
				"The instructions of step '%s' of job '%s' were not kept, because their file was missing when they "+
					"should have been. Restore the job.", id, def.Job.Name).
				Next("abort the session instead", "abort_workflow")
		}
		texts[id] = text
	}
	return texts, nil
}

// A Described is an entry, described for an agent.
type Described struct {
	First  *replies.StepInfo  // its instructions end with a paragraph about the group (seed 000, 001.4.18)
	Others []replies.StepInfo // nil without a group
	Group  *string            // how to hand out the members; nil without a group
}

// Describe describes the steps of an entry for an agent.
func (s *State) Describe(def *Definition, entry job.Entry, texts Instructions) Described {
	entry = entry[:min(len(entry), max(ShownItems, len(def.Workflow.Entries[def.Workflow.Find(entry[0])])))]
	infos, room := make([]replies.StepInfo, len(entry)), newListing()
	for i, id := range entry {
		st := def.Job.Step(id)
		infos[i] = stepInfo(def, st, texts[id])
		infos[i].Inputs = s.stepInputs(def, st, room)
		infos[i].Position = fmt.Sprintf("%d of %d", def.Workflow.Find(id)+1, len(def.Workflow.Entries))
		infos[i].Item, infos[i].Round = s.itemInfo(def, id), s.RoundOf(def, id)
		switch p := s.Progress(id); {
		case st.Call == nil || p == nil:
		case p.Child == "":
			infos[i].Instructions += fmt.Sprintf(" It has not begun yet: call go_to_step with step_id '%s'.", id)
		default:
			infos[i].Instructions += fmt.Sprintf(" Follow it: call get_step with session_id '%s'. If that session is "+
				"completed, call finished_step with step_id '%s'; if it was aborted, go_to_step with that step_id "+
				"starts it again.", p.Child, id)
		}

		if i == 0 {
			infos[i].SessionID = s.SessionID
			infos[i].BranchName = s.BranchName
			infos[i].BranchStatus = s.BranchStatus
			infos[i].ProjectRoot = s.Folder(def, id) // made absolute when the reply is sent
		} else {
			infos[i].JobDir, infos[i].CommonJobInfo = "", nil
		}
	}

	d := Described{First: &infos[0]}
	if index := def.Workflow.Find(entry[0]); forEach(def, index) != nil {
		d.Others, d.Group = infos[1:], new(handOutItems(s.SessionID, s.Items(def, index)))
	} else if len(entry) > 1 {
		infos[0].Instructions = withGroup(infos[0].Instructions, entry)
		d.Others = infos[1:]
		d.Group = new(handOut(s.SessionID))
	}
	return d
}

// syntaxes are the forms of the values of outputs (seed 000, 001.3.14).
var syntaxes = map[job.OutputType]string{
	job.File:     "filepath",
	job.Files:    "array of filepaths for all individual files",
	job.FilePath: "filepath or list of filepaths",
	job.Text:     "text, up to 100,000 characters",
}

// stepInfo describes one step (seed 000, 001.3.11 to 001.3.14).
func stepInfo(def *Definition, st *job.Step, text string) replies.StepInfo {
	if st.Call != nil {
		text = "This step is the workflow '" + st.Call.String() +
			"', which has a session of its own. When that is complete, this step is finished."
	}
	info := replies.StepInfo{
		StepID:          st.ID,
		Name:            st.Name,
		Description:     st.Description,
		JobDir:          def.Job.Dir,
		Instructions:    text,
		CommonJobInfo:   &def.Job.CommonInfo,
		ExpectedOutputs: make([]replies.ExpectedOutput, len(st.Outputs)),
		Reviews:         make([]replies.ReviewInfo, len(st.Reviews)),
		QualityCriteria: []string{},
	}
	if def.Workflow != nil {
		info.Position = fmt.Sprintf("%d of %d", def.Workflow.Find(st.ID)+1, len(def.Workflow.Entries))
	}
	for i, o := range st.Outputs {
		info.ExpectedOutputs[i] = replies.ExpectedOutput{
			Name:        o.Name,
			Type:        string(o.Type),
			Description: o.Description,
			Required:    o.Required,
			Syntax:      syntaxes[o.Type],
		}
	}

	for i, r := range st.Reviews {
		criteria := make(jsontext.OrderedMap[string], len(r.Criteria))
		for k, c := range r.Criteria {
			criteria[k] = jsontext.Pair[string]{Key: c.Name, Value: c.Question}
			info.QualityCriteria = append(info.QualityCriteria, c.Question)
		}
		info.Reviews[i] = replies.ReviewInfo{
			RunEach:  r.RunEach,
			Criteria: criteria,
			Guidance: r.Guidance,
			Together: r.Together,
			Account:  r.Account,
		}
		if r.ByHuman {
			info.Reviews[i].By = "human"
		}
	}
	for _, c := range st.Checks {
		info.Checks = append(info.Checks, replies.CheckInfo{Name: c.Name, Run: c.Run, Protect: c.Protect})
	}
	return info
}

// withGroup adds a paragraph about the group to the instructions of its primary.
func withGroup(instructions string, entry job.Entry) string {
	return strings.TrimRight(instructions, "\n") + "\n\n**CONCURRENT STEPS** The text above is for step '" + entry[0] +
		"' alone. " +
		"It is the first of " + Count(len(entry), "step") +
		" to be done at the same time, each by its own subagent (with the Task tool, or another tool that starts " +
		"one): " + session.Quoted(entry) + ". " +
		"If you distribute them, the other steps are in concurrent_steps, and how to hand them out is in " +
		"concurrent_group."
}

// handOut says how to distribute the members of a group.
func handOut(sessionID string) string {
	return "Start one subagent for each step and have it call get_step with session_id '" + sessionID +
		"' and its step_id: the reply is all it needs. " +
		"A subagent without these tools gets its step's description from you, with job_dir and common_job_info of " +
		"begin_step. Report each step with finished_step, with session_id, step_id and its outputs, in any order; " +
		"the reply to the last one has the next step. Without subagents, do the steps one after the other."
}

// handOutItems says how to distribute the items of a list.
func handOutItems(sessionID string, items []json.RawMessage) string {
	return fmt.Sprintf("This is done for each of %s; begin_step and concurrent_steps have those that may be worked "+
		"on now, each with its item. ", Count(len(items), "item")) +
		"Start one subagent for each and have it call get_step with session_id '" + sessionID +
		"' and its step_id; one that has a session_id of its own is a workflow, of which it calls get_step with " +
		"that. Report each step with finished_step and its step_id: the reply has the next step of that item, or the " +
		"next item. Without subagents, do them one after the other."
}

// Preview returns the text that an agent reads when a step begins, without what depends on a session (its id
// and branch). A step of several workflows is described for the first one. It returns the errors of
// job.Instructions.
func Preview(j *job.Job, st *job.Step) (*replies.StepInfo, error) {
	text, err := job.Instructions(j, st)
	if err != nil {
		return nil, err
	}

	def := &Definition{Job: j}
	at := slices.IndexFunc(j.Workflows, func(wf job.Workflow) bool {
		return wf.Find(st.ID) >= 0 && (st.Workflow == "" || st.Workflow == wf.Name)
	})
	if at >= 0 {
		def = Define(j, j.Workflows[at].Name)
	}
	info := stepInfo(def, st, text)
	info.JobDir = j.Dir
	info.Inputs = (*State)(nil).stepInputs(def, st, nil)
	if at >= 0 {
		index := def.Workflow.Find(st.ID)
		if entry := def.Workflow.Entries[index]; len(entry) > 1 && entry[0] == st.ID && forEach(def, index) == nil {
			info.Instructions = withGroup(info.Instructions, entry)
		}
	}
	return &info, nil
}
