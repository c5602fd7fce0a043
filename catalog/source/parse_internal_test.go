package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

func list(page json.RawMessage) (*listing, error) {
	l := newListing("s", nil)
	_, err := l.add(page)
	return l, err
}

func one(t *testing.T, text string) *offered {
	t.Helper()
	p, err := list(json.RawMessage(text))
	testkit.Need(t, err == nil && len(p.workflows) == 1, "%+v %v", p, err)
	return p.workflows[0]
}

func TestReq003_6_1_EveryFieldIsTaken(t *testing.T) {
	w := one(t, `{"workflows":[{"id":"a/1","name":"data sync","description":"syncs","category":"etl","version":"2.1",
		"inputSchema":{"type":"object","properties":{"zone":{"type":"string"},"age":{"type":"integer"}},`+
		`"required":["zone"]},
		"executionType":"sync","metadata":{"z":1,"a":2},"more":true}]}`)
	testkit.Equal(t, fmt.Sprint(w.Source, w.ID, w.Name, w.Description, w.Category, w.Version, w.Async, w.notes),
		"sa/1data syncsyncsetl2.1false []")
	testkit.Equal(t, string(w.Metadata), `{"z":1,"a":2}`)
	testkit.Equal(t, string(w.InputSchema),
		`{"type":"object","properties":{"zone":{"type":"string"},"age":{"type":"integer"}},"required":["zone"]}`)
}

func TestReq003_3_3_MissingFieldsHaveDefaults(t *testing.T) {
	w := one(t, `[{"id":"1","name":"n","description":"d"}]`)
	testkit.Equal(t, w.Category, "workflow")
	testkit.Equal(t, w.Version, "1.0.0")
	testkit.True(t, w.Async, "%+v", w)
	testkit.Need(t, w.Metadata == nil, "%+v", w)
	testkit.Equal(t, string(w.InputSchema), string(anyObject))
	testkit.Equal(t, len(w.notes), 0)

	for given, want := range map[string]struct {
		Performer
		notes int
	}{`"agent"`: {ByAgent, 0}, `"person"`: {ByPerson, 0}, `null`: {"", 0}, `"robot"`: {"", 1}, `["agent"]`: {"", 1}} {
		w := one(t, `[{"id":"1","name":"n","description":"d","metadata":{"performer":`+given+`}}]`)
		testkit.Equal(t, w.Performer, want.Performer, "performer %s: %q, %v", given, w.Performer, w.notes)
		testkit.Need(t, len(w.notes) == want.notes, "performer %s: %q, %v", given, w.Performer, w.notes)
		testkit.True(t, w.Metadata != nil, "performer %s: %q, %v", given, w.Performer, w.notes)
	}
	w = one(t,
		`[{"id":"1","name":"n","description":"d","category":null,"version":7,"executionType":"maybe","metadata":[1]}]`)
	testkit.Equal(t, w.Category, "workflow")
	testkit.Equal(t, w.Version, "1.0.0")
	testkit.True(t, w.Async, "%+v", w)
	testkit.Need(t, w.Metadata == nil, "%+v", w)
	testkit.Equal(t, len(w.notes), 3)
}

func TestReq003_6_2_AWorkflowWithoutARequiredFieldIsSkipped(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"n","description":"d"}`:             "id is missing",
		`{"id":"1","description":"d"}`:               "name is missing",
		`{"id":"1","name":"n"}`:                      "description is missing",
		`{"id":1,"name":"n","description":"d"}`:      "id is a number; expected a text",
		`{"id":"1","name":" ","description":"d"}`:    "name is empty",
		`{"id":"1","name":["n"],"description":null}`: "name is an array; expected a text; description is missing",
		`null`: "it is null", `7`: "it is a number", `[]`: "it is an array", `"x"`: "it is a text",
	} {
		p, err := list(json.RawMessage(`[` + text + `,{"id":"2","name":"good","description":"d"}]`))
		testkit.Need(t, err == nil, "%.100s: %+v %v", text, p, err)
		testkit.Need(t, len(p.workflows) == 1, "%.100s: %+v %v", text, p, err)
		testkit.Need(t, len(p.skipped) == 1, "%.100s: %+v %v", text, p, err)
		testkit.Need(t, len(p.skipped[0].Workflow) <= 110, "%.100s: %+v %v", text, p, err)
		testkit.Contains(t, p.skipped[0].Reason, want)
	}
}

func TestAnswersThatAreNoList(t *testing.T) {
	for _, text := range []string{``, ` `, `null`, `7`, `"x"`, `{}`, `{"workflows":{}}`, `{"workflows":null}`, `[`,
		`[1,`, `{"workflows":[]`,
		`{"workflows":[],"nextCursor":7}`, `{"workflows":[],"nextCursor":"` + strings.Repeat("x", maxCursor+1) + `"}`,
		`[` + strings.Repeat(" ", maxPage) + `]`} {
		p, err := list(json.RawMessage(text))
		testkit.True(t, err != nil, "%.50q: %+v", text, p)
	}
}

// Each bound of a workflow is for more than it says: what has exactly that much is taken as it is.
func TestBoundsOfAWorkflow(t *testing.T) {
	text := func(unit string) func(int) string {
		return func(n int) string { return `"` + strings.Repeat(unit, n) + `"` }
	}
	object := func(n int) string { return `{"x":"` + strings.Repeat("x", n-len(`{"x":""}`)) + `"}` }
	nested := func(n int) string { return strings.Repeat(`{"x":`, n) + "1" + strings.Repeat("}", n) }
	for _, c := range []struct {
		key   string
		most  int
		value func(int) string
		want  string // what is said of one more
	}{
		{"id", maxID, text("x"), "id has 1025 bytes, at most 1024 are allowed"},
		{"name", maxName, text("é"), "name has 257 characters, at most 256 are allowed"},
		{"description", maxDescription, text("é"), "its description has 8001 characters and was cut"},
		{"category", maxField, text("é"), "its category is longer than 256 characters; workflow is used"},
		{"version", maxField, text("é"), "its version is longer than 256 characters; 1.0.0 is used"},
		{"metadata", maxMetadata, object, "its metadata has 65537 bytes and was left out"},
		{"metadata", maxDepth, nested, "its metadata is nested more than 64 deep and was left out"},
		{"inputSchema", maxSchema, object,
			"its inputSchema is not usable, so that any object is taken: it has 262145 bytes, at most 262144 are " +
				"allowed"},
		{"inputSchema", maxDepth, nested,
			"its inputSchema is not usable, so that any object is taken: it is nested more than 64 deep"},
	} {
		for more, want := range []string{"", c.want} {
			fields := map[string]json.RawMessage{
				"id":          []byte(`"1"`),
				"name":        []byte(`"n"`),
				"description": []byte(`"d"`),
			}
			fields[c.key] = []byte(c.value(c.most + more))
			w, _, err := parseWorkflow("s", testkit.Get(json.Marshal(fields)).Must(t))
			got := ""
			if err != nil {
				got = err.Error()
			} else if len(w.notes) > 0 {
				got = strings.Join(w.notes, "; ")
				testkit.Need(t, len(w.Metadata) == 0, "%s: %+v", c.key, w)
				testkit.Need(t, len([]rune(w.Description)) <= maxDescription, "%s: %+v", c.key, w)
				testkit.Need(t, len(w.Category) <= maxField, "%s: %+v", c.key, w)
				testkit.True(t, len(w.Version) <= maxField, "%s: %+v", c.key, w)
			}
			testkit.Equal(t, got, want, "%s", c.key)
		}
	}
}

// What has exactly as much as an answer or a page may have is taken as it is.
func TestBoundsOfAnswers(t *testing.T) {
	quoted := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }
	testkit.Equal(t, len(identifier(quoted(maxID)))+len(identifier(quoted(maxID+1))), maxID)
	for _, n := range []int{maxAnswer, maxAnswer + 1} {
		testkit.Equal(t, jsontext.Kind(shallow([]byte(strings.Repeat("[", n)+strings.Repeat("]", n)))) == "array",
			n == maxAnswer, "of depth %d", n)
	}

	for raw, want := range map[string]string{
		"-0.1":                                   "-0.1",
		"0":                                      "0/1",
		"1":                                      "1/1",
		"1.5":                                    "1.5/100",
		"100":                                    "100/100",
		"100.5":                                  "100.5",
		"true":                                   "",
		"null":                                   "",
		`""`:                                     "",
		`"half"`:                                 "half",
		`{"progress":3,"total":4,"message":"m"}`: "3/4 m",
		`{"message":"m"}`:                        "m",
		`{"progress":{"progress":1}}`:            "",
		`{"progress":1e999}`:                     "",
	} {
		got := ""
		if p := progressOf(json.RawMessage(raw), nil, nil); p != nil {
			if p.Value != nil {
				got = fmt.Sprint(*p.Value)
			}
			if p.Total != nil {
				got += "/" + fmt.Sprint(*p.Total)
			}
			got = strings.TrimSpace(got + " " + p.Message)
		}
		testkit.Equal(t, got, want, "%s", raw)
	}

	for raw, want := range map[string]string{
		`"no"`:                         "no",
		`{"message":" ","error":"no"}`: "no",
		`{"error":{"a": 1}}`:           `{"error":{"a":1}}`,
		`[1, 2]`:                       "[1,2]",
		`{`:                            "{",
	} {
		testkit.Equal(t, errorText(json.RawMessage(raw)), want)
	}
	for _, n := range []int{maxCursor, maxCursor + 1} {
		_, next, err := splitPage(fmt.Appendf(nil, `{"workflows":[],"nextCursor":%s}`, quoted(n)))
		testkit.True(t, (err == nil) == (n == maxCursor) && (err != nil || len(next) == n),
			"a cursor of %d: %v", n, err)
	}
	for _, n := range []int{maxID - len(taskID), maxID - len(taskID) + 1} {
		_, err := (&sourceTask{TaskID: strings.Repeat("x", n), Status: "working"}).answer()
		testkit.Equal(t, err == nil, n+len(taskID) == maxID, "the id of a task: %v", err)
	}

	// Two pages that repeat, or an id that comes twice, are told.
	l := newListing("s", nil)
	testkit.Equal(t,
		testkit.Get(
			l.add(
				[]byte(`{"workflows":[{"id":"1","name":"n","description":"d"},{"id":"1","name":"m",`+
					`"description":"d"}],"nextCursor":"2"}`))).Must(t), "2")
	testkit.Equal(t, l.reasons()[0].Reason, "a second workflow of this id; the first is taken")
	testkit.Fails(t, testkit.Get(l.add([]byte(`{"workflows":[],"nextCursor":"2"}`))).Err(), "its pages repeat")

	// A log has each line once, and no more than a bounded number of them.
	var logged strings.Builder
	src := &source{logger: slog.New(slog.NewTextHandler(&logged, nil))}
	now := &offer{connected: true}
	for i := range maxLogged + 1 {
		now.skipped = append(now.skipped, Skipped{Workflow: fmt.Sprint(i), Reason: "no"},
			Skipped{Workflow: fmt.Sprint(i), Reason: "no"})
	}
	src.log(&offer{}, now)
	src.log(now, now)
	testkit.Equal(t, strings.Count(logged.String(), "a workflow is not offered"), maxLogged, "%s", &logged)
	testkit.Equal(t, strings.Count(logged.String(), "a source is connected"), 1)
}

// The name of a tool has the characters that every client takes, and 64 of them.
func TestLegalNames(t *testing.T) {
	for name, want := range map[string]string{
		"azAZ09_-":      "azAZ09_-",
		"a`b{c@d[e/f:g": "a_b_c_d_e_f_g",
		" é a  b ":      "a_b",
		"日本":            "",
	} {
		testkit.Equal(t, legal(name), want)
	}

	long := strings.Repeat("x", maxToolName)
	testkit.Equal(t, plainName("", &Workflow{Name: long})+" "+plainName("", &Workflow{Name: long + "x"}),
		long+" "+long[:55]+"_"+digest(long+"x", 8))
	testkit.Equal(t, plainName("", &Workflow{Name: "é", ID: "a/1"})+plainName("",
		&Workflow{Name: "é", ID: "é"})+plainName("MCP", &Workflow{Name: "__x"}), "a_1workflowMCPsource___x")
}

func TestWhatIsSkippedIsBounded(t *testing.T) {
	// Millions of elements that are not workflows are not held at once.
	p, err := list([]byte("[" + strings.Repeat("0,", maxPage/2-2) + "0]"))
	testkit.Need(t, err == nil, "%d skipped, %d more, %v", len(p.skipped), p.more, err)
	testkit.Need(t, len(p.skipped) == maxSkipped, "%d skipped, %d more, %v", len(p.skipped), p.more, err)
	testkit.Equal(t, p.more, 2*maxWorkflows-maxSkipped, "%d skipped, %d more, %v", len(p.skipped), p.more, err)

	g := newListing("s", nil)
	testkit.Get(g.add(json.RawMessage("[" + strings.Repeat("null,", 300) + "null]"))).Must(t)
	all := g.reasons()
	testkit.True(t, len(all) == maxSkipped+1 && strings.Contains(all[maxSkipped].Reason, "201 more"), "%d: %+v",
		len(all), all[len(all)-1])
}

func TestPagesAreBounded(t *testing.T) {
	g := newListing("s", nil)
	pages := 0
	err := error(nil)
	for ; err == nil; pages++ {
		_, err = g.add(fmt.Appendf(nil, `{"workflows":[{"id":"%d","name":"n","description":"d"}],"nextCursor":"%d"}`,
			pages, pages))
	}
	testkit.Equal(t, pages, maxPages)
	testkit.FailsWith(t, err, errEndless)

	g, err = newListing("s", nil), nil
	for pages = 0; err == nil; pages++ {
		_, err = g.add(fmt.Appendf(nil, `{"workflows":[],"nextCursor":"%d"}`, pages))
	}
	testkit.Equal(t, pages, maxEmptyPages+1)
	testkit.FailsWith(t, err, errEndless)

	g, err = newListing("s", nil), nil
	g.bytes = maxQuery - 8*1024 // of pages before
	for pages = 0; err == nil && pages < 20; pages++ {
		_, err = g.add(json.RawMessage("[" + strings.Repeat(" ", 1022) + "]"))
	}
	testkit.True(t, pages == 9 && strings.Contains(err.Error(), "bytes"), "after %d pages: %v", pages, err)
	g.bytes, g.grown = 0, maxGrown // of workflows before
	of := `{"id":"1","name":"n","description":"d","inputSchema":{"properties":{"a":{"$ref":"#/$defs/x"},` +
		`"b":{"$ref":"#/$defs/x"}},"$defs":{"x":{"title":"` + strings.Repeat("x", 999) + `"}}}}`
	_, err = g.add(json.RawMessage("[" + of + "," + strings.Replace(of, "1", "2", 1) + "]"))
	testkit.Need(t, err == nil, "%d workflows, %v, %v", len(g.workflows), g.reasons(), err)
	testkit.Need(t, len(g.workflows) == 1, "%d workflows, %v, %v", len(g.workflows), g.reasons(), err)
	testkit.Contains(t, g.reasons()[0].Reason, "the other workflows are left out", "%d workflows, %v, %v",
		len(g.workflows), g.reasons(), err)
}

func FuzzParseWorkflows(f *testing.F) {
	for _, seed := range []string{
		`[]`, `{"workflows":[],"nextCursor":"x"}`,
		`[{"id":"1","name":"n","description":"d","inputSchema":{"$ref":"#"}}]`,
		`[{"id":"1","name":"n","description":"d","inputSchema":{"properties":{"a":{"$ref":"#/properties/b"},` +
			`"b":{"anyOf":[{"$ref":"#/properties/a"}]}}}}]`,
		`[{"id":"1","name":"n","description":"d","inputSchema":{"$defs":{"a":{"$anchor":"x",` +
			`"items":{"$ref":"#x"}}},"allOf":[{"$ref":"#x"}]}}]`,
		`[{"id":"1","name":"n","description":"d","inputSchema":{"type":"object","patternProperties":{"(":{}}}}]`,
		`[{"id":"é","name":"日本","description":"d","executionType":"sync","metadata":{}}]`,
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := list(data)
		if err != nil {
			return
		}
		names := nameAll(p.workflows, "", []string{"n"}, nil)
		for i, w := range p.workflows {
			valid := w.ID != "" && w.Name != "" && w.Description != "" && json.Valid(w.InputSchema)
			testkit.True(t, valid && (legalName(names[i]) || names[i] == ""), "%+v %q", w, names[i])
			var schema struct{ Type string }
			testkit.True(t, json.Unmarshal(w.InputSchema, &schema) == nil && schema.Type == "object",
				"its schema is %s", w.InputSchema)
			w.check(nil)
			w.check(json.RawMessage(`{"a":{"a":[{"a":1},[[]]]},"b":"x","n":null}`))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"{\"status\":\"x\",\"progress\":{\"progress\":1}}"}]}`))
	f.Add([]byte(`{"structuredContent":{"execution_id":7,"progress":"half","error":{"message":"m"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r reply
		if json.Unmarshal(data, &r) != nil {
			return
		}
		r.text()
		r.list()
		for _, a := range []*Answer{r.syncAnswer(), r.answer()} {
			testkit.True(t, a.Output == nil || json.Valid(a.Output), "the output is not JSON: %q", a.Output)
		}
	})
}

// Whatever a command writes, what comes through the filter are messages, each valid JSON with "jsonrpc" in
// it, and there is an end of it.
func FuzzLineFilter(f *testing.F) {
	for _, s := range []string{
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
		"hello\n{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{}}\nbye\n",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"x\":NaN}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\n", "{}\n[]\n\"\"\n\n  \n", "{\"a\":\"\xff\"}{",
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, in []byte) {
		s := newLineFilter(io.NopCloser(bytes.NewReader(in)), func(line string) {
			testkit.True(t, len(line) <= 10_000, "%d bytes of a stray line are told", len(line))
		})
		out, err := io.ReadAll(io.LimitReader(s, int64(2*len(in)+1_000_000)))
		testkit.True(t, err == nil || strings.TrimSpace(err.Error()) != "", "an error without words")
		d := json.NewDecoder(bytes.NewReader(out))
		for {
			var message json.RawMessage
			if err := d.Decode(&message); err == io.EOF {
				return
			} else if err != nil {
				t.Fatalf("%q came through of %q: %v", out, in, err)
			}
			testkit.True(t, bytes.Contains(message, []byte(`"jsonrpc"`)), "%q is no message", message)
		}
	})
}

// Names that look like a tool of ours, or like another server's as clients write it, are changed.
func TestNamesThatImitate(t *testing.T) {
	var all []*offered
	for i, name := range []string{"Get-Workflows", "finished_step", "mcp__github__push", "MCP__x", "report",
		" finished\u00a0step ", "finished\u200bstep", "FINISHED.STEP", "\u2028finishedstep", "m\u200bc\u200bp",
		"\uff4dmcp__x", "f\u0456nished_step"} {
		all = append(all, named("s", fmt.Sprint(i), name))
	}
	all = append(all, named("s", "_", "finished-step")) // nor does its id help it
	got := nameAll(all, "", []string{"get_workflows", "finished_step"}, nil)
	testkit.Same(t, got, []string{"Get-Workflows_0", "finished_step_1", "source_mcp__github__push",
		"source_MCP__x", "report",
		"finished_step_5", "finished_step_6", "FINISHED_STEP_7", "finishedstep_8", "m_c_p", "source_mcp__x",
		"f_nished_step", "finished-step___" + digest("s\x00_", 12)})
}

// Whatever a source does instead of answering initialize, connecting ends with its context, and nothing is left.
func TestConnectingIsBounded(t *testing.T) {
	t.Parallel()
	hung := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	trickle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for err := error(nil); r.Context().Err() == nil && err == nil; w.(http.Flusher).Flush() {
			_, err = w.Write([]byte(" "))
		}
	})

	mute := &config.WorkflowSource{
		Command: []string{os.Args[0]},
		Env:     map[string]string{"DEEPWORK_TEST_SOURCE": "mute"},
	}
	for name, w := range map[string]wire{
		"hung":    wireTo(t, hung),
		"trickle": wireTo(t, trickle),
		"mute":    testkit.Get(startCommand(mute, os.Args[0], t.TempDir(), slog.New(slog.DiscardHandler))).Must(t),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := bounded(t.Context(), 200*time.Millisecond, "its initialize")
			defer cancel()
			began := time.Now()
			_, err := connect(ctx, w, Options{Version: "test"}, handshake)
			testkit.True(t, errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "larger than"),
				"%v", err)
			testkit.True(t, time.Since(began) <= 30*time.Second, "it took %v", time.Since(began))
		})
	}
}

func TestTheSameErrorIsToldOnce(t *testing.T) {
	for _, same := range [][2]error{{nil, nil}, {io.EOF, io.EOF},
		{errors.New("ended after 12ms"), errors.New("ended after 9ms")}} {
		testkit.True(t, sameError(same[0], same[1]), "%v", same)
	}
	for _, others := range [][2]error{{nil, io.EOF}, {io.EOF, nil}, {errors.New("a"), errors.New("b")}} {
		testkit.True(t, !sameError(others[0], others[1]), "%v", others)
	}
}

// The end of a session is given time, and then all its requests end. Redirects on the same server are
// followed, to a bound.
func TestLeavingAndRedirects(t *testing.T) {
	hops := 0
	srv := serving(t, func(w http.ResponseWriter, r *http.Request) {
		hops--
		if hops >= 0 {
			http.Redirect(w, r, "/"+fmt.Sprint(hops), http.StatusTemporaryRedirect)
		}
	})
	w := wireTo(t, srv)
	hops = 4
	testkit.Works(t, testkit.Get(w.client.Get(srv.URL)).Err())
	hops = 5
	testkit.Fails(t, testkit.Get(w.client.Get(srv.URL)).Err(), "it redirects too often")

	asked := false
	w.leave(t.Context(), func() { asked = w.cutting.Err() == nil })
	testkit.True(t, asked && w.cutting.Err() != nil, "asked in time: %t, ended: %v", asked, w.cutting.Err())
	testkit.Fails(t, testkit.Get(w.client.Get(srv.URL)).Err(), "canceled")
}

// A redirect to another server would take the headers' secrets with it.
func TestRedirectsElsewhereAreRefused(t *testing.T) {
	other := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other server was asked, with %v", r.Header)
	})
	web := serving(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	w := testkit.Get(openURL(&config.WorkflowSource{
		URL:     web.URL,
		Headers: map[string]string{"Authorization": "Bearer s3cret"},
	})).Must(t)
	testkit.Fails(t, testkit.Get(connect(t.Context(), w, Options{Version: "test"}, handshake)).Err(), "another server")
}

func serving(t *testing.T, h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func wireTo(t *testing.T, to *httptest.Server) *urlWire {
	t.Helper()
	return testkit.Get(openURL(&config.WorkflowSource{URL: to.URL})).Must(t)
}

// A link that was closed after it was chosen for a call sends nothing: the call goes to the next one.
func TestACallOfAClosedLinkHadNoEffect(t *testing.T) {
	_, err := (&link{closed: true}).call(t.Context(), callMethod, &callRequest{Name: "execute"}, nil)
	_, lost := errors.AsType[transportError](err)
	testkit.True(t, lost && errors.Is(err, errUndone), "%v", err)
}
