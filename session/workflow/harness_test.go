package workflow_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
	"deepwork/session/connection"
	"deepwork/session/export"
	"deepwork/session/machine"
	"deepwork/session/pin"
	"deepwork/session/replies"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	"deepwork/session/store/local"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/work"
	. "deepwork/session/workflow"
)

// patience is how long a test waits for what must come, on a machine that is busy with other things too; it
// never waits that long for what does not.
const patience = time.Minute

var ctx = context.Background()

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "reviewer" {
		os.Exit(reviewerMain(os.Args[2]))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Setenv("DEEPWORK_TEST_SECRET", "secret") // for the checks that may have it
	os.Exit(pgtest.Twice(onPostgres, func() int { return statetest.Main(m, pgtest.Leaks) }))
}

// onPostgres are the tests that run with PostgreSQL, too: those about servers that share sessions, and what
// is stored of each form. The others are about rules that ask the store for no more.
const onPostgres = `
	TestACallWhoseReplyIsForgottenIsNotDoneAgain TestACallerThatLeavesMidCallRepeatsItSafely ` +
	`TestACheckOutlivesItsCallAndIsJoinedByTheNext
	TestACheckoutOfAnotherPathIsReviewed TestACommandAppliedTwiceHasOneEffect TestACommitOfANewSessionThatArrivesLate
	TestACommitWhoseFateIsUnknown TestAQuestionIsSettledElsewhere TestAReviewElsewhereIsSuperseded
	TestAKilledServersReviewGoesOn
	TestAReviewElsewhereOutlivesTheCall TestAReviewIsTakenUp TestASessionIsResumedAfterACrashWithItsAncestors
	TestASessionThatMovesToAnotherMachineSaysWhereItsFilesAre TestAServerThatEndsInMidReviewNeverCountsItAsPassed
	TestAStoreThatIsAwayAfterALostReply TestAnyServerServesAnySession
	TestDefinitionsOfAJobEditedAllDayAreForgotten TestForms_ACommitWhoseFateIsUnknown ` +
	`TestForms_ItemsAndWorkflowsOfStepsAreImported TestForms_WorkflowAsStep
	TestMovedIsToldOfEachTransition TestProgress TestReq001_4_15_to_19_AWorkflowIsLedThrough TestRequestIDs ` +
	`TestResumableSessions
	TestServersRaceForOneSession TestStepsOfOneNameInTwoWorkflows TestTwoServersShareAReview`

// A project is a project folder in a test.
type project struct {
	t    testing.TB
	root string

	url string // of its stores, if they are on PostgreSQL
}

// newProject makes the folder, with the file r.md to hand in. A test that calls it runs beside others.
func newProject(t testing.TB) *project {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		if _, again := parallel.LoadOrStore(test, true); !again {
			test.Parallel()
		}
	}

	p := &project{t: t, root: testkit.Dir(t)}
	if pgtest.OnPostgres() {
		p.url = testkit.Get(oneURL()).Must(t).URL()
	}
	p.write("r.md", "x")
	return p
}

var parallel sync.Map // the tests that have called newProject

func (p *project) state() *state.Folder { return state.Of(p.root) }

// stores returns its stores as another process opens them. They are closed at the end of the test.
func (p *project) stores() *store.Stores {
	s := p.newStores()
	p.t.Cleanup(func() { s.Close(ctx) })
	return s
}

// newStores opens its stores; those on PostgreSQL have one schema, with a project for each test.
func (p *project) newStores() *store.Stores {
	p.t.Helper()
	if p.url == "" {
		return local.Stores(p.state(), false, nil)
	}

	pg := testkit.Get(postgres.Open(postgres.Options{
		URL:        p.url,
		Project:    p.root,
		Repository: postgres.Repository{RootCommit: p.root},
		Machine:    "12345678",
		Root:       p.root,
	})).Must(p.t)
	return backend.Of(pg, session.NewMember(p.state(), nil), nil, p.root)
}

var oneURL = sync.OnceValues(pgtest.Shared) // of one schema for all tests

func (p *project) write(name, text string) string {
	p.t.Helper()
	testkit.Write(p.t, filepath.Join(p.root, name), text)
	return name
}

// A testStep is a step of a job that a test writes.
type testStep struct {
	// outputs in YAML as a flow mapping, the others as flow sequences; "" means none
	id, outputs, reviews, checks string
}

// job writes a job folder whose workflows are given as name: entries in YAML.
func (p *project) job(name string, steps []testStep, workflows map[string]string) {
	p.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: The job "+
		"%s\ncommon_job_info_provided_to_all_steps_at_runtime: Common to all steps of %s.\nsteps:\n", name, name, name)
	for _, s := range steps {
		fmt.Fprintf(&b, "  - id: %s\n    name: Step %s\n    description: Does %s\n    instructions_file: "+
			"steps/%s.md\n    outputs: %s\n    reviews: %s\n    checks: %s\n", s.id, s.id, s.id, s.id,
			cmp.Or(s.outputs, "{}"), cmp.Or(s.reviews, "[]"), cmp.Or(s.checks, "[]"))
		p.write(".deepwork/jobs/"+name+"/steps/"+s.id+".md", "Do "+s.id+".\n")
	}

	b.WriteString("workflows:\n")
	for n, entries := range workflows {
		fmt.Fprintf(&b, "  - name: %s\n    summary: The workflow %s\n    steps: %s\n", n, n, entries)
	}
	p.write(".deepwork/jobs/"+name+"/job.yml", b.String())
}

func (p *project) alpha(main string, steps ...testStep) *project {
	p.t.Helper()
	p.job("alpha", steps, map[string]string{"main": main})
	return p
}

const (
	oneFile = "{report: {type: file, description: A report, required: true}}"
	oneText = "{said: {type: string, description: d}}"
	oneList = "{todo: {type: string, description: d}}"
)

// simple writes a job of two steps, one then two, that deliver a report each.
func (p *project) simple(name string) *project {
	p.job(name, []testStep{{id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}},
		map[string]string{"main": "[one, two]"})
	return p
}

// A Conn is one connection of a server.
type Conn = connection.Conn

// A server is an engine with its catalog, as a server process has them.
type server struct {
	*connection.Server
	catalog *catalog.Catalog
	stop    func() // ends it; what it did is then as after a crash of the process, since nothing is written at the end
}

// simpleProject makes a project with the job of simple.
func simpleProject(t testing.TB) *project { return newProject(t).simple("alpha") }

// begun makes a project with the job of simple, and starts it.
func begun(t testing.TB) (p *project, srv *server, c *Conn, id string) {
	p = simpleProject(t)
	srv, c, id = p.begin()
	return p, srv, c, id
}

// begin opens a server, and starts alpha/main over a connection.
func (p *project) begin(change ...func(*Options)) (srv *server, c *Conn, id string) {
	p.t.Helper()
	srv = p.open(change...)
	c = srv.Connect("local")
	return srv, c, p.start(c, "alpha", "main").BeginStep.SessionID
}

// Reviewing is what most tests configure.
type Reviewing = pin.Reviewing

// reviewing is the option of a server to review as how says at each call.
func reviewing(how *Reviewing) func(*Options) {
	return func(o *Options) { o.Reviewing = func(context.Context) (Reviewing, error) { return *how, nil } }
}

func (p *project) open(change ...func(*Options)) *server {
	p.t.Helper()
	c := testkit.Get(catalog.Open(ctx, catalog.Options{Root: p.root, Logger: slog.New(slog.DiscardHandler)})).Must(p.t)
	pool := gate.Open(gate.Options{
		Root:     p.root,
		Settings: func() gate.Settings { return gate.Settings{MaxConcurrent: 2} },
	})
	p.t.Cleanup(func() { testkit.Must(p.t, pool.Close(ctx)) })
	o := Options{Root: p.root, Catalog: c, Config: config.Open(p.root), Reviews: true, Checks: &check.Runner{
		Pool: pool, Secrets: func() []string {
			return []string{"DEEPWORK_TEST_SECRET"}
		}, Program: func(name string) (string, error) { return process.Look(name) },
		Allowed: func(context.Context, *check.Subject, *job.StepCheck) error { return nil },
	}}
	for _, f := range change {
		f(&o)
	}
	own := o.Stores == nil
	if own {
		o.Stores = p.newStores()
	}
	if o.Work == nil {
		o.Work = work.New(ctx, work.Options{Stores: o.Stores})
	}
	o.Work.Start()
	e := testkit.Get(Open(ctx, o)).Must(p.t)
	stop := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		stuck, err := append(e.Close(ctx), o.Work.Close(ctx)...), c.Close(ctx)
		if own {
			err = errors.Join(err, o.Stores.Close(ctx))
		}
		if stuck != nil || err != nil {
			panic(fmt.Sprint("did not stop: ", stuck, err))
		}
	})
	p.t.Cleanup(stop)
	return &server{Server: connection.NewServer(e), catalog: c, stop: stop}
}

// command returns an engine as commands open one: without jobs and a gate.
func (p *project) command(how Reviewing) *Engine {
	p.t.Helper()
	o := Options{Root: p.root, Stores: p.stores(), Reviews: true}
	reviewing(&how)(&o)
	e := testkit.Get(Open(ctx, o)).Must(p.t)
	p.t.Cleanup(func() { e.Close(ctx) })
	return e
}

func (p *project) start(c *Conn, jobName, workflow string) *replies.Start {
	p.t.Helper()
	return testkit.Get(c.Start(ctx, StartArgs{Goal: "a goal", JobName: jobName, WorkflowName: workflow})).Must(p.t)
}

func outputsOf(name, path string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{%q:%q}`, name, path))
}

func finishArgs(t testing.TB, text string) FinishArgs {
	t.Helper()
	var a FinishArgs
	testkit.Must(t, json.Unmarshal([]byte(text), &a))
	return a
}

func (p *project) finish(c *Conn, args string) *replies.Finish {
	p.t.Helper()
	r, err := c.Finish(ctx, finishArgs(p.t, args))
	testkit.Need(p.t, err == nil, "finished_step %s: %v", args, err)
	return r
}

// refusal is why a finished_step is refused, nil if it is not.
func refusal(t testing.TB, c *Conn, args string) error {
	t.Helper()
	return errOf(c.Finish(ctx, finishArgs(t, args)))
}

// says checks the status of a reply, and words of its feedback.
func says(t testing.TB, r *replies.Finish, want replies.Status, words ...string) {
	t.Helper()
	testkit.Need(t, r.Status == want, "status %s, want %s: %s", r.Status, want, toJSON(t, r))
	testkit.ContainsAll(t, *cmp.Or(r.Feedback, new("")), words, "the feedback")
}

// answered is what a call that is made beside others gives.
type answered struct {
	r   *replies.Finish
	err error
}

// beside makes a finished_step that the test goes on from.
func beside(t testing.TB, ctx context.Context, c *Conn, args string) chan answered {
	a, got := finishArgs(t, args), make(chan answered, 1)
	go func() {
		r, err := c.Finish(ctx, a)
		got <- answered{r, err}
	}()
	return got
}

// waitsElsewhere waits until a call at the server waits for what another one does for the session.
func (s *server) waitsElsewhere(t *testing.T, id string) {
	t.Helper()
	testkit.Until(t, "waiting for another server", func() bool { return s.Awaited(id) })
}

// stackOf reads the stack of a connection.
func stackOf(t testing.TB, c *Conn) []replies.StackEntry {
	t.Helper()
	return testkit.Get(c.GetWorkflows(ctx)).Must(t).Stack
}

// stepOf returns the id of the step that begins, "" if none does.
func stepOf(begins *replies.StepInfo) string { return cmp.Or(begins, &replies.StepInfo{}).StepID }

// refused checks that a call was refused with this kind, code and these words.
func refused(t testing.TB, err error, kind session.Kind, code string, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*session.Error](err)
	testkit.Need(t, ok, "the call was not refused: %v", err)
	testkit.True(t, e.Kind == kind && e.Code == code, "refused as %s %s, want %s %s: %v", e.Kind, e.Code, kind,
		code, err)
	testkit.ContainsAll(t, e.Error(), words)
}

func (p *project) record(id string) *machine.State {
	p.t.Helper()
	s := new(machine.State)
	testkit.Must(p.t, json.Unmarshal(testkit.Get(os.ReadFile(p.export(id))).Must(p.t), s))
	return s
}

func (p *project) export(id string) string {
	return filepath.Join(p.state().Tmp(), state.ExportName(id))
}

func (p *project) importFrom(from *project, srv *server, ids ...string) []*export.Import {
	p.t.Helper()
	for _, id := range ids {
		p.write(filepath.Join(".deepwork", "tmp", state.ExportName(id)),
			string(testkit.Get(os.ReadFile(from.export(id))).Must(p.t)))
	}
	all := testkit.Get(srv.Importer().Examine(ctx, testkit.Get(srv.Importer().All()).Must(p.t))).Must(p.t)
	testkit.Equal(p.t, testkit.Get(srv.Importer().Import(ctx, all)).Must(p.t), len(ids), "imported")
	return all
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	return string(testkit.Get(json.Marshal(v)).Must(t))
}

func errOf[T any](_ T, err error) error { return err }

// reviewerMain is the test binary as a reviewer: `workflow.test reviewer DIR`. It notes that it was called,
// waits while DIR/wait exists, and prints DIR/say; DIR/exit is its exit code.
func reviewerMain(dir string) int {
	prompt, _ := io.ReadAll(os.Stdin)
	f, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 9
	}
	fmt.Fprintln(f, len(prompt))
	f.Close()
	for err == nil {
		time.Sleep(2 * time.Millisecond)
		_, err = os.Stat(filepath.Join(dir, "wait"))
	}

	for name, say := range map[string]string{"bad.md": "bad.md was read", "worse.md": "worse.md was read"} {
		if strings.Contains(string(prompt), "CONTENT OF "+name) {
			fmt.Printf(`{"passed": false, "feedback": %q, "criteria_results": [{"criterion": "Good", "passed": `+
				`false, "feedback": "no"}]}`, say)
			return 0
		}
	}
	if say, err := os.ReadFile(filepath.Join(dir, "say")); err == nil {
		os.Stdout.Write(say)
	}
	if _, err := os.Stat(filepath.Join(dir, "exit")); err == nil {
		fmt.Fprintln(os.Stderr, "the last words of the reviewer")
		return 3
	}

	return 0
}

const passes = `{"passed": true, "feedback": "fine", "criteria_results": [{"criterion": "Good", "passed": true, ` +
	`"feedback": null}]}`

// A reviewer is the program that a test's gate runs, and the switches it has.
type reviewer struct {
	t    testing.TB
	dir  string
	how  atomic.Pointer[Reviewing]
	gate *gate.Gate
}

// reviewed opens a server with an external reviewer that passes what is not bad, and starts alpha/main.
func (p *project) reviewed(how ...Reviewing) (srv *server, r *reviewer, c *Conn, id string) {
	p.t.Helper()
	return p.reviewedBy(func(*Options) {}, how...)
}

// reviewedBy is reviewed at a server with other options.
func (p *project) reviewedBy(
	change func(*Options), how ...Reviewing,
) (srv *server, r *reviewer, c *Conn, id string) {
	p.t.Helper()
	r = &reviewer{t: p.t, dir: p.t.TempDir()}
	r.how.Store(&append(how, Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute})[0])
	srv = p.reopen(r, change)
	c = srv.Connect("local")
	return srv, r, c, p.start(c, "alpha", "main").BeginStep.SessionID
}

func (p *project) reopen(r *reviewer, change ...func(*Options)) *server {
	p.t.Helper()
	r.set("say", passes)
	g := gate.Open(gate.Options{Root: p.root, Settings: func() gate.Settings {
		return gate.Settings{Command: []string{os.Args[0], "reviewer", r.dir}, MaxConcurrent: 2, MaxInlineFiles: 5}
	}})
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		testkit.Works(p.t, g.Close(ctx))
	})
	r.gate = g
	return p.open(append(change, func(o *Options) {
		o.Gate = g
		o.Reviewing = func(context.Context) (Reviewing, error) { return *r.how.Load(), nil }
	})...)
}

// underReview makes a project with a reviewed job, and starts that at a server with a reviewer, as reviewed does.
func underReview(t testing.TB, how ...Reviewing) (p *project, srv *server, rev *reviewer, c *Conn, id string) {
	t.Helper()
	return underJudgement(t, reviewedStep, how...)
}

func (r *reviewer) set(name, text string) { testkit.Write(r.t, filepath.Join(r.dir, name), text) }
func (r *reviewer) unset(name string)     { os.Remove(filepath.Join(r.dir, name)) }
func (r *reviewer) calls() int            { return lines(filepath.Join(r.dir, "calls")) }

func lines(path string) int {
	data, _ := os.ReadFile(path)
	return bytes.Count(data, []byte("\n"))
}

// held makes a call whose reviewer waits until the test unsets that, and returns once it runs.
func (r *reviewer) held(c *Conn, args string) chan answered {
	r.t.Helper()
	r.set("wait", "")
	n, got := r.calls(), beside(r.t, ctx, c, args)
	r.runs(n + 1)
	return got
}

// runs waits until the reviewer has been started n times.
func (r *reviewer) runs(n int) {
	r.t.Helper()
	testkit.Until(r.t, fmt.Sprintf("started %d times", n), func() bool { return r.calls() >= n })
}

const reviewedStep = "[{run_each: step, quality_criteria: {Good: \"Is it good?\"}}]"

// reviewedJob writes a job whose first step has these reviews, and files for the reviewer.
func (p *project) reviewedJob(reviews string) *project {
	p.alpha("[one, two]", testStep{id: "one", outputs: oneFile, reviews: reviews}, testStep{id: "two"})
	testkit.WriteAll(p.t, p.root, map[string]string{
		"good.md":  "CONTENT OF good.md",
		"bad.md":   "CONTENT OF bad.md",
		"worse.md": "CONTENT OF worse.md",
	})
	return p
}

// script is a check that is the shell script check.sh outside of the project, which notes its calls.
type script struct {
	t    testing.TB
	path string
}

func newScript(t testing.TB, text string) *script {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("uses a shell")
	}
	s := &script{t, filepath.Join(t.TempDir(), "check.sh")}
	s.says(text)
	return s
}

func (s *script) says(text string) {
	testkit.Write(s.t, s.path, "echo run >> "+s.path+".calls\n"+text+"\n")
}

func (s *script) runs() int { return lines(s.path + ".calls") }

// yaml is the check, with more of its keys.
func (s *script) yaml(keys string) string {
	return fmt.Sprintf("{run: [sh, %s], name: script%s}", s.path, keys)
}
