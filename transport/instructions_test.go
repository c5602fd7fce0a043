package transport

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

func withSnapshot(snap *catalog.Snapshot) func(*engines) {
	return func(p *engines) { p.jobs = func(context.Context) *catalog.Snapshot { return snap } }
}

func jobsNamed(n int, summary string) []*job.Job {
	var jobs []*job.Job
	for i := range n {
		jobs = append(jobs, &job.Job{Name: fmt.Sprintf("job_%d", i), Workflows: []job.Workflow{{Name: "w", Summary: summary}}})
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
	testkit.ContainsAll(t, got, []string{"get_workflows", "start_workflow", "finished_step", "get_step", "step_id", "request_id", "session_id", "Nested", "Concurrent"})
	testkit.True(t, strings.HasPrefix(got, "Workflows") && strings.Contains(got, "- job_1/w: Does it."), "the workflows do not come first:\n%s", got)
}

func TestInstructionsAreBounded(t *testing.T) {
	t.Parallel()
	loads := func(n int, text string) (errs []catalog.LoadError) {
		for i := range n {
			errs = append(errs, catalog.LoadError{JobName: fmt.Sprintf("broken_%d", i),
				Diagnostics: job.Diagnostics{{File: "job.yml", Warning: true, Message: "w"}, {File: "job.yml", Line: 3, Column: 1, Message: text}}})
		}
		return errs
	}
	for name, c := range map[string]struct {
		snap *catalog.Snapshot
		says string
	}{
		"none":         {&catalog.Snapshot{}, "no workflows yet"},
		"1000 jobs":    {&catalog.Snapshot{Jobs: jobsNamed(1000, strings.Repeat("é", 200))}, "more: get_workflows"},
		"long names":   {&catalog.Snapshot{Jobs: []*job.Job{{Name: strings.Repeat("j", 5000), Workflows: []job.Workflow{{Name: "w"}}}}}, "1 more"},
		"an error":     {&catalog.Snapshot{Jobs: jobsNamed(3, "s"), Errors: loads(1, "steps: missing\nsecond line")}, "broken_0: job.yml:3:1: steps: missing second line"},
		"1000 errors":  {&catalog.Snapshot{Errors: loads(1000, strings.Repeat("\U0001F600", 500))}, "1000 jobs failed to load"},
		"no diagnosis": {&catalog.Snapshot{Errors: []catalog.LoadError{{JobName: "x\xff"}}}, "does not load"},
	} {
		s, _ := fakeServer(t, nil, withSnapshot(c.snap))
		got := client(t, s).InitializeResult().Instructions
		if len(got) >= 2048 || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid %v", name, len(got), utf8.ValidString(got))
		}
		testkit.Contains(t, got, c.says, "%s", name)
		testkit.True(t, strings.HasSuffix(got, lifecycle), "%s: the lifecycle is cut:\n%s", name, got)
	}
}

// Every workflow is a prompt and every job a resource, and clients are notified when an edit changes
// what there is.
func TestPromptsAndResourcesFollowTheJobs(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	changed := make(chan string, 100)
	cs := clientWith(t, s, &mcp.ClientOptions{
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { changed <- "prompts" },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { changed <- "resources" },
	})
	ctx := context.Background()
	if c := cs.InitializeResult().Capabilities; c.Prompts == nil || !c.Prompts.ListChanged || c.Resources == nil || !c.Resources.ListChanged || c.Resources.Subscribe {
		t.Errorf("capabilities %+v", c)
	}
	has := func(want ...string) {
		t.Helper()
		var got []string
		for p, err := range cs.Prompts(ctx, nil) {
			must(t, err)
			testkit.True(t, len(p.Arguments) == 1 && p.Arguments[0].Name == "goal" && p.Description != "", "prompt %+v", p)
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

	p := testkit.Get(cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "deepwork:trip:plan", Arguments: map[string]string{"goal": "A week by the sea"}})).Must(t)
	testkit.ContainsAll(t, p.Messages[0].Content.(*mcp.TextContent).Text, []string{`job_name "trip"`, `workflow_name "plan"`, "A week by the sea", "finished_step"}, "the prompt")
	read(t, cs, "deepwork://jobs/trip", "=== trip/idea: Idea ===", "Think <hard> & long.", "workflow plan, entry 2 of 3, concurrent: hotel, train", "Prices in EUR.")

	// A second job comes, and the first one loses a workflow.
	write(t, root, map[string]string{
		".deepwork/jobs/walk/job.yml": strings.Replace(tripJob, "name: trip", "name: walk", 1),
		".deepwork/jobs/walk/idea.md": "Walk.",
		".deepwork/jobs/trip/job.yml": strings.Replace(tripJob, "  - name: dream\n    summary: The idea alone\n    steps: [idea]\n", "", 1),
	})
	for told := map[string]bool{}; len(told) < 2; {
		told[<-changed] = true
	}
	has("deepwork://jobs/trip", "deepwork://jobs/walk", "deepwork:trip:plan", "deepwork:walk:dream", "deepwork:walk:plan")
	testkit.Fails(t, testkit.Get(cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "deepwork:trip:dream"})).Err(), "unknown prompt", "a prompt that is gone")
	must(t, os.RemoveAll(filepath.Join(root, ".deepwork/jobs/walk")))
	for told := map[string]bool{}; len(told) < 2; {
		told[<-changed] = true
	}
	has("deepwork://jobs/trip", "deepwork:trip:plan")
	testkit.Fails(t, testkit.Get(cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "deepwork://jobs/walk"})).Err(), "not found", "a job that is gone")
}

// A session is read, and its id completed, for the identity that it belongs to, in both eras.
func TestASessionIsAResourceOfItsOwner(t *testing.T) {
	t.Parallel()
	s, _ := project(t, nil)
	file, secrets := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	ann, bob := dial(t, h, "2025-11-25", secrets[0]), dial(t, h, "2025-11-25", secrets[1])
	started := into[machine.StartReply](t, ann, "start_workflow", `{"goal":"See\u001b[31m the sea","job_name":"trip","workflow_name":"plan"}`)
	uri := "deepwork://sessions/" + started.BeginStep.SessionID
	read(t, ann, uri, "trip/plan", `See the sea`, "idea", "in progress")
	templates, err := ann.ListResourceTemplates(context.Background(), nil)
	testkit.True(t, err == nil && len(templates.ResourceTemplates) == 1 && templates.ResourceTemplates[0].URITemplate == "deepwork://sessions/{session_id}", "templates %+v, %v", templates, err)
	id := started.BeginStep.SessionID
	for begin, want := range map[string][2]int{"": {1, 0}, id[:3]: {1, 0}, id + "0": {}} {
		for i, cs := range []*mcp.ClientSession{ann, bob} {
			got := testkit.Get(cs.Complete(context.Background(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: templates.ResourceTemplates[0].URITemplate},
				Argument: mcp.CompleteParamsArgument{Name: "session_id", Value: begin}})).Must(t)
			testkit.Same(t, got.Completion.Values, []string{id}[:want[i]], "the completion of an id for caller %d", i)
		}
	}
	newest := &taker{t, httpClient(t, secrets[0]), h.URL(), `{}`}
	for ref, want := range map[string]string{`"type":"ref/resource","uri":"deepwork://sessions/{session_id}"`: "[" + id + "]", `"type":"ref/prompt","name":"deepwork:trip:plan"`: "[]"} {
		r, fault := newest.request("completion/complete", "", `"ref":{`+ref+`},"argument":{"name":"goal","value":""}`)
		if values := r["completion"].(map[string]any)["values"]; fault != "" || fmt.Sprint(values) != want {
			t.Errorf("%s: %v, %s", ref, values, fault)
		}
	}
	for what, try := range map[string]func() error{
		"another's": func() error {
			_, err := bob.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: uri})
			return err
		},
		"no id": func() error {
			_, err := ann.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "deepwork://sessions/../x"})
			return err
		},
	} {
		testkit.Fails(t, try(), "not found", "%s", what)
	}
}

// read checks parts of a resource.
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
		"runner":   {Options{ProjectRoot: root, ExternalRunner: "gpt"}, []string{`"gpt"`, "claude"}},
		"toolset":  {Options{ProjectRoot: root, Toolsets: []string{"workflows", "tools"}}, []string{`"tools"`, "workflows, remote, board, source"}},
		"timeout":  {Options{ProjectRoot: root, QualityGateTimeout: -1}, []string{"timeout", "negative"}},
		"attempts": {Options{ProjectRoot: root, QualityGateMaxAttempts: -2}, []string{"-2", "negative"}},
		"missing":  {Options{ProjectRoot: filepath.Join(root, "none")}, []string{filepath.Join(root, "none"), "project"}},
		"a file":   {Options{ProjectRoot: file}, []string{file, "not a directory"}},
	} {
		s, err := NewServer(c.o)
		if err == nil {
			s.Close(t.Context())
			t.Errorf("%s: accepted", name)
			continue
		}
		testkit.ContainsAll(t, err.Error(), c.says, "%s", name)
	}
}

// A server without any tool is of no use to anyone.
func TestToolsetsWithoutTools(t *testing.T) {
	t.Parallel()
	testkit.Fails(t, testkit.Get(newServer(engines{connect: new(fakes).agent}, []string{}, "", slog.New(slog.DiscardHandler))).Err(), "workflows", "no sets")
	for _, sets := range [][]string{nil, {"workflows"}, {"board"}, {"board", "remote"}} {
		testkit.Works(t, testkit.Get(newServer(engines{connect: new(fakes).agent}, sets, "", slog.New(slog.DiscardHandler))).Err(), "%v", sets)
	}
}

// Seed 000, 001.1.2.
func TestReq001_1_2_RootIsResolved(t *testing.T) {
	root := testkit.Dir(t)
	t.Chdir(root)
	for _, in := range []string{"", ".", root} {
		testkit.Equal(t, testkit.Get(resolveRoot(in)).Must(t), root, "resolveRoot(%q)", in)
	}
}
