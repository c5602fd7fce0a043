package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session/replies"
	"deepwork/transport/tools/source"
	"deepwork/transport/web"
)

const tripJob = `name: trip
version: 1.0.0
summary: Plans a trip
common_job_info_provided_to_all_steps_at_runtime: Prices in EUR.
workflows:
  - {name: plan, summary: From idea to booking, steps: [idea, [hotel, train], booking]}
  - {name: dream, summary: The idea alone, steps: [idea]}
steps:
  - {id: idea, name: Idea, description: Where to, instructions_file: idea.md, outputs: {idea: {type: file, ` +
	`description: The idea}}, reviews: []}
  - {id: hotel, name: Hotel, description: Where to sleep, instructions_file: idea.md, dependencies: [idea], ` +
	`outputs: {hotels: {type: files, description: Hotels}}, reviews: []}
  - {id: train, name: Train, description: How to get there, instructions_file: idea.md, dependencies: [idea], ` +
	`outputs: {trains: {type: files, description: Trains, required: false}}, reviews: []}
  - {id: booking, name: Booking, description: Book it, instructions_file: idea.md, dependencies: [hotel], outputs: ` +
	`{}, reviews: []}
`

var write = testkit.WriteAll

// project makes a project with one good job and one bad, and a server on it.
func project(t testing.TB, change func(*Options)) (*Server, string) {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml":   tripJob,
		".deepwork/jobs/trip/idea.md":   "Think <hard> & long.",
		".deepwork/jobs/broken/job.yml": "name: broken\nsteps: 7\n",
		"idea.txt":                      "sea",
		"h1.txt":                        "x",
	})

	s := serverOn(t, root, func(o *Options) {
		o.Toolsets = nil
		if change != nil {
			change(o)
		}
	})

	conforms(t, s)
	return s, root
}

func into[R any](t testing.TB, cs *mcp.ClientSession, name, args string) *R {
	t.Helper()
	r := new(R)
	res := callTool(t, cs, name, args)
	testkit.Need(t, !res.IsError, "%s(%s): %s", name, args, text(res))
	must(t, json.Unmarshal([]byte(text(res)), r))
	return r
}

func refusedWith(t testing.TB, cs *mcp.ClientSession, name, args, kind string) string {
	t.Helper()
	res := callTool(t, cs, name, args)
	testkit.True(t, res.IsError && strings.HasPrefix(text(res), kind+": "), "%s(%s): want a %s, got %s", name, args,
		kind, text(res))
	return text(res)
}

func TestReq001_1_1_ServerIsMade(t *testing.T) {
	t.Parallel()
	s, _ := project(t, nil)
	testkit.Need(t, s.MCP() != nil, "no MCP server")
	accepted(t, client(t, s), "get_workflows", `{}`)
}

// The parameters have the defaults of the seed, and take what it names.
func TestReq001_1_3_to_1_6_Parameters(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Options){
		func(o *Options) {
			o.EnableQualityGate = new(true)
			o.ExternalRunner = "claude"
		},
		func(o *Options) { o.EnableQualityGate = new(false) },
		func(o *Options) {
			o.QualityGateTimeout = 60e9
			o.QualityGateMaxAttempts = 5
		},
	} {
		s, _ := project(t, change)
		accepted(t, client(t, s), "get_workflows", `{}`)
	}
}

func TestReq001_1_10_ServerIsNamedDeepwork(t *testing.T) {
	t.Parallel()
	s, _ := project(t, func(o *Options) { o.Version = "9.8.7" })
	info := client(t, s).InitializeResult().ServerInfo
	testkit.Equal(t, info.Name, "deepwork")
	testkit.Equal(t, info.Version, "9.8.7")
}

func TestReq001_1_11_InstructionsOfAProject(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	got := client(t, s).InitializeResult().Instructions
	testkit.True(t, strings.HasPrefix(got, "1 job failed to load") && strings.Contains(got, "- broken: "),
		"got:\n%s", got)

	write(t, root,
		map[string]string{".deepwork/jobs/broken/job.yml": strings.Replace(tripJob, "name: trip", "name: repaired", 1)})
	got = client(t, s).InitializeResult().Instructions
	testkit.True(t, strings.HasPrefix(got, "Workflows") && strings.Contains(got, "repaired/dream"),
		"after the correction:\n%s", got)
}

func TestReq001_2_GetWorkflows(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	cs := client(t, s)
	type workflows struct {
		Jobs   []replies.JobInfo
		Errors []replies.JobLoadError
		Stack  []replies.StackEntry
	}
	got := into[workflows](t, cs, "get_workflows", `{}`)
	testkit.Need(t, len(got.Jobs) == 1, "got %+v", got)
	testkit.Equal(t, got.Jobs[0].Name, "trip", "got %+v", got)
	testkit.Need(t, len(got.Jobs[0].Workflows) == 2, "got %+v", got)
	testkit.Equal(t, got.Jobs[0].Workflows[0].Name, "plan", "got %+v", got)
	testkit.True(t, got.Stack != nil, "got %+v", got)
	testkit.Need(t, len(got.Errors) == 1, "errors %+v", got.Errors)
	testkit.Equal(t, got.Errors[0].JobName, "broken", "errors %+v", got.Errors)
	testkit.Contains(t, got.Errors[0].Error, "job.yml:", "errors %+v", got.Errors)
	testkit.True(t, filepath.IsAbs(got.Errors[0].JobDir), "errors %+v", got.Errors)

	// An agent that writes and calls at once sees what it wrote.
	write(t, root,
		map[string]string{".deepwork/jobs/two/job.yml": strings.Replace(tripJob, "name: trip", "name: two", 1)})
	jobs := into[workflows](t, cs, "get_workflows", `{}`).Jobs
	testkit.True(t, len(jobs) == 2 && jobs[1].Name == "two", "after the write: %+v", jobs)
}

func TestAdditionalJobsFromTheEnvironment(t *testing.T) {
	more := t.TempDir()
	write(t, more, map[string]string{"extra/job.yml": strings.Replace(tripJob, "name: trip", "name: extra", 1)})
	t.Setenv(config.JobsFoldersEnv, " "+more+" "+string(filepath.ListSeparator))
	testkit.Contains(t, accepted(t, client(t, made(t, Options{ProjectRoot: t.TempDir(), StandardJobs: fstest.MapFS{}})),
		"get_workflows", `{}`), `"extra"`)
}

// The standard jobs are there without being asked for, and not offered to other servers.
func TestStandardJobs(t *testing.T) {
	t.Parallel()
	cs := client(t, made(t, Options{ProjectRoot: t.TempDir(), Toolsets: []string{"workflows", "source"}}))
	testkit.ContainsAll(t, accepted(t, cs, "get_workflows", `{}`), []string{`"deepwork_jobs"`, `"new_job"`})
	testkit.Equal(t, accepted(t, cs, "workflows-list-tool", `{}`), "[]")
	refusedWith(t, cs, "workflows-execute-tool", `{"workflow_id":"deepwork_jobs/new_job","input":{"goal":"g"}}`,
		"ToolError")
}

func withSnapshot(snap *catalog.Snapshot) func(*engines) {
	return func(p *engines) { p.jobs = func(context.Context) *catalog.Snapshot { return snap } }
}

func jobsNamed(n int, summary string) []*job.Job {
	var jobs []*job.Job
	for i := range n {
		jobs = append(jobs, &job.Job{
			Name:      fmt.Sprintf("job_%d", i),
			Workflows: []job.Workflow{{Name: "w", Summary: summary}},
		})
	}
	return jobs
}

func TestReq001_1_11_InstructionsDescribeTheLifecycle(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil, withSnapshot(&catalog.Snapshot{Jobs: jobsNamed(2, "Does it.")}))
	got := client(t, s).InitializeResult().Instructions
	at := 0
	for _, word := range []string{"Discover", "Start", "Execute", "Checkpoint", "Iterate", "Continue", "Complete"} {
		i := strings.Index(got[at:], word+":")
		testkit.Need(t, i >= 0, "%s is not in its place in:\n%s", word, got)
		at += i
	}
	testkit.ContainsAll(t, got, []string{"get_workflows", "start_workflow", "finished_step", "get_step", "step_id",
		"request_id", "session_id", "Nested", "Concurrent"})
	testkit.True(t, strings.HasPrefix(got, "Workflows") && strings.Contains(got, "- job_1/w: Does it."),
		"the workflows do not come first:\n%s", got)
}

func TestInstructionsAreBounded(t *testing.T) {
	t.Parallel()
	loads := func(n int, text string) (errs []catalog.LoadError) {
		for i := range n {
			errs = append(errs, catalog.LoadError{JobName: fmt.Sprintf("broken_%d", i),
				Diagnostics: job.Diagnostics{{File: "job.yml", Warning: true, Message: "w"},
					{File: "job.yml", Line: 3, Column: 1, Message: text}}})
		}
		return errs
	}
	for name, c := range map[string]struct {
		snap *catalog.Snapshot
		says string
	}{
		"none":      {&catalog.Snapshot{}, "no workflows yet"},
		"1000 jobs": {&catalog.Snapshot{Jobs: jobsNamed(1000, strings.Repeat("é", 200))}, "more: get_workflows"},
		"long names": {&catalog.Snapshot{Jobs: []*job.Job{{
			Name:      strings.Repeat("j", 5000),
			Workflows: []job.Workflow{{Name: "w"}},
		}}}, "1 more"},
		"an error": {&catalog.Snapshot{Jobs: jobsNamed(3, "s"), Errors: loads(1, "steps: missing\nsecond line")},
			"broken_0: job.yml:3:1: steps: missing second line"},
		"1000 errors": {&catalog.Snapshot{Errors: loads(1000, strings.Repeat("\U0001F600", 500))},
			"1000 jobs failed to load"},
		"no diagnosis": {&catalog.Snapshot{Errors: []catalog.LoadError{{JobName: "x\xff"}}}, "does not load"},
	} {
		s, _ := fakeServer(t, nil, withSnapshot(c.snap))
		got := client(t, s).InitializeResult().Instructions
		testkit.True(t, len(got) < 2048 && utf8.ValidString(got), "%s: %d bytes, valid %v", name, len(got),
			utf8.ValidString(got))
		testkit.Contains(t, got, c.says, "%s", name)
		testkit.True(t, strings.HasSuffix(got, lifecycle), "%s: the lifecycle is cut:\n%s", name, got)
	}
}

// Every workflow is a prompt and every job a resource, and clients are notified when an edit changes what there is.
func TestPromptsAndResourcesFollowTheJobs(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	changed := make(chan string, 100)
	cs := client(t, s, &mcp.ClientOptions{
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { changed <- "prompts" },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { changed <- "resources" },
	})
	ctx := context.Background()
	c := cs.InitializeResult().Capabilities
	testkit.Need(t, c.Prompts != nil, "capabilities %+v", c)
	testkit.True(t, c.Prompts.ListChanged, "capabilities %+v", c)
	testkit.Need(t, c.Resources != nil, "capabilities %+v", c)
	testkit.True(t, c.Resources.ListChanged, "capabilities %+v", c)
	testkit.True(t, !c.Resources.Subscribe, "capabilities %+v", c)

	has := func(want ...string) {
		t.Helper()
		var got []string
		for p, err := range cs.Prompts(ctx, nil) {
			must(t, err)
			testkit.Need(t, len(p.Arguments) == 1, "prompt %+v", p)
			testkit.Equal(t, p.Arguments[0].Name, "goal", "prompt %+v", p)
			testkit.True(t, p.Description != "", "prompt %+v", p)
			got = append(got, p.Name)
		}
		for r, err := range cs.Resources(ctx, nil) {
			must(t, err)
			got = append(got, r.URI)
		}
		slices.Sort(got)
		testkit.Same(t, got, want)
	}
	has("deepwork://jobs/trip", "deepwork:trip:dream", "deepwork:trip:plan")
	both := func() {
		for told := map[string]bool{}; len(told) < 2; {
			told[<-changed] = true
		}
	}

	p := testkit.Get(cs.GetPrompt(ctx, &mcp.GetPromptParams{
		Name:      "deepwork:trip:plan",
		Arguments: map[string]string{"goal": "A week by the sea"},
	})).Must(t)
	testkit.ContainsAll(t, p.Messages[0].Content.(*mcp.TextContent).Text,
		[]string{`job_name "trip"`, `workflow_name "plan"`, "A week by the sea", "finished_step"}, "the prompt")

	read(t, cs, "deepwork://jobs/trip", "=== trip/idea: Idea ===", "Think <hard> & long.",
		"workflow plan, entry 2 of 3, concurrent: hotel, train", "Prices in EUR.")

	// A second job comes, and the first one loses a workflow.
	write(t, root, map[string]string{
		".deepwork/jobs/walk/job.yml": strings.Replace(tripJob, "name: trip", "name: walk", 1),
		".deepwork/jobs/walk/idea.md": "Walk.",
		".deepwork/jobs/trip/job.yml": strings.Replace(tripJob,
			"  - {name: dream, summary: The idea alone, steps: [idea]}\n", "", 1),
	})

	both()
	has("deepwork://jobs/trip", "deepwork://jobs/walk", "deepwork:trip:plan", "deepwork:walk:dream",
		"deepwork:walk:plan")
	testkit.Fails(t, testkit.Get(cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "deepwork:trip:dream"})).Err(),
		"unknown prompt", "a prompt that is gone")

	must(t, os.RemoveAll(filepath.Join(root, ".deepwork/jobs/walk")))
	both()
	has("deepwork://jobs/trip", "deepwork:trip:plan")
	testkit.Fails(t, testkit.Get(cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "deepwork://jobs/walk"})).Err(),
		"not found", "a job that is gone")
}

// A session is read, and its id completed, for the identity that it belongs to, in both eras.
func TestASessionIsAResourceOfItsOwner(t *testing.T) {
	t.Parallel()
	s, _ := project(t, nil)
	file, secrets := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	ann, bob := dial(t, h, "2025-11-25", secrets[0]), dial(t, h, "2025-11-25", secrets[1])
	started := into[replies.Start](t, ann, "start_workflow",
		`{"goal":"See\u001b[31m the sea","job_name":"trip","workflow_name":"plan"}`)
	uri := "deepwork://sessions/" + started.BeginStep.SessionID
	read(t, ann, uri, "trip/plan", `See the sea`, "idea", "in progress")
	templates, err := ann.ListResourceTemplates(context.Background(), nil)
	testkit.Need(t, err == nil, "templates %+v, %v", templates, err)
	testkit.Need(t, len(templates.ResourceTemplates) == 1, "templates %+v, %v", templates, err)
	testkit.Equal(t, templates.ResourceTemplates[0].URITemplate, "deepwork://sessions/{session_id}",
		"templates %+v, %v", templates, err)

	id := started.BeginStep.SessionID
	for begin, want := range map[string][2]int{"": {1, 0}, id[:3]: {1, 0}, id + "0": {}} {
		for i, cs := range []*mcp.ClientSession{ann, bob} {
			got := testkit.Get(cs.Complete(context.Background(),
				&mcp.CompleteParams{Ref: &mcp.CompleteReference{
					Type: "ref/resource",
					URI:  templates.ResourceTemplates[0].URITemplate,
				},
					Argument: mcp.CompleteParamsArgument{Name: "session_id", Value: begin}})).Must(t)
			testkit.Same(t, got.Completion.Values, []string{id}[:want[i]], "the completion of an id for caller %d", i)
		}
	}

	newest := &taker{t, httpClient(t, secrets[0]), h.URL(), `{}`}
	for ref, want := range map[string]string{
		`"type":"ref/resource","uri":"deepwork://sessions/{session_id}"`: "[" + id + "]",
		`"type":"ref/prompt","name":"deepwork:trip:plan"`:                "[]",
	} {
		r, fault := newest.request("completion/complete", "", `"ref":{`+ref+`},"argument":{"name":"goal","value":""}`)
		testkit.Equal(t, fmt.Sprint(r["completion"].(map[string]any)["values"], fault), want, "%s", ref)
	}
	testkit.Fails(t, testkit.Get(bob.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})).Err(), "not found",
		"another's")
	testkit.Fails(t, testkit.Get(ann.ReadResource(t.Context(),
		&mcp.ReadResourceParams{URI: "deepwork://sessions/../x"})).Err(), "not found", "no id")
}

func read(t *testing.T, cs *mcp.ClientSession, uri string, wants ...string) {
	t.Helper()
	r := testkit.Get(cs.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: uri})).Must(t)
	testkit.Equal(t, r.CacheScope, "private", "%s may be cached as", uri)
	testkit.ContainsAll(t, r.Contents[0].Text, wants, "%s lacks", uri)
}

// What is wrong with the options is said before anything is opened.
func TestNewServerRefusesBadOptions(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		o    Options
		says []string
	}{
		"runner": {Options{ProjectRoot: root, ExternalRunner: "gpt"}, []string{`"gpt"`, "claude"}},
		"toolset": {Options{ProjectRoot: root, Toolsets: []string{"workflows", "tools"}},
			[]string{`"tools"`, "workflows, remote, board, source"}},
		"timeout":  {Options{ProjectRoot: root, QualityGateTimeout: -1}, []string{"timeout", "negative"}},
		"attempts": {Options{ProjectRoot: root, QualityGateMaxAttempts: -2}, []string{"-2", "negative"}},
		"missing": {Options{ProjectRoot: filepath.Join(root, "none")},
			[]string{filepath.Join(root, "none"), "project"}},
		"a file": {Options{ProjectRoot: file}, []string{file, "not a directory"}},
	} {
		_, err := NewServer(c.o)
		testkit.Need(t, err != nil, "%s: accepted", name)
		testkit.ContainsAll(t, err.Error(), c.says, "%s", name)
	}

	// A server without any tool is of no use to anyone.
	testkit.Fails(t, testkit.Get(newServer(engines{connect: new(fakes).agent}, []string{}, "",
		slog.New(slog.DiscardHandler))).Err(), "workflows", "no sets")
}

// Seed 000, 001.1.2.
func TestReq001_1_2_RootIsResolved(t *testing.T) {
	root := testkit.Dir(t)
	t.Chdir(root)
	for _, in := range []string{"", ".", root} {
		testkit.Equal(t, testkit.Get(resolveRoot(in)).Must(t), root, "resolveRoot(%q)", in)
	}
}

// askJob takes inputs, one of which has the name of an argument that every workflow has.
const askJob = `name: ask
version: 1.0.0
summary: Ask people
common_job_info_provided_to_all_steps_at_runtime: Be polite.
workflows:
  - {name: them, summary: Ask them, steps: [talk], inputs: [{name: goal, description: What they want}, {name: main ` +
	`topic, description: What about, type: string, required: true},
      {name: places, description: Where to ask, type: files, required: false}, {name: tone, description: How, ` +
	`default: plain}]}
steps:
  - {id: talk, name: Talk, description: Talk, instructions_file: talk.md, outputs: {}, reviews: []}
`

func askProject(t *testing.T, config string, change func(*Options)) *mcp.ClientSession {
	t.Helper()
	s, root := bareProject(t, config, change)
	write(t, root, map[string]string{".deepwork/jobs/ask/job.yml": askJob, ".deepwork/jobs/ask/talk.md": "Talk."})
	return client(t, s)
}

// The inputs of a workflow are arguments of its prompt, and those with its values are in the text.
func TestPromptsTakeInputs(t *testing.T) {
	t.Parallel()
	cs := askProject(t, "", nil)
	var got []string
	for p, err := range cs.Prompts(context.Background(), nil) {
		must(t, err)
		for _, a := range p.Arguments {
			if p.Name == "deepwork:ask:them" {
				got = append(got, map[bool]string{true: "!"}[a.Required]+a.Name+": "+a.Description)
			}
		}
	}

	want := []string{"goal: What the user wants to have at the end, in a sentence", "!input_goal: What they want",
		"!main_topic: What about", "places: Where to ask", "tone: How. Default: plain"}
	testkit.Same(t, got, want, "the arguments")
	p := testkit.Get(cs.GetPrompt(context.Background(), &mcp.GetPromptParams{
		Name:      "deepwork:ask:them",
		Arguments: map[string]string{"goal": "Know it", "input_goal": `a "good" life`},
	})).Must(t)
	testkit.ContainsAll(t, p.Messages[0].Content.(*mcp.TextContent).Text,
		[]string{`with the inputs {"goal":"a \"good\" life"}`, "its inputs main topic are missing", "Know it"},
		"the prompt")
}

// The inputs of a workflow are in the schema that other servers see, and reach its session. (What they may be:
// TestInputsAsArguments of package tool.)
func TestSourceTakesInputs(t *testing.T) {
	t.Parallel()
	cs := askProject(t, "workflow_tools: {expose_jobs: true}\n", asSource)
	testkit.True(t, listed(t, cs)["ask-them"] != nil, "what was written a moment ago is not listed")

	var all []source.Workflow
	must(t, json.Unmarshal([]byte(accepted(t, cs, "workflows-list-tool", `{}`)), &all))
	i := slices.IndexFunc(all, func(w source.Workflow) bool { return w.ID == "ask/them" })
	testkit.Need(t, i >= 0, "ask/them is not in %+v", all)
	s := schemaFrom(t, all[i].InputSchema)
	testkit.Same(t, s.Required, []string{"goal", "input_goal", "main_topic"}, "required")

	for name, want := range map[string]string{"input_goal": "string", "main_topic": "string", "places": "array"} {
		p := s.Properties[name]
		testkit.True(t, p != nil && (p.Type == want || slices.Contains(p.Types, want)), "%s is %+v, want type %s",
			name, p, want)
	}

	for input, want := range map[string]string{
		`{"goal":"g","main_topic":"x"}`: `Missing required argument ` +
			`"input_goal": What they want`,
		`{"goal":"g","input_goal":"a","main_topic":"x","places_":["idea.txt"]}`: "did you mean places",
	} {
		testkit.Contains(t, refusedWith(t, cs, "workflows-execute-tool", `{"workflow_id":"ask/them","input":`+input+`}`,
			"ToolError"), want)
		testkit.Contains(t, refusedWith(t, cs, "ask-them", input, "ToolError"), want)
	}

	// Without those that are required, the session would be refused.
	whole := `{"goal":"g","input_goal":"a","main_topic":"x","places":["idea.txt"]}`
	into[source.StartedReply](t, cs, "workflows-execute-tool", `{"workflow_id":"ask/them","input":`+whole+`}`)
	into[replies.Start](t, cs, "ask-them", whole)
}
