package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	"deepwork/session/store/local"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/workflow/machine"
)

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "reviewer" {
		os.Exit(reviewerMain(os.Args[2]))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(pgtest.Twice(onPostgres, func() int { return statetest.Main(m, pgtest.Leaks) }))
}

// onPostgres are the tests that run with PostgreSQL, too: those about servers that share sessions, and what is stored of
// each form. The others are about rules that ask the store for no more.
const onPostgres = `
	TestACallWhoseReplyIsForgottenIsNotDoneAgain TestACallerThatLeavesMidCallRepeatsItSafely TestACheckOutlivesItsCallAndIsJoinedByTheNext
	TestACheckoutOfAnotherPathIsReviewed TestACommandAppliedTwiceHasOneEffect TestACommitOfANewSessionThatArrivesLate
	TestACommitWhoseFateIsUnknown TestALongInputSurvivesARestart TestAQuestionIsSettledElsewhere TestAReviewElsewhereIsSuperseded
	TestAReviewElsewhereOutlivesTheCall TestAReviewIsTakenUp TestASessionIsResumedAfterACrashWithItsAncestors
	TestASessionThatMovesToAnotherMachineSaysWhereItsFilesAre TestAServerThatEndsInMidReviewNeverCountsItAsPassed
	TestAStoppedServerLeavesItsReview TestAStoreThatIsAwayAfterALostReply TestAnAbortElsewhereEndsTheReview TestAnyServerServesAnySession
	TestDefinitionsOfAJobEditedAllDayAreForgotten TestExecution TestForms_ACommitWhoseFateIsUnknown TestForms_ItemsAndWorkflowsOfStepsAreImported TestForms_WorkflowAsStep
	TestMovedIsToldOfEachTransition TestReq001_4_15_to_19_AWorkflowIsLedThrough TestRequestIDs TestResumableSessions
	TestServersRaceForOneSession TestTwoServersShareAReview`

// A project is a project folder in a test.
type project struct {
	t    testing.TB
	root string

	url string // of its stores, if they are on PostgreSQL
}

func newProject(t testing.TB) *project {
	t.Helper()
	p := &project{t: t, root: testkit.Dir(t)}
	if pgtest.OnPostgres() {
		var err error
		if p.url, err = oneURL(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// state returns the folder with the state of the project.
func (p *project) state() *state.Folder { return state.Of(p.root) }

// stores returns its stores as another process opens them. They are closed at the end of the test.
func (p *project) stores() *store.Stores {
	p.t.Helper()
	s := p.newStores()
	p.t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// newStores opens its stores; those on PostgreSQL have one schema, with a project for each test.
func (p *project) newStores() *store.Stores {
	p.t.Helper()
	if p.url == "" {
		return local.Stores(p.state(), false, nil)
	}
	pg := testkit.Get(postgres.Open(postgres.Options{URL: p.url, Project: p.root, Repository: postgres.Repository{RootCommit: p.root}, Machine: "12345678", Root: p.root})).Must(p.t)
	return backend.Of(pg, session.NewMember(p.state(), nil), nil, p.root)
}

// oneURL is that of a schema for all tests.
var oneURL = sync.OnceValues(func() (string, error) {
	s, err := pgtest.Shared()
	if err != nil {
		return "", err
	}
	return s.URL(), nil
})

// write writes a file below the root and returns its relative path.
func (p *project) write(name, text string) string {
	p.t.Helper()
	testkit.Write(p.t, filepath.Join(p.root, name), text)
	return name
}

// A testStep is a step of a job that a test writes.
type testStep struct {
	id      string
	checks  string // YAML flow sequence; "" is []
	outputs string // YAML flow mapping; "" is {}
	reviews string // YAML flow sequence; "" is []
}

// job writes a job folder whose workflows are given as name: entries in YAML.
func (p *project) job(name string, steps []testStep, workflows map[string]string) {
	p.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: The job %s\ncommon_job_info_provided_to_all_steps_at_runtime: Common to all steps of %s.\nsteps:\n", name, name, name)
	for _, s := range steps {
		if s.outputs == "" {
			s.outputs = "{}"
		}
		if s.reviews == "" {
			s.reviews = "[]"
		}
		if s.checks == "" {
			s.checks = "[]"
		}
		fmt.Fprintf(&b, "  - id: %s\n    name: Step %s\n    description: Does %s\n    instructions_file: steps/%s.md\n    outputs: %s\n    reviews: %s\n    checks: %s\n", s.id, s.id, s.id, s.id, s.outputs, s.reviews, s.checks)
		p.write(".deepwork/jobs/"+name+"/steps/"+s.id+".md", "Do "+s.id+".\n")
	}
	b.WriteString("workflows:\n")
	for n, entries := range workflows {
		fmt.Fprintf(&b, "  - name: %s\n    summary: The workflow %s\n    steps: %s\n", n, n, entries)
	}
	p.write(".deepwork/jobs/"+name+"/job.yml", b.String())
}

const oneFile = "{report: {type: file, description: A report, required: true}}"

// simple writes a job of two steps, one then two, that deliver a report each.
func (p *project) simple(name string) {
	p.job(name, []testStep{{id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}}, map[string]string{"main": "[one, two]"})
}

// A server is an engine with its catalog, as a server process has them.
type server struct {
	*Engine
	catalog *catalog.Catalog
	own     bool // the stores are this server's alone
	closed  bool
}

// simpleProject makes a project with the job of simple and a file.
func simpleProject(t testing.TB) *project {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	return p
}

// underReview makes a project with a reviewed job, and a server with a reviewer.
func underReview(t testing.TB) (*project, *server, *reviewer) {
	p := newProject(t)
	p.reviewedJob()
	srv, rev := p.reviewed()
	return p, srv, rev
}

// begun makes a project with the job of simple and a file, a server and a connection, and starts the job.
func begun(t testing.TB) (p *project, srv *server, c *Conn, id string) {
	p = simpleProject(t)
	srv = p.open()
	c = srv.Connect("local")
	return p, srv, c, p.start(c, "alpha", "main").BeginStep.SessionID
}

func (p *project) open(change ...func(*Options)) *server {
	p.t.Helper()
	ctx := context.Background()
	c := testkit.Get(catalog.Open(ctx, catalog.Options{Root: p.root, Logger: slog.New(slog.DiscardHandler)})).Must(p.t)
	pool := gate.Open(gate.Options{Root: p.root, Settings: func() gate.Settings { return gate.Settings{MaxConcurrent: 2} }})
	p.t.Cleanup(func() { testkit.Must(p.t, pool.Close(ctx)) })
	o := Options{Root: p.root, Catalog: c, Config: config.Open(p.root), Reviews: true, Checks: &check.Runner{
		Pool: pool, Secrets: func() []string { return []string{"DEEPWORK_TEST_SECRET"} }, Program: func(name string) (string, error) { return process.Look(name) },
		Allowed: func(context.Context, *check.Subject, *job.StepCheck) error { return nil },
	}}
	for _, f := range change {
		f(&o)
	}
	own := o.Stores == nil
	if own {
		o.Stores = p.newStores()
	}
	e := testkit.Get(Open(ctx, o)).Must(p.t)
	s := &server{Engine: e, catalog: c, own: own}
	p.t.Cleanup(s.stop)
	return s
}

// command returns an engine as commands open one: without jobs and a gate.
func (p *project) command(how Reviewing) *Engine {
	p.t.Helper()
	stores := p.stores()
	e := testkit.Get(Open(context.Background(), Options{Root: p.root, Stores: stores, Reviews: true, Reviewing: func(context.Context) (Reviewing, error) { return how, nil }})).Must(p.t)
	p.t.Cleanup(func() { e.Close(context.Background()) })
	return e
}

// stop ends a server; what it did is then as after a crash of the process,
// since nothing is written at the end.
func (s *server) stop() {
	if s.closed {
		return
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if stuck := s.Close(ctx); stuck != nil {
		panic(fmt.Sprint("did not stop: ", stuck))
	}
	if err := s.catalog.Close(ctx); err != nil {
		panic(err)
	}
	if s.own {
		if err := s.Stores.Close(ctx); err != nil {
			panic(err)
		}
	}
}

func (p *project) start(c *Conn, jobName, workflow string) *machine.StartReply {
	p.t.Helper()
	r, err := c.Start(context.Background(), StartArgs{Goal: "a goal", JobName: jobName, WorkflowName: workflow})
	testkit.Need(p.t, err == nil, "start_workflow %s/%s: %v", jobName, workflow, err)
	return r
}

// outputs encodes an outputs argument from names and paths.
func outputs(pairs ...string) json.RawMessage {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// finishArgs are the arguments of a finished_step by their JSON.
func finishArgs(t testing.TB, text string) FinishArgs {
	t.Helper()
	var a FinishArgs
	testkit.Must(t, json.Unmarshal([]byte(text), &a))
	return a
}

func (p *project) finish(c *Conn, args string) *machine.FinishReply {
	p.t.Helper()
	r, err := c.Finish(context.Background(), finishArgs(p.t, args))
	testkit.Need(p.t, err == nil, "finished_step %s: %v", args, err)
	return r
}

// stepOf returns the id of the step that begins, "" if none does.
func stepOf(begins *machine.StepInfo) string {
	if begins == nil {
		return ""
	}
	return begins.StepID
}

// refused checks that a call was refused with this kind, code and these words.
func refused(t testing.TB, err error, kind session.Kind, code string, words ...string) {
	t.Helper()
	var e *session.Error
	testkit.Need(t, errors.As(err, &e), "the call was not refused: %v", err)
	testkit.True(t, e.Kind == kind && e.Code == code, "refused as %s %s, want %s %s: %v", e.Kind, e.Code, kind, code, err)
	for _, w := range words {
		testkit.Contains(t, e.Error(), w)
	}
}

// record reads a session's record: from its export, or from the database if there is none here.
func (p *project) record(id string) *machine.State {
	p.t.Helper()
	data := testkit.Get(os.ReadFile(filepath.Join(p.state().Tmp(), "session_"+id+".json"))).Must(p.t)
	s := new(machine.State)
	testkit.Must(p.t, json.Unmarshal(data, s))
	return s
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	b := testkit.Get(json.Marshal(v)).Must(t)
	return string(b)
}

// errOf is the error of a call whose result a test does not look at.
func errOf[T any](_ T, err error) error { return err }
