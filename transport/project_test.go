package transport

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/workflow/machine"
)

const tripJob = `name: trip
version: 1.0.0
summary: Plans a trip
common_job_info_provided_to_all_steps_at_runtime: Prices in EUR.
workflows:
  - name: plan
    summary: From idea to booking
    steps: [idea, [hotel, train], booking]
  - name: dream
    summary: The idea alone
    steps: [idea]
steps:
  - id: idea
    name: Idea
    description: Where to
    instructions_file: idea.md
    outputs:
      idea: {type: file, description: The idea, required: true}
    reviews: []
  - id: hotel
    name: Hotel
    description: Where to sleep
    instructions_file: idea.md
    dependencies: [idea]
    outputs:
      hotels: {type: files, description: Hotels, required: true}
    reviews: []
  - id: train
    name: Train
    description: How to get there
    instructions_file: idea.md
    dependencies: [idea]
    outputs:
      trains: {type: files, description: Trains, required: false}
    reviews: []
  - id: booking
    name: Booking
    description: Book it
    instructions_file: idea.md
    dependencies: [hotel]
    outputs: {}
    reviews: []
`

var write = testkit.WriteAll

// project makes a project with one good job and one bad, and a server on it.
func project(t testing.TB, change func(*Options)) (*Server, string) {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/jobs/trip/job.yml": tripJob, ".deepwork/jobs/trip/idea.md": "Think <hard> & long.",
		".deepwork/jobs/broken/job.yml": "name: broken\nsteps: 7\n", "idea.txt": "sea", "h1.txt": "x"})
	s := serverOn(t, root, func(o *Options) {
		o.Toolsets = nil
		if change != nil {
			change(o)
		}
	})
	conforms(t, s)
	return s, root
}

// into calls a tool and decodes its structured reply.
func into[R any](t testing.TB, cs *mcp.ClientSession, name, args string) *R {
	t.Helper()
	r := new(R)
	res := callTool(t, cs, name, args)
	testkit.Need(t, !res.IsError, "%s(%s): %s", name, args, text(res))
	must(t, json.Unmarshal([]byte(text(res)), r))
	return r
}

// refusedWith calls a tool that must refuse, and returns the text.
func refusedWith(t testing.TB, cs *mcp.ClientSession, name, args, kind string) string {
	t.Helper()
	res := callTool(t, cs, name, args)
	testkit.True(t, res.IsError && strings.HasPrefix(text(res), kind+": "), "%s(%s): want a %s, got %s", name, args, kind, text(res))
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
		func(o *Options) { o.EnableQualityGate = new(true); o.ExternalRunner = "claude" },
		func(o *Options) { o.EnableQualityGate = new(false) },
		func(o *Options) { o.QualityGateTimeout = 60e9; o.QualityGateMaxAttempts = 5 },
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
	testkit.True(t, strings.HasPrefix(got, "1 job failed to load") && strings.Contains(got, "- broken: "), "got:\n%s", got)
	write(t, root, map[string]string{".deepwork/jobs/broken/job.yml": strings.Replace(tripJob, "name: trip", "name: repaired", 1)})
	got = client(t, s).InitializeResult().Instructions
	testkit.True(t, strings.HasPrefix(got, "Workflows") && strings.Contains(got, "repaired/dream"), "after the correction:\n%s", got)
}

func TestReq001_2_GetWorkflows(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	cs := client(t, s)
	type workflows struct {
		Jobs   []machine.JobInfo
		Errors []machine.JobLoadError
		Stack  []machine.StackEntry
	}
	got := into[workflows](t, cs, "get_workflows", `{}`)
	testkit.True(t, len(got.Jobs) == 1 && got.Jobs[0].Name == "trip" && len(got.Jobs[0].Workflows) == 2 && got.Jobs[0].Workflows[0].Name == "plan" && got.Stack != nil, "got %+v", got)
	testkit.True(t, len(got.Errors) == 1 && got.Errors[0].JobName == "broken" && strings.Contains(got.Errors[0].Error, "job.yml:") && filepath.IsAbs(got.Errors[0].JobDir), "errors %+v", got.Errors)
	// An agent that writes and calls at once sees what it wrote.
	write(t, root, map[string]string{".deepwork/jobs/two/job.yml": strings.Replace(tripJob, "name: trip", "name: two", 1)})
	jobs := into[workflows](t, cs, "get_workflows", `{}`).Jobs
	testkit.True(t, len(jobs) == 2 && jobs[1].Name == "two", "after the write: %+v", jobs)
}

func TestAdditionalJobsFromTheEnvironment(t *testing.T) {
	more := t.TempDir()
	write(t, more, map[string]string{"extra/job.yml": strings.Replace(tripJob, "name: trip", "name: extra", 1)})
	t.Setenv(config.JobsFoldersEnv, " "+more+" "+string(filepath.ListSeparator))
	testkit.Contains(t, accepted(t, client(t, made(t, Options{ProjectRoot: t.TempDir(), StandardJobs: fstest.MapFS{}})), "get_workflows", `{}`), `"extra"`)
}

func TestConfigIsFollowed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "version: [\n"})
	cs := client(t, serverOn(t, root, nil))
	testkit.Contains(t, refusedWith(t, cs, "get_workflows", `{}`, "StateError"), "config.yml")
	testkit.Contains(t, cs.InitializeResult().Instructions, "config.yml", "instructions")
	write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\n"})
	accepted(t, cs, "get_workflows", `{}`)
}

// The standard jobs are there without being asked for, and not offered to other servers.
func TestStandardJobs(t *testing.T) {
	t.Parallel()
	cs := client(t, made(t, Options{ProjectRoot: t.TempDir(), Toolsets: []string{"workflows", "source"}}))
	testkit.ContainsAll(t, accepted(t, cs, "get_workflows", `{}`), []string{`"deepwork_jobs"`, `"new_job"`})
	testkit.Equal(t, accepted(t, cs, "workflows-list-tool", `{}`), "[]")
	refusedWith(t, cs, "workflows-execute-tool", `{"workflow_id":"deepwork_jobs/new_job","input":{"goal":"g"}}`, "ToolError")
}
