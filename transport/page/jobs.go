package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"strconv"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/run"
	"deepwork/session/show"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// jobsTopic is the topic of changes of the job folders.
const jobsTopic = "jobs"

// A jobPage shows a job, with each step's text as an agent reads it.
type jobPage struct {
	*job.Job
	Err   *catalog.LoadError   // nil if it has no errors
	Texts []stepText           // in the order of the steps
	Info  template.HTML        // what all steps are told
	Ran   map[string]*runStats // by workflow; nil for one that never ran
	Start *runForm             // nil if no run can be started
	Board bool                 // tasks can be made
}

// A runForm is the form that starts a run.
type runForm struct {
	Workflow  *job.Workflow // that is chosen
	Fields    []inputField  // of its inputs
	Open      bool
	Executors []attempt.ExecutorInfo
	Default   string // run.executor of the config
}

// A stepText shows a step: its instructions and, on a page of its own, the text as an agent reads it.
type stepText struct {
	*job.Step
	Instructions template.HTML
	Text         string
	Brief        bool // both are on a page of its own
}

// A runStats says how a workflow has gone: how many of its ended sessions are complete.
type runStats struct {
	Done, Ended, Open int
	Newest            *workflow.SessionInfo  // the one that moved last
	States            map[string]board.State // of its steps by id, on the page of a job
}

// workflowStats returns the stats of workflows by job/workflow, from the sessions that a caller sees; nil while the
// store is away.
func (s *Site) workflowStats(ctx context.Context, who session.Caller) (map[string]*runStats, error) {
	sessions, err := s.sessions(ctx)
	if errors.Is(err, store.ErrUnavailable) {
		return nil, nil // the jobs are in files
	}

	of := map[string]*runStats{}
	for _, i := range sessions {
		if !sees(who, i) {
			continue
		}

		name := i.Job + "/" + i.Workflow
		if of[name] == nil {
			of[name] = &runStats{Newest: i}
		}
		switch i.Status {
		case "active":
			of[name].Open++
		case "completed":
			of[name].Done++
			fallthrough
		default:
			of[name].Ended++
		}
	}

	return of, err
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
	Ran    map[string]*runStats
	Board  bool // runs can be started
	More   int  // jobs that follow
	Next   int  // the first of these
}

func (s *Site) jobs(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	all := s.Jobs(ctx)
	from, _ := strconv.Atoi(r.URL.Query().Get("from")) // else from the first
	from = min(max(from, 0), len(all.Jobs))
	p := &jobsPage{
		Board: s.Board != nil,
		Jobs:  all.Jobs[from:min(from+maxJobs, len(all.Jobs))],
		Next:  from + maxJobs,
		More:  len(all.Jobs) - from - maxJobs,
	}
	if from == 0 {
		p.Errors = all.Errors
	}

	var err error
	if p.Ran, err = s.workflowStats(ctx, who); err != nil {
		return nil, err
	}
	return &shown{view: "jobs", title: "Jobs", data: p, topics: []string{jobsTopic, store.SessionChanged}}, nil
}

func (s *Site) job(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	name := r.PathValue("name")
	all := s.Jobs(ctx)
	p := &jobPage{Job: all.Job(name), Err: all.Err(name), Board: s.Board != nil}
	if p.Job == nil && p.Err == nil {
		return nil, session.Wrong(codes.UnknownJob, "There is no job %q here.", name)
	}
	if p.Job != nil {
		p.texts(r.URL.Query().Get("step"))
	}

	var err error
	if p.Ran, err = s.workflowStats(ctx, who); err != nil {
		return nil, err
	}
	for _, ran := range p.Ran {
		if i := ran.Newest; p.Job != nil && i.Job == p.Name {
			ran.States = s.statesOf(ctx, who, i)
		}
	}
	if p.Start, err = s.runForm(ctx, who, p.Job, r.URL.Query().Get("run")); err != nil {
		return nil, err
	}
	return &shown{
		view:   "job",
		title:  name,
		data:   p,
		topics: []string{jobsTopic, configTopic, store.SessionChanged},
	}, nil
}

// statesOf returns the states of the steps of a session, or of the run that it is of, by their ids.
func (s *Site) statesOf(ctx context.Context, who session.Caller, i *workflow.SessionInfo) map[string]board.State {
	of := &board.RunReply{SessionID: &i.ID, Open: true}
	if s.Board != nil && i.AttemptID != "" {
		if r, err := s.Board.GetRun(ctx, who, board.RunArgs{RunID: i.AttemptID}); err == nil { // else an agent leads it
			of = r
		}
	}
	v := run.Look(ctx, of, s.reader, nil)
	states := map[string]board.State{}
	v.Tree.Each(func(x *run.Step, _ int) {
		if x.SessionID == i.ID {
			states[x.Base()] = run.MoreUrgent(x.State, cmp.Or(states[x.Base()], x.State))
		}
	})
	return states
}

// texts sets the instructions of the steps, or of one step with the text that an agent reads, as far as they fit on the
// page.
func (p *jobPage) texts(only string) {
	left := maxTexts
	fits := func(text string) template.HTML {
		html := markdown([]byte(jsontext.Clip(text, maxTexts)))
		if left -= len(html); left < 0 {
			return ""
		}
		return html
	}
	p.Info = fits(p.CommonInfo)
	for i := range p.Steps {
		v := stepText{Step: &p.Steps[i], Brief: true}
		if info, err := machine.Preview(p.Job, v.Step); only != "" && v.Ref() != only {
			// It is on its own page.
		} else if err != nil {
			v.Text, v.Brief = err.Error(), false
		} else {
			v.Instructions = fits(info.Instructions)
			v.Brief = left < 0
			if only != "" {
				var text bytes.Buffer
				show.Step(&text, p.Job, v.Step, info)
				v.Text, v.Brief = jsontext.Clip(text.String(), maxTexts), false
			}
		}
		p.Texts = append(p.Texts, v)
	}
}

// runForm returns the form for a run of a workflow, or of the job's first one if the job does not have it. It returns
// nil if the caller can start none.
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
