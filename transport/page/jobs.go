package page

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/codes"
	"deepwork/session/show"
	"deepwork/session/workflow/machine"
)

// jobsTopic is the topic of changes of the job folders.
const jobsTopic = "jobs"

// A jobPage shows a job, with each step's text as an agent reads it.
type jobPage struct {
	*job.Job
	Err   *catalog.LoadError // nil if it has no faults
	Texts []stepText         // in the order of the steps
	Start *runForm           // nil if no run can be started
	Board bool               // tasks can be made
}

// A runForm is what a person is asked who starts a run.
type runForm struct {
	Workflow  *job.Workflow // that is chosen
	Fields    []inputField  // of its inputs
	Open      bool
	Executors []attempt.ExecutorInfo
	Default   string // run.executor of the config
}

type stepText struct {
	*job.Step
	Text  string
	Brief bool // the text is on a page of its own
}

const (
	// maxJobs is how many jobs a page lists.
	maxJobs = 100
	// maxTexts is how many bytes of texts of steps a page shows.
	maxTexts = 50 << 10
)

type jobsPage struct {
	Errors []catalog.LoadError
	Jobs   []*job.Job
	Board  bool // runs can be started
	More   int  // jobs that follow
	Next   int  // the first of these
}

func (s *Site) jobs(ctx context.Context, _ session.Caller, r *http.Request) (*shown, error) {
	all := s.Jobs(ctx)
	from, _ := strconv.Atoi(r.URL.Query().Get("from")) // else from the first
	from = min(max(from, 0), len(all.Jobs))
	p := &jobsPage{Board: s.Board != nil, Jobs: all.Jobs[from:min(from+maxJobs, len(all.Jobs))], Next: from + maxJobs, More: len(all.Jobs) - from - maxJobs}
	if from == 0 {
		p.Errors = all.Errors
	}
	return &shown{view: "jobs", title: "Jobs", data: p, on: []string{jobsTopic}}, nil
}

func (s *Site) job(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	name := r.PathValue("name")
	all := s.Jobs(ctx)
	p := &jobPage{Job: all.Job(name), Err: all.Err(name), Board: s.Board != nil}
	if p.Job == nil && p.Err == nil {
		return nil, session.Wrong(codes.UnknownJob, "There is no job %q here.", name)
	}
	if p.Job != nil {
		only, left := r.URL.Query().Get("step"), maxTexts
		for i := range p.Steps {
			step := &p.Steps[i]
			if only != "" && step.Ref() != only {
				p.Texts = append(p.Texts, stepText{Step: step, Brief: true})
				continue
			}
			var text bytes.Buffer
			info, err := machine.Preview(p.Job, step)
			if err == nil {
				show.Step(&text, p.Job, step, info)
			} else {
				text.WriteString(err.Error())
			}
			v := stepText{Step: step, Text: jsontext.Clip(text.String(), maxTexts)}
			if v.Brief = len(v.Text) > left; !v.Brief {
				left -= len(v.Text)
			}
			p.Texts = append(p.Texts, v)
		}
	}
	var err error
	if p.Start, err = s.runForm(ctx, who, p.Job, r.URL.Query().Get("run")); err != nil {
		return nil, err
	}
	return &shown{view: "job", title: name, data: p, on: []string{jobsTopic, configTopic}}, nil
}

// runForm returns the form for a run of a workflow, the first one if it is not of the job, or nil if the
// caller can start none.
func (s *Site) runForm(ctx context.Context, who session.Caller, j *job.Job, workflow string) (*runForm, error) {
	if j == nil || len(j.Workflows) == 0 || s.Board == nil || s.ReadOnly || !who.Has(session.RightAgents) {
		return nil, nil
	}
	executors, err := s.Board.ListExecutors(ctx, who)
	if err != nil {
		return nil, err
	}
	c, err := s.Config(ctx)
	if err != nil {
		return nil, err
	}
	f := &runForm{Workflow: j.Workflow(workflow), Executors: executors.Executors, Default: c.Run.Executor}
	if f.Open = f.Workflow != nil; !f.Open {
		f.Workflow = &j.Workflows[0]
	}
	f.Fields = inputFields(f.Workflow, nil)
	return f, nil
}
