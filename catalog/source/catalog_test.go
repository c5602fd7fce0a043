package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestReq003_1_1_SourcesAreQueriedAtStart(t *testing.T) {
	r := open(t, settings(command("local", "good"), overHTTP(t, "web", &fakery{list: listOf(workflow("9", "nine"))})))
	s := r.tools(t, "nine", "one", "two")
	nine := s.Tool("nine")
	testkit.Equal(t, nine.Source, "web")
	testkit.Equal(t, nine.ID, "9")
	testkit.Equal(t, nine.Description, "does nine")
	testkit.Equal(t, nine.Away, "")
	testkit.True(t, s.Tool("none") == nil, "%+v", nine)
	testkit.Need(t, len(s.Sources) == 2, "%+v", s.Sources)
	testkit.Equal(t, s.Sources[0].Name, "local")
	testkit.True(t, s.Sources[0].Connected, "%+v", s.Sources)
	testkit.Equal(t, s.Sources[0].Workflows, 2)
	testkit.True(t, s.Sources[1].Err == nil, "%+v", s.Sources)
}

func TestReq003_1_3_AWorkflowThatIsGoneHasNoTool(t *testing.T) {
	f := &fakery{list: listOf(workflow("1", "one"), workflow("2", "two"))}
	server := f.server()
	r := open(t, settings(named(config.WorkflowSource{Name: "web", URL: serve(t, server).URL})))
	before := r.tools(t, "one", "two")
	f.set(listOf(workflow("2", "two"), workflow("3", "three")))

	// Any change of the source's tools makes it say so.
	server.AddTool(&mcp.Tool{Name: "another", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text(""), nil })
	testkit.Equal(t, before.Tool("two"), r.tools(t, "three", "two").Tool("two"),
		"a tool that did not change is another one")
}

func TestReq003_1_4_ASourceWithoutAListToolIsToldOf(t *testing.T) {
	bare := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"},
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}})
	f := &fakery{list: listOf(workflow("9", "nine"))}
	r := open(t, settings(named(config.WorkflowSource{Name: "bare", URL: serve(t, bare).URL}), overHTTP(t, "web", f)))
	s := r.until(t, "the error", func(s *source.Snapshot) bool {
		return len(s.Tools) == 1 && len(s.Sources) == 2 && s.Sources[0].Connected && s.Sources[0].Err != nil
	})
	testkit.Contains(t, s.Sources[0].Err.Error(), `no tool "workflows-list-tool"`)
	r.logged(t, "level=WARN", "source=bare", "workflows-list-tool")
}

func TestReq003_4_1_NothingIsConnectedWhileDisabled(t *testing.T) {
	f := &fakery{list: listOf(workflow("1", "one"))}
	c := settings(overHTTP(t, "web", f))
	c.WorkflowTools.Enabled = false
	r := open(t, c)
	report := testkit.Get(r.Refresh(t.Context(), patience)).Must(t)
	testkit.Need(t, len(report.Added) == 0, "%+v, asked %d times, %s", report, f.asked(), show(r.Snapshot()))
	testkit.Equal(t, f.asked(), 0, "%+v, asked %d times, %s", report, f.asked(), show(r.Snapshot()))
	testkit.Equal(t, len(r.Snapshot().Sources), 0, "%+v, asked %d times, %s", report, f.asked(), show(r.Snapshot()))

	on := *c
	on.WorkflowTools.Enabled = true
	r.configure(t, &on)
	r.tools(t, "one")
	r.settings.Store(c)
	r.tools(t) // noticed without being told
}

func TestReq003_4_2_FiltersAndPrefix(t *testing.T) {
	f := &fakery{list: listOf(workflow("1", "data-a"), workflow("2", "data-b-internal"), workflow("3", "other"))}
	c := settings(overHTTP(t, "web", f))
	c.WorkflowTools.Include, c.WorkflowTools.Exclude = []string{"data-*"}, []string{"*-internal"}
	r := open(t, c)
	r.tools(t, "data-a")
	asked := f.asked()
	wider := *c
	wider.WorkflowTools.Include, wider.WorkflowTools.Prefix = []string{"data-*", "o?her"}, "x_"
	r.configure(t, &wider)
	testkit.Equal(t, toolNames(r.Snapshot()), "x_data-a x_other", "Reconfigure made")
	testkit.True(t, f.asked() == asked && r.connected() == 1, "a changed filter reconnected")
}

func TestReq003_4_3_RefreshTellsWhatChanged(t *testing.T) {
	f := &fakery{list: listOf(workflow("1", "one"), workflow("2", "two"), workflow("3", "three"))}
	r := open(t, settings(overHTTP(t, "web", f)))
	r.tools(t, "one", "three", "two")
	f.set(listOf(workflow("1", "one"), `{"id":"2","name":"two","description":"another"}`, workflow("4", "four"),
		`{"id":"5","name":"five"}`))
	report := testkit.Get(r.Refresh(t.Context(), patience)).Must(t)
	testkit.Same(t, [][]string{report.Added, report.Removed, report.Changed}, [][]string{{"four"}, {"three"}, {"two"}})
	testkit.Contains(t, fmt.Sprintf("%d %+v", len(report.Skipped), report.Skipped),
		"1 [{Source:web Workflow:5 Reason:description is missing}]")
	report = testkit.Get(r.Refresh(t.Context(), patience)).Must(t)
	testkit.Equal(t, len(report.Added)+len(report.Removed)+len(report.Changed), 0, "the second time")
}

func TestReq003_4_4_AConfigChangeTouchesWhatItNames(t *testing.T) {
	a := &fakery{list: listOf(workflow("1", "one"))}
	b := &fakery{list: listOf(workflow("2", "two"))}
	d := &fakery{list: listOf(workflow("3", "three"))}
	first := overHTTP(t, "a", a)
	second := overHTTP(t, "b", b)
	third := overHTTP(t, "d", d)
	r := open(t, settings(first, second))
	r.tools(t, "one", "two")
	changed := second
	changed.Headers = map[string]string{"X-New": "1"}
	r.configure(t, settings(first, changed, third))

	// What the changed source offered stays listed while it is connected again.
	two := r.Snapshot().Tool("two")
	testkit.True(t, two != nil && two.Away != "", "meanwhile %s", show(r.Snapshot()))

	r.until(t, "all three", func(s *source.Snapshot) bool {
		return toolNames(s) == "one three two" && s.Tool("two").Away == ""
	})
	testkit.Equal(t, r.log.Count(`msg="a source is connected" source=a`), 1, "a was connected … times")
	r.settings.Store(settings(third))
	r.tools(t, "three")
	testkit.FailsWith(t, testkit.Get(r.Status(t.Context(), "a", "1", "x")).Err(), source.ErrUnknown,
		"a source that is gone")

	withheld := *settings(third)
	withheld.Approval = &config.Approval{Withheld: &config.Withheld{Asked: []config.Asked{{Key: config.SourcesKey +
		"a"}}}}
	r.configure(t, &withheld)
	_, err := r.Status(t.Context(), "a", "1", "x")
	testkit.True(t, errors.Is(err, source.ErrAway) && !errors.Is(err, source.ErrUnknown),
		"a source that is not approved: %v", err)
}

// TestReq003_4_4_ASourceTakenOutAndPutBack: it is begun again when the process that it was before is gone,
// which may hold a port or a lock.
func TestReq003_4_4_ASourceTakenOutAndPutBack(t *testing.T) {
	src, pid := withPID(t, "stubborn")
	r, _ := offering(t, src, "one", "two")
	was := testkit.Get(os.ReadFile(pid)).Must(t)
	for _, c := range []*config.Config{settings(), settings(src)} {
		r.configure(t, c)
	}
	r.until(t, "another process", func(*source.Snapshot) bool {
		now, err := os.ReadFile(pid)
		return err == nil && string(now) != string(was)
	})
	testkit.True(t, !alive(string(was)), "there were two of the source at once")
	r.tools(t, "one", "two")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testkit.Works(t, r.Close(ctx))
	testkit.True(t, ctx.Err() == nil && !alive(string(testkit.Get(os.ReadFile(pid)).Must(t))), "the source runs on")
}

func TestReq003_6_4_NamesThatClash(t *testing.T) {
	a := &fakery{list: listOf(workflow("1", "send"), workflow("2", "send"), workflow("f", "finished_step"),
		workflow("3", "alone"))}
	b := &fakery{list: listOf(workflow("1", "send"))}
	r := open(t, settings(overHTTP(t, "a", a), overHTTP(t, "b", b)), "finished_step")
	s := r.until(t, "five tools", func(s *source.Snapshot) bool { return len(s.Tools) == 5 })
	for _, name := range []string{"alone", "send_2", "finished_step_f"} {
		testkit.True(t, s.Tool(name) != nil, "there is no %s: %s", name, toolNames(s))
	}
	testkit.Need(t, s.Tool("send") == nil, "%v", toolNames(s))
	testkit.Need(t, s.Tool("send_1") == nil, "%v", toolNames(s))
	testkit.True(t, s.Tool("finished_step") == nil, "%v", toolNames(s))
}

func TestReq003_5_4_ToolsStayAWhileAndComeBack(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	testkit.Write(t, list, "["+workflow("1", "one")+"]")
	src, pid := withPID(t, "file "+list)
	c := settings(src)
	c.WorkflowTools.KeepToolsFor = 0
	r := open(t, c)
	r.tools(t, "one")
	kill(t, pid)
	r.until(t, "the tools to be away or gone", func(s *source.Snapshot) bool { return away(s) || len(s.Tools) == 0 })
	r.tools(t) // gone
	r.back(t, "one")
	r.logged(t, "a source cannot be reached")
	longer := *c
	longer.WorkflowTools.KeepToolsFor = time.Hour
	r.configure(t, &longer)
	tool := r.Snapshot().Tool("one")
	kill(t, pid)
	r.until(t, "the tool to be away", away)
	_, err := r.Execute(t.Context(), &tool.Workflow, nil, nil)
	testkit.True(t, err == nil || errors.Is(err, source.ErrAway), "called while away: %v", err)
	r.back(t, "one")
}

// withPID is a source in another process, and the file of its process id.
func withPID(t *testing.T, mode string) (src config.WorkflowSource, file string) {
	src, file = command("s", mode), filepath.Join(t.TempDir(), "pid")
	src.Env["PID_FILE"] = file
	return src, file
}

// alive reports whether there is a process of this id. It is not told on Windows.
func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && runtime.GOOS != "windows" && process.StartOf(n) != ""
}

func kill(t *testing.T, file string) {
	t.Helper()
	testkit.Must(t,
		testkit.Get(os.FindProcess(testkit.Get(strconv.Atoi(string(testkit.Get(os.ReadFile(file)).Must(t)))).Must(t))).
			Must(t).Kill())
}

// One bad source of each kind beside a good one: that is served, at once, and Close does not wait long for
// the others (5.1).
func TestReq003_5_1_BadSourcesDisturbNobody(t *testing.T) {
	f := &fakery{list: listOf(workflow("9", "nine"))}
	hung := listenAndServe(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // else the server does not see that the client has gone
		<-r.Context().Done()
	}))
	broken := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusTeapot)
	}))
	sources := []config.WorkflowSource{
		command("exit", "exit"), command("mute", "mute"), command("garbage", "garbage"), command("flood", "flood"),
		command("noise", "noise"),
		named(config.WorkflowSource{Name: "none", Command: []string{"/no/such/program"}}),
		named(config.WorkflowSource{Name: "hung", URL: hung.URL}),
		named(config.WorkflowSource{Name: "broken", URL: broken.URL}),
		named(config.WorkflowSource{Name: "nobody", URL: "http://127.0.0.1:1/mcp"}),
		named(config.WorkflowSource{
			Name:    "secret",
			URL:     hung.URL,
			Headers: map[string]string{"Authorization": "Bearer ${DEEPWORK_TEST_NOT_SET}"},
		}),
		overHTTP(t, "web", f),
	}
	r := open(t, settings(sources...))
	for _, src := range r.Snapshot().Sources {
		testkit.True(t, src.Name != "hung" || src.Err != nil &&
			strings.Contains(src.Err.Error(), "not established yet"), "Open has waited for one that hangs: %v", src.Err)
	}

	want := map[string]string{
		"exit": "no license", "flood": "maximum line length", "none": "no such program",
		"broken": "teapot", "nobody": "refused", "secret": `"DEEPWORK_TEST_NOT_SET" is not set`,
	}

	// One may be known long before another: a flood takes a busy machine its time.
	r.until(t, "the good ones, and the bad ones' errors", func(s *source.Snapshot) bool {
		known := 0
		for _, src := range s.Sources {
			if says := want[src.Name]; says != "" && src.Err != nil && strings.Contains(src.Err.Error(), says) {
				known++
			}
		}
		return toolNames(s) == "nine one two" && known == len(want)
	})
}

func TestSourceRunsInTheProjectWithItsEnvironment(t *testing.T) {
	src := command("local", "tell")
	src.Env["REGION"] = "eu"
	r, _ := offering(t, src, "one", "two")
	r.gives(t, &r.Snapshot().Tool("two").Workflow, "", fmt.Sprintf(`{"dir":%q,"env":"eu"}`, filepath.ToSlash(r.root)))
}

func TestHeadersComeFromTheEnvironmentAtEachConnection(t *testing.T) {
	parallel.Store(t, true) // alone, as the environment is that of all
	inner := mount(t, (&fakery{list: listOf(workflow("1", "one"))}).server())
	web := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	src := named(config.WorkflowSource{
		Name:    "shop",
		URL:     web.URL + "/mcp?key=s3cret",
		Headers: map[string]string{"Authorization": "Bearer ${DEEPWORK_TEST_TOKEN}"},
	})
	t.Setenv("DEEPWORK_TEST_TOKEN", "wrong")
	r := open(t, settings(src))
	want := web.URL + "/mcp answers 401 Unauthorized; see headers of the source in config.yml"
	r.until(t, want, func(s *source.Snapshot) bool {
		return strings.Contains(show(s), want) && !strings.Contains(show(s), "s3cret")
	})
	t.Setenv("DEEPWORK_TEST_TOKEN", "s3cret")
	r.refresh(t)
	r.tools(t, "one")
	testkit.True(t, !strings.Contains(r.log.String(), "s3cret"), "the token is in the log")
}

func TestPagesAreFollowed(t *testing.T) {
	f := &fakery{list: func(cursor string) *mcp.CallToolResult {
		switch cursor {
		case "":
			return structured(`{"workflows":[` + workflow("1", "one") + `],"nextCursor":"b"}`)
		case "b":
			return structured(`{"workflows":[` + workflow("2", "two") + `],"nextCursor":""}`)
		}
		return failure("no such page")
	}}
	r, _ := offering(t, overHTTP(t, "web", f), "one", "two")
	f.set(func(string) *mcp.CallToolResult {
		return structured(`{"workflows":[` + workflow("1", "one") + `],"nextCursor":"round"}`)
	})
	r.refresh(t)
	testkit.Fails(t, r.Snapshot().Sources[0].Err, "its pages repeat")
	r.tools(t, "one", "two")
}

// A source whose pages never end is asked for a bounded number of them.
func TestPagesThatNeverEnd(t *testing.T) {
	for method, reason := range map[string]string{
		"tools/list": "listing its tools: its list does not end",
		"tools/call": "its list does not end",
	} {
		f := &fakery{list: listOf(workflow("1", "one"))}
		server := f.server()
		var asked atomic.Int64
		server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, m string, r mcp.Request) (mcp.Result, error) {
				if m != method {
					return next(ctx, m, r)
				}
				n := asked.Add(1)
				if m == "tools/list" {
					return &mcp.ListToolsResult{Tools: []*mcp.Tool{}, NextCursor: fmt.Sprint(n)}, nil
				}
				return structured(fmt.Sprintf(`{"workflows":[],"nextCursor":"%d"}`, n)), nil
			}
		})

		r := open(t, settings(named(config.WorkflowSource{Name: "web", URL: serve(t, server).URL})))
		r.until(t, reason, func(s *source.Snapshot) bool { return strings.Contains(show(s), reason) })
		testkit.True(t, asked.Load() <= 30, "%s: asked %d times", method, asked.Load())
	}
}

func TestTenThousandWorkflowsAndNoMore(t *testing.T) {
	var all []string
	for i := range 10_050 {
		all = append(all, workflow(fmt.Sprint(i), fmt.Sprintf("w%d", i)))
	}
	r := open(t, settings(overHTTP(t, "web", &fakery{list: listOf(all...)})))
	told := 0 // one for the source, which is connected, and one for all of its tools
	for ; len(r.Snapshot().Tools) != 10_000; told++ {
		<-r.Changed()
	}
	s := r.Snapshot()
	testkit.True(t, len(s.Skipped) == 1 && strings.Contains(s.Skipped[0].Reason, "more than 10000 workflows"), "%+v",
		s.Skipped)
	testkit.True(t, told <= 2, "the change was told %d times", told)
}

func TestAFailedQueryIsTriedAgainAndTheIntervalQueries(t *testing.T) {
	for interval, want := range map[time.Duration]string{0: "round2", 20 * time.Millisecond: "round3"} {
		f := &fakery{}
		f.set(func(string) *mcp.CallToolResult {
			if f.asked() == 1 {
				return failure("the database is asleep")
			}
			return text("[" + workflow("1", fmt.Sprintf("round%d", min(3, f.asked()))) + "]")
		})
		c := settings(overHTTP(t, "web", f))
		c.WorkflowTools.RefreshInterval = interval
		r := open(t, c)
		r.tools(t, want)
		r.logged(t, "level=WARN", "the database is asleep")
	}
}

func TestBadSettingsAreToldByReconfigure(t *testing.T) {
	bad := errors.New("config.yml:3:1: no")
	c := source.Open(source.Options{
		Root:     t.TempDir(),
		Settings: func(context.Context) (*config.Config, error) { return nil, bad },
	})
	defer c.Close(t.Context())
	testkit.FailsWith(t, c.Reconfigure(t.Context()), bad)
	testkit.FailsWith(t, testkit.Get(c.Refresh(t.Context(), patience)).Err(), bad)
	testkit.Equal(t, len(c.Snapshot().Tools), 0, "there are tools")
}

// What cannot be run is not offered, and is named.
func TestASourceWithoutAnExecuteToolOffersNothing(t *testing.T) {
	src := overHTTP(t, "half", &fakery{list: listOf(workflow("1", "one"), workflow("2", "two"))})
	src.ExecuteTool = "run-it"
	r := open(t, settings(src))
	s := r.until(t, "two that are skipped", func(s *source.Snapshot) bool { return len(s.Skipped) == 2 })
	testkit.Need(t, len(s.Tools) == 0, "%v", show(s))
	testkit.Equal(t, s.Skipped[1].Workflow, "2")
	testkit.Contains(t, s.Skipped[1].Reason, `has no tool "run-it"`)
}
