package page

import (
	"bytes"
	"context"
	"net/http"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session"
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
}

type stepText struct {
	*job.Step
	Text string
}

func (s *Site) jobs(ctx context.Context, _ session.Caller, _ *http.Request) (*shown, error) {
	return &shown{view: "jobs", title: "Jobs", data: s.Jobs(ctx), on: []string{jobsTopic}}, nil
}

func (s *Site) job(ctx context.Context, _ session.Caller, r *http.Request) (*shown, error) {
	name := r.PathValue("name")
	all := s.Jobs(ctx)
	p := &jobPage{Job: all.Job(name), Err: all.Err(name)}
	if p.Job == nil && p.Err == nil {
		return nil, session.Wrong("unknown_job", "There is no job %q here.", name)
	}
	if p.Job != nil {
		for i := range p.Steps {
			step := &p.Steps[i]
			var text bytes.Buffer
			info, err := machine.Preview(p.Job, step)
			if err == nil {
				show.Step(&text, p.Job, step, info)
			} else {
				text.WriteString(err.Error())
			}
			p.Texts = append(p.Texts, stepText{step, text.String()})
		}
	}
	return &shown{view: "job", title: name, data: p, on: []string{jobsTopic}, fresh: true}, nil
}
