package transport

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// Every workflow is a prompt and every job a resource, and clients are notified when an edit changes
// what there is.
func TestPromptsAndResourcesFollowTheJobs(t *testing.T) {
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
			if len(p.Arguments) != 1 || p.Arguments[0].Name != "goal" || p.Description == "" {
				t.Errorf("prompt %+v", p)
			}
			got = append(got, p.Name)
		}
		for r, err := range cs.Resources(ctx, nil) {
			must(t, err)
			got = append(got, r.URI)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	has("deepwork://jobs/trip", "deepwork:trip:dream", "deepwork:trip:plan")

	p, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "deepwork:trip:plan", Arguments: map[string]string{"goal": "A week by the sea"}})
	must(t, err)
	for _, want := range []string{`job_name "trip"`, `workflow_name "plan"`, "A week by the sea", "finished_step"} {
		if got := p.Messages[0].Content.(*mcp.TextContent).Text; !strings.Contains(got, want) {
			t.Errorf("the prompt %q lacks %q", got, want)
		}
	}
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
	if _, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "deepwork:trip:dream"}); err == nil || !strings.Contains(err.Error(), "unknown prompt") {
		t.Errorf("a prompt that is gone: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(root, ".deepwork/jobs/walk")))
	for told := map[string]bool{}; len(told) < 2; {
		told[<-changed] = true
	}
	has("deepwork://jobs/trip", "deepwork:trip:plan")
	if _, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "deepwork://jobs/walk"}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a job that is gone: %v", err)
	}
}

// A session is read by the identity that it belongs to.
func TestASessionIsAResourceOfItsOwner(t *testing.T) {
	s, _ := project(t, nil)
	file, secrets := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	ann, bob := dial(t, h, "2025-11-25", secrets[0]), dial(t, h, "2025-11-25", secrets[1])
	started := into[machine.StartReply](t, ann, "start_workflow", `{"goal":"See\u001b[31m the sea","job_name":"trip","workflow_name":"plan"}`)
	uri := "deepwork://sessions/" + started.BeginStep.SessionID
	read(t, ann, uri, "trip/plan", `See\u001b[31m the sea`, "idea", "in progress")
	templates, err := ann.ListResourceTemplates(context.Background(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != "deepwork://sessions/{session_id}" {
		t.Errorf("templates %+v, %v", templates, err)
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
		if err := try(); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// read checks parts of a resource.
func read(t *testing.T, cs *mcp.ClientSession, uri string, wants ...string) {
	t.Helper()
	r, err := cs.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: uri})
	must(t, err)
	if r.CacheScope != "private" {
		t.Errorf("%s may be cached as %q", uri, r.CacheScope)
	}
	for _, want := range wants {
		if !strings.Contains(r.Contents[0].Text, want) {
			t.Errorf("%s lacks %q:\n%s", uri, want, r.Contents[0].Text)
		}
	}
}
