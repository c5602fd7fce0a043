package gate

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// A project is a folder with outputs in it.
type project struct {
	t    testing.TB
	root string
}

func newProject(t testing.TB) *project { return &project{t, testkit.Dir(t)} }

func (p *project) write(path, content string) {
	p.t.Helper()
	testkit.Write(p.t, filepath.Join(p.root, path), content)
}

// submission hands in files for a step with an output `report` (file) and one
// `docs` (files), reviewed by run_each.
func (p *project) submission(runEach ...string) Submission {
	st := &job.Step{
		ID: "write", Name: "Write it", Description: "Writes the report\nand its chapters.",
		Outputs: []job.Output{
			{Name: "report", Type: job.File, Required: true},
			{Name: "docs", Type: job.Files},
		},
	}
	for _, r := range runEach {
		st.Reviews = append(st.Reviews, job.Review{RunEach: r, Criteria: []job.Criteria{
			{Name: "complete", Question: "Is everything there?"},
			{Name: "Plain words", Question: "Can a stranger read it?"},
		}})
	}
	return Submission{SessionID: "0a1b2c3d", Job: &job.Job{Name: "papers"}, Workflow: "paper", Step: st, Goal: "A paper on tides."}
}

// submit adds an output.
func (s Submission) submit(name string, paths ...string) Submission {
	s.Outputs = append(s.Outputs[:len(s.Outputs):len(s.Outputs)], Output{Name: name, Paths: paths})
	return s
}

// plan hashes what is submitted and plans its reviews.
func (p *project) plan(s Submission) []Task {
	p.t.Helper()
	var paths []string
	for _, o := range s.Outputs {
		paths = append(paths, o.Paths...)
	}
	hashes, err := HashFiles(context.Background(), p.root, paths)
	testkit.Must(p.t, err)
	return Plan(s, hashes)
}

// gate opens a gate that the test closes.
func (p *project) gate(settings func() Settings) *Gate {
	g := Open(Options{Root: p.root, Settings: settings, Logger: slog.New(slog.NewTextHandler(p.t.Output(), nil))})
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			p.t.Error(err)
		}
	})
	return g
}

func always(s Settings) func() Settings { return func() Settings { return s } }

// collect runs tasks and returns a channel with their verdicts.
func collect(t testing.TB, ctx context.Context, g *Gate, session string, s Submission, tasks []Task) <-chan Verdict {
	t.Helper()
	verdicts := make(chan Verdict, len(tasks)+1)
	testkit.Must(t, g.Run(ctx, session, s, tasks, func(v Verdict) { verdicts <- v }))
	return verdicts
}

// judge has one file reviewed by a command.
func judge(t *testing.T, settings Settings) Verdict {
	t.Helper()
	p := newProject(t)
	p.write("report.md", "# Tides\n")
	s := p.submission("step").submit("report", "report.md")
	if settings.MaxInlineFiles == 0 {
		settings.MaxInlineFiles = 5
	}
	return <-collect(t, t.Context(), p.gate(always(settings)), "a", s, p.plan(s))
}

// fault is the Error of a verdict; the test fails if there is none, or one
// with another code, or without what each of them must say.
func fault(t testing.TB, v Verdict, code Code, wants ...string) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](v.Err)
	testkit.Need(t, ok && !v.Passed, "no error of the gate, but passed %v, %v", v.Passed, v.Err)
	testkit.Need(t, e.Code == code, "code %s, want %s: %v", e.Code, code, e)
	for _, want := range append(wants, "This try does not count", "finished_step") {
		testkit.True(t, strings.Contains(e.Error(), want), "the message lacks %q:\n%v", want, e)
	}
	return e
}
