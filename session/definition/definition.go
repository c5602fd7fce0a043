// Package definition finds the definition with which a session goes on: the job's current one on this
// machine, or the stored one. Every definition in use is stored, so that a session can be finished after any
// edit of its job (DESIGN "Hot reload").
package definition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/record"
	"deepwork/session/store"
)

// A Store has the definitions of a project's sessions. Its methods may be called from any goroutine.
type Store struct {
	Catalog *catalog.Catalog // nil for commands: sessions go on with stored definitions
	Records *record.Store
	// MaxKnown limits how many stored definitions are remembered, default 1000: a job that is edited all day
	// makes many. If there are more, all are forgotten, since they can be read again.
	MaxKnown int

	mu    sync.Mutex
	known map[string]map[string]string // a stored definition's text digests by step, by its hash
}

// Current returns the definition for a session at a place. This is the stored one, unless job.yml was edited
// there after the session last moved there; then it is the edited job, if that still has the workflow and the
// current step. So two checkouts with different jobs do not change a session's definition back and forth.
// Current writes nothing.
func (d *Store) Current(ctx context.Context, s *machine.State, place string) (*machine.Definition, error) {
	j, why, err := d.Usable(ctx, s)
	if err != nil {
		return nil, err
	}

	last, known := s.Sources[place]
	switch {
	case j != nil && j.Hash == s.Definition.Source:
		def := machine.Define(j, s.WorkflowName).For(s)
		def.Ref = s.Definition
		return def, nil
	case j != nil && known && j.Hash != last: // edited here, not stored yet
		def := machine.Define(j, s.WorkflowName).For(s)
		kept, err := d.Kept(s.Definition)
		if session.CodeOf(err) != "" { // the error is the store's
			return nil, err
		}
		if err == nil && !(def.Workflow.SameForms(kept.For(s).Workflow) && s.SameMakers(def, kept.For(s))) {
			kept.Notice = fmt.Sprintf("The forms of workflow '%s' of job '%s' (for_each, when, repeat or workflow), "+
				"or the steps that make what these are about, were edited. This session goes on as it began; the "+
				"edit counts for the next one.", s.WorkflowName, s.JobName)
			return kept.For(s), nil
		}
		return def, nil
	}
	def, err := d.Kept(s.Definition)
	if session.CodeOf(err) != "" { // the error is the store's
		return nil, err
	} else if err != nil {
		why = cmp.Or(why, "has another version here")
		return nil, session.NotNow(codes.DefinitionLost,
			"Session '%s' cannot go on: job '%s' %s, and the definition it goes on with cannot be read (%v). Restore "+
				"the job.", s.SessionID, s.JobName, why, err).
			Next("abort the session instead", "abort_workflow", "session_id", s.SessionID).
			With("session_id", s.SessionID).Because(err)
	}
	if why != "" && known {
		def.Notice = fmt.Sprintf("Job '%s' %s. This session goes on with the definition it has, as it was kept; "+
			"edits of the job do not reach it.", s.JobName, why)
	}
	return def.For(s), nil
}

// Usable returns the job on this machine, or why the session cannot go on with it.
func (d *Store) Usable(ctx context.Context, s *machine.State) (j *job.Job, why string, err error) {
	if d.Catalog == nil {
		return nil, "", nil // in a command
	}

	snap, err := d.Catalog.FreshJob(ctx, s.JobName)
	if err != nil {
		return nil, "", fmt.Errorf("looking for job %s: %w", s.JobName, err)
	}
	j = snap.Job(s.JobName)
	switch {
	case j == nil && snap.Err(s.JobName) != nil:
		why = "does not load: " + snap.Err(s.JobName).Diagnostics[0].String()
	case j == nil:
		why = "is gone"
	case j.Workflow(s.WorkflowName) == nil:
		why = fmt.Sprintf("no longer has the workflow '%s'", s.WorkflowName)
	case j.Workflow(s.WorkflowName).Find(s.CurrentStepID) < 0:
		why = fmt.Sprintf("no longer has the step '%s' in workflow '%s'", s.CurrentStepID, s.WorkflowName)
	default:
		return j, "", nil
	}
	return nil, why, nil
}

// Source returns the hash of a job on this machine, or "" if unknown.
func (d *Store) Source(jobName string) string {
	if d.Catalog == nil {
		return ""
	}
	if j := d.Catalog.Snapshot().Job(jobName); j != nil {
		return j.Hash
	}
	return ""
}

// Texts reads the current instructions of an entry's steps.
func (d *Store) Texts(def *machine.Definition, entry job.Entry) (machine.Instructions, error) {
	if def.Kept {
		texts, err := def.KeptTexts(entry)
		return texts, cmp.Or(err, fits(def, entry, texts))
	}
	texts := make(machine.Instructions, len(entry))
	for _, id := range entry {
		text, err := job.Instructions(def.Job, def.Job.Step(id))
		if err != nil {
			return nil, session.Wrong(codes.InstructionsMissing,
				"Step '%s' of job '%s' cannot begin, so nothing has moved: %v. Correct that and make the same call "+
					"again.",
				id, def.Job.Name, err).With("step_id", id).Because(err)
		}
		texts[id] = text
	}

	return texts, fits(def, entry, texts)
}

// MaxEntryBytes limits the texts of an entry's members together, each with its job's common info, which a
// reply repeats: 2 MiB. A single step always fits, since its file and job.yml have limits.
const MaxEntryBytes = job.MaxInstructionsBytes + job.MaxBytes

// fits returns an error for a group whose texts exceed a reply.
func fits(def *machine.Definition, entry job.Entry, texts machine.Instructions) error {
	total := 0
	for _, text := range texts {
		total += len(text) + len(def.Job.CommonInfo)
	}
	if total <= MaxEntryBytes {
		return nil
	}
	why := fmt.Errorf("their instructions, each with the job's common info, have %d bytes together, and %d are "+
		"the most", total, MaxEntryBytes)

	remedy := "Shorten the files, or have them name other files that are read when they are needed, and try " +
		"again."
	if def.Kept { // edits of the files do not affect it
		remedy = "Restore the job with shorter instructions, and try again, or abort the session."
	}
	return session.Wrong(codes.InstructionsTooLarge,
		"The concurrent steps %s of job '%s' cannot begin, so nothing has moved: %v. %s",
		strings.Join(entry, ", "), def.Job.Name, why, remedy).
		With("steps", []string(entry)).With("bytes", total).With("max", MaxEntryBytes).Because(why)
}

// KeptTexts returns the texts that were stored when the entry began.
func (d *Store) KeptTexts(ref machine.DefinitionRef, entry job.Entry) (machine.Instructions, error) {
	def, err := d.Kept(ref)
	if err != nil {
		return nil, err
	}
	return def.KeptTexts(entry)
}

// CheckSchemas returns an error for a workflow whose outputs have unusable schemas: a session keeps its
// schemas from the beginning.
func (d *Store) CheckSchemas(def *machine.Definition) error {
	for _, id := range slices.Concat(def.Workflow.Entries...) {
		for _, o := range def.Job.Step(id).Outputs {
			if _, err := o.Schema.Compile(def.Job.Dir); err != nil {
				return session.Wrong(codes.InstructionsMissing,
					"Workflow '%s' of job '%s' cannot begin: output '%s' of step '%s': %v. Correct that and try "+
						"again.",
					def.Workflow.Name, def.Job.Name, o.Name, id, err).With("step_id", id).Because(err)
			}
		}
	}

	return nil
}

// Keep returns the definition with a reference to its version with these texts. If that version is not stored
// yet, the result has the Data to store.
func (d *Store) Keep(def *machine.Definition, texts machine.Instructions) (*machine.Definition, error) {
	if def.Kept || (def.Ref.Hash != "" && d.have(def.Ref.Hash, texts)) {
		return def, nil
	}
	next := *def
	var err error
	next.Ref, next.Data, err = d.bundle(def, texts)
	return &next, err
}

// have reports whether the stored definition has these texts.
func (d *Store) have(hash string, texts machine.Instructions) bool {
	d.mu.Lock()
	known := d.known[hash]
	d.mu.Unlock()
	if known == nil {
		def, err := d.Kept(machine.DefinitionRef{Hash: hash})
		if err != nil {
			return false
		}
		known = d.learn(hash, def.Texts)
	}
	for id, text := range texts {
		id, _, _ = job.SplitItem(id)
		if known[id] != session.Digest(text) {
			return false
		}
	}

	return true
}

func (d *Store) learn(hash string, texts map[string]string) map[string]string {
	digests := make(map[string]string, len(texts))
	for id, text := range texts {
		digests[id] = session.Digest(text)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= cmp.Or(d.MaxKnown, 1000) {
		d.known = map[string]map[string]string{}
	}
	d.known[hash] = digests
	return digests
}

// bundle encodes a definition with these texts and, for the other steps, the current instructions in their
// files.
func (d *Store) bundle(def *machine.Definition, texts machine.Instructions) (machine.DefinitionRef, []byte, error) {
	b := machine.Bundle{
		JobDir:       def.Job.Dir,
		Workflow:     def.Workflow.Name,
		Source:       string(def.Job.Source),
		Instructions: map[string]string{},
	}

	now := make(map[string]string, len(texts))
	for id, text := range texts {
		id, _, _ = job.SplitItem(id)
		now[id] = text
	}
	for _, w := range def.Job.Within(def.Workflow) {
		for _, id := range slices.Concat(w.Entries...) {
			for _, o := range def.Job.Of(w.Name).Step(id).Outputs {
				if text, err := o.Schema.Text(def.Job.Dir); err == nil && o.Schema.File != "" {
					if b.Schemas == nil {
						b.Schemas = map[string]json.RawMessage{}
					}
					b.Schemas[o.Schema.File] = text
				}
			}
		}
	}
	for _, id := range slices.Concat(def.Workflow.Entries...) {
		if text, ok := now[id]; ok {
			b.Instructions[id] = text
		} else if text, err := job.InstructionsNow(def.Job, def.Job.Step(id)); err == nil {
			b.Instructions[id] = text
		}
	}

	data, hash, err := b.Encode()
	return machine.DefinitionRef{Hash: hash, Source: def.Job.Hash, JobDir: def.Job.Dir}, data, err
}

// Kept returns a stored definition.
func (d *Store) Kept(ref machine.DefinitionRef) (*machine.Definition, error) {
	data, err := d.Records.Definition(ref.Hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errors.New("it is not stored any more")
	}
	if err != nil {
		return nil, err
	}
	return machine.DecodeBundle(ref, data)
}

// Keeping returns a session's job with the schemas that the session began with, for a nested workflow of that
// job, so that no edit of the schema files weakens them. An error is the store's.
func (d *Store) Keeping(s *machine.State, j *job.Job) (*job.Job, error) {
	if s.Pinned == nil || s.Pinned.Definition.Hash == "" ||
		!slices.ContainsFunc(j.Steps, func(st job.Step) bool { return st.HasSchema() }) {
		return j, nil
	}

	begun, err := d.Kept(s.Pinned.Definition)
	if session.CodeOf(err) != "" {
		return nil, err
	} else if err != nil || len(begun.Schemas) == 0 {
		return j, nil
	}

	kept, _ := job.Parse(j.Dir, job.FileName, j.Source)
	if kept == nil {
		return j, nil
	}
	kept.SetSchemas(begun.Schemas)
	return kept, nil
}

// Now returns the definition of a session's job as it is here, ready to be stored, for a session without one.
func (d *Store) Now(ctx context.Context, s *machine.State) (*machine.Definition, error) {
	j, why, err := d.Usable(ctx, s)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, session.NotNow(codes.DefinitionLost,
			"Session '%s' cannot go on: its definition is not stored here, and job '%s' %s.", s.SessionID, s.JobName,
			cmp.Or(why, "was not loaded"))
	}

	def := machine.Define(j, s.WorkflowName).For(s)
	texts, err := d.Texts(def, s.Shown(def))
	if err != nil {
		return nil, err
	}
	return d.Keep(def, texts)
}
