package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"

	"deepwork/catalog/schema"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/pin"
)

// A look is what has to be read, outside of the actor, before a hand-in can be judged.
type look struct {
	step     string
	subject  *check.Subject            // what the step's checks judge; without checks, the files of its outputs
	outputs  outputs.Map               // validated, with the files of folders
	schemas  map[string]*schema.Schema // of the step's outputs, by name
	asks     bool                      // a person is asked about the outputs, among others
	recorded []judging.FileHash        // the newest recorded hand-in
}

// A contents value is the content of a look.
type contents struct {
	*look
	content  *check.Content
	misfits  string    // what is wrong with the outputs by their schemas, or ""
	handedIn *handedIn // the outputs to record for a person; nil if recorded, or not for one
}

// read reads the submitted files and what the checks judge, and validates files by their schemas.
func (l *look) read(ctx context.Context) (*contents, error) {
	r := &contents{look: l}
	var err error
	if r.content, err = l.subject.Look(ctx); err == nil {
		r.misfits, err = misfits(ctx, l.subject.Root, l.outputs, l.schemas, r.content.Outputs)
	}
	if err == nil && l.asks {
		if files := judging.FileHashes(l.outputs, r.content.Outputs); !slices.Equal(files, l.recorded) {
			r.handedIn, err = packHandIn(l.subject.Root, l.outputs, files)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, session.Wrong(codes.FileUnreadable,
			"The outputs, or what their checks are about, cannot be read, so nothing has moved: %v. Correct that and "+
				"make the same call again.", err).Because(err)
	}
	return r, nil
}

// look returns what has to be read before a hand-in is judged, or nil if nothing of it is.
func (a *sessionActor) look(c *candidate) (*look, error) {
	st := c.plan.Step
	schemas, err := a.schemas(c.def, st)
	if err != nil {
		return nil, err
	}
	asks := len(st.ReviewsBy(true)) > 0 || a.state.Exhausted(c.def, c.plan, c.outputs) != ""
	if !a.engine.reviewed(st) && !asks && len(schemas) == 0 && len(st.Checks) == 0 {
		return nil, nil
	}
	l := &look{step: st.ID, subject: a.subject(c), outputs: c.expanded, schemas: schemas, asks: asks}
	if last := a.state.Progress(st.ID).Handed(); last != nil {
		l.recorded = last.Files
	}
	return l, nil
}

// fits reports whether what was read is what the hand-in is about: an edit of the job may have changed that, or a
// file may have come into a folder.
func (r *contents) fits(l *look) bool {
	return r != nil && r.step == l.step && reflect.DeepEqual(r.subject.Checks, l.subject.Checks) &&
		!slices.ContainsFunc(l.subject.Outputs, func(path string) bool { return r.content.Outputs[path] == "" })
}

// A candidate is a finished_step with valid outputs for a step that was found.
type candidate struct {
	m        *finishCall
	def      *machine.Definition
	plan     *machine.Plan
	outputs  outputs.Map // as submitted
	expanded outputs.Map // with the files of folders
	how      pin.Reviewing
	read     *contents
	files    []judging.FileHash // the files of the outputs, if the step has reviews or checks
	digest   string             // the digest of the content that is judged; "" if nothing was read
	bound    string             // of that and of what the checks are about; "" without checks
	tasks    []gate.Task        // of the reviews by reviewers
	now      judging.Now
}

// bind computes the digests of the content, which verdicts refer to.
func (a *sessionActor) bind(c *candidate, r *contents) {
	c.read = r
	hashes := r.content.Outputs
	sub := a.submission(c)
	c.tasks = gate.Plan(sub, hashes)
	for _, j := range a.engine.Judges {
		if j.Judges(c.plan.Step) {
			c.tasks = append(c.tasks, j.Tasks(sub, hashes)...)
		}
	}
	c.files = judging.FileHashes(c.expanded, hashes)
	var checked []judging.FileHash
	if len(r.schemas)+len(c.plan.Step.Checks) > 0 {
		checked = c.files
	}
	c.digest = contentDigest(c.outputs, slices.Concat(c.tasks, gate.PlanHuman(sub, hashes)), checked...)
	if len(c.plan.Step.Checks) > 0 {
		c.bound = r.content.Bound(c.digest)
	}
}

// rules returns how the hand-ins of the step are judged.
func (a *sessionActor) rules(c *candidate) judging.Rules {
	st := c.plan.Step
	r := judging.Rules{
		Reviews:  len(st.ReviewsBy(false)) > 0,
		Off:      !a.engine.Reviews,
		External: c.how.External,
		Refused:  c.how.Refused,
		Account:  gate.JudgesAccount(st),
		MaxTries: c.how.MaxTries,
		Override: c.how.Override,
	}
	if a.engine.hasJudges(st) {
		r.Reviews, r.External, r.Refused = true, true, a.withoutReviewer(c)
	}
	if c.read == nil {
		return r
	}

	for i, k := range a.checksOf(c) {
		bound := c.read.content.BoundTo(i)
		r.Judges = append(r.Judges, judging.Judge{
			Kind:   judging.ByProgram,
			Key:    check.Key(&k),
			Digest: c.read.content.Digest(i),
			Name:   k.Name,
			Ends:   k.Ends,
			Never:  k.Never(),
			Again:  bound == check.ToOutputs,
		})
	}
	for _, t := range c.tasks {
		r.Judges = append(r.Judges, judging.Judge{Kind: judging.ByReviewer, Key: t.Key, Digest: t.Digest})
	}
	if len(st.ReviewsBy(true)) > 0 {
		r.Judges = append(r.Judges, judging.Judge{Kind: judging.ByPerson})
	}
	r.LastRound = a.state.Exhausted(c.def, c.plan, c.outputs)
	return r
}

// handIn returns the call as it is judged.
func (a *sessionActor) handIn(c *candidate) judging.HandIn {
	m := c.m
	h := judging.HandIn{
		At:       a.engine.now(),
		Identity: m.Identity,
		Channel:  m.Channel,
		Content:  c.digest,
		Bound:    c.bound,
		Files:    c.files,
		Account:  judging.Text(m.args.Notes) != "",
		Reason:   judging.Text(m.args.OverrideReason),
		Person:   m.Person,
		Waited:   m.waited,
		Only:     m.repeats,
	}
	if c.read != nil {
		h.Misfits = c.read.misfits
	}
	return h
}

// next returns the next version of the submission that a hand-in is about, which is then with a judge of this kind,
// or with none.
func (a *sessionActor) next(c *candidate, with judging.Kind) *judging.Submission {
	at, of := a.engine.now(), c.now.Of
	if of == nil {
		of = &judging.Submission{
			Number:   c.now.Number,
			At:       at,
			Identity: c.m.Identity,
			Channel:  c.m.Channel,
			Call:     c.m.Call.ID,
			Outputs:  c.outputs,
			Files:    append([]judging.FileHash{}, c.files...),
			Content:  c.digest,
			Bound:    c.bound,
			Notes:    c.m.args.Notes,
			Turns:    []judging.Turn{},
			Verdicts: []*judging.Verdict{},
		}
	}
	reused := slices.ContainsFunc(c.now.Verdicts, func(v *judging.Verdict) bool { return v.Kind == judging.ByReviewer })
	if reused && with != judging.ByReviewer && c.now.Number == 0 && of.LastTurn(judging.ByReviewer) == nil {
		of = new(*of) // all that had to be judged has passed before, and is unchanged
		of.Turns = append(slices.Clone(of.Turns), judging.Turn{With: judging.ByReviewer, At: at, EndedAt: &at})
	}
	u := of.To(with, append([]*judging.Verdict{}, c.now.Verdicts...), at)
	if with == judging.ByPerson && of.With() != with {
		turn, reviews := &u.Turns[len(u.Turns)-1], c.plan.Step.ReviewsBy(true)
		switch turn.About = c.now.About; {
		case turn.About != "":
			u.Declined = nil // it may be another question than before
		case len(reviews) > 1:
			turn.RunEach = "step"
		default:
			turn.RunEach = reviews[0].RunEach
		}
	}
	return u
}

// submission returns the input of the gate.
func (a *sessionActor) submission(c *candidate) gate.Submission {
	s := gate.Submission{
		SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step, Goal: a.state.Goal,
		Root: a.state.RootOf("", c.plan.Step.ID), Reviewer: c.how.Use,
	}
	for _, in := range a.state.In(a.engine.Place).StepInputs(c.def, c.plan.Step) {
		if in.FromStep != "" || in.Value != nil || in.Paths != nil || in.NotGiven {
			s.Inputs = append(s.Inputs, gate.Input{
				Name:        in.Name,
				Description: in.Description,
				FromStep:    in.FromStep,
				Text:        in.Value,
				Paths:       in.Paths,
				Omitted:     in.Omitted,
			})
		}
	}

	for _, o := range c.expanded {
		s.Outputs = append(s.Outputs, gate.Output{Name: o.Key, Paths: o.Value.Paths, Text: o.Value.Text})
	}

	if c.m.args.Notes != nil {
		s.Notes = *c.m.args.Notes
	}
	return s
}

// contentDigest returns the digest of what is judged: the submitted outputs, for each task its criteria
// and its files' content, and the content of files that schemas or checks judge.
func contentDigest(outputs outputs.Map, tasks []gate.Task, files ...judging.FileHash) string {
	h := sha256.New()
	for _, o := range outputs {
		fmt.Fprintf(h, "%q %v %q\n", o.Key, o.Value.List, o.Value.Paths)
		if o.Value.Text != nil {
			fmt.Fprintf(h, "text %s\n", session.Digest(*o.Value.Text))
		}
	}
	for _, f := range files {
		fmt.Fprintf(h, "%q %s\n", f.Path, f.SHA256)
	}
	for _, t := range tasks {
		fmt.Fprintf(h, "%q %s\n", t.Key, t.Digest)
	}

	return hex.EncodeToString(h.Sum(nil))
}
