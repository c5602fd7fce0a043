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
	More   int // jobs that follow
	Next   int // the first of these
}

func (s *Site) jobs(ctx context.Context, _ session.Caller, r *http.Request) (*shown, error) {
	all := s.Jobs(ctx)
	from, _ := strconv.Atoi(r.URL.Query().Get("from")) // else from the first
	from = min(max(from, 0), len(all.Jobs))
	p := &jobsPage{Jobs: all.Jobs[from:min(from+maxJobs, len(all.Jobs))], Next: from + maxJobs, More: len(all.Jobs) - from - maxJobs}
	if from == 0 {
		p.Errors = all.Errors
	}
	return &shown{view: "jobs", title: "Jobs", data: p, on: []string{jobsTopic}}, nil
}

func (s *Site) job(ctx context.Context, _ session.Caller, r *http.Request) (*shown, error) {
	name := r.PathValue("name")
	all := s.Jobs(ctx)
	p := &jobPage{Job: all.Job(name), Err: all.Err(name)}
	if p.Job == nil && p.Err == nil {
		return nil, session.Wrong("unknown_job", "There is no job %q here.", name)
	}
	if p.Job != nil {
		only, left := r.URL.Query().Get("step"), maxTexts
		for i := range p.Steps {
			step := &p.Steps[i]
			if only != "" && step.ID != only {
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
	return &shown{view: "job", title: name, data: p, on: []string{jobsTopic}, fresh: true}, nil
}
