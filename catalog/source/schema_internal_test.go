package source

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func TestReq003_6_3_AnInvalidSchemaTakesAnyObject(t *testing.T) {
	for name, text := range map[string]string{
		"null": `null`, "array": `[]`, "text": `"x"`, "boolean": `true`,
		"another type":   `{"type":"string"}`,
		"properties":     `{"type":"object","properties":[]}`,
		"5 MB":           `{"type":"object","description":"` + strings.Repeat("x", 5<<20) + `"}`,
		"deep":           strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100),
		"pattern":        `{"properties":{"a":{"pattern":"("}}}`,
		"itself":         `{"$ref":"#"}`,
		"remote":         `{"properties":{"a":{"$ref":"http://127.0.0.1:1/schema.json"}}}`,
		"wrong anywhere": `{"properties":{"a":{"pattern":"^(?!admin)"},"b":{"pattern":"["}}}`,
		"not JSON after": `{"type":"object"} x`,
	} {
		s := compileSchema(json.RawMessage(text))
		testkit.Need(t, s.err != nil && string(s.listed) == string(anyObject), "%s: %.200s, %v", name, s.listed, s.err)
		testkit.True(t, s.check(json.RawMessage(`{"anything":[1]}`)) == nil && s.check(json.RawMessage(`[1]`)) != nil,
			"%s: does not take any object, or more", name)
	}
}

func TestReq003_2_5_ArgumentsAreChecked(t *testing.T) {
	s := compileSchema(json.RawMessage(
		` {"properties": {"region": {"enum": ["eu", "us"]}, "tree": {"$ref": "#/$defs/node"}}, "required": ["region"],
		"$defs": {"node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "value": {"type": ` +
			`"number"}}}}}`))
	testkit.Need(t, s.err == nil && strings.HasPrefix(string(s.listed), `{"type":"object","properties":{"region":`),
		"%s %v", s.listed, s.err)
	testkit.Works(t, s.check(json.RawMessage(`{"region":"eu","tree":{"left":{"left":{"value":2.5}}},"more":1}`)))

	for bad, want := range map[string]string{
		``:          `missing required "region"`,
		`null`:      `missing required "region"`,
		`{}`:        `missing required "region"`,
		`[]`:        `are an array`,
		`{"region"`: `not JSON`,
		`{"region":"eu","tree":{"left":{"value":"x"}}}`: `tree.left.value: ` +
			`"x" is a string; expected a number`,
		`{"region":"eu","tree":` + strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300) +
			`}`: `nested more than 200 deep`,
	} {
		testkit.Fails(t, s.check(json.RawMessage(bad)), want, "%.100s", bad)
	}
}

func legalName(s string) bool { return regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(s) }

func named(source, id, name string) *offered {
	w := &offered{}
	w.Source, w.ID, w.Name = source, id, name
	return w
}

func TestReq003_6_4_NamesAreUniqueLegalAndStable(t *testing.T) {
	long := strings.Repeat("long name ", 20)
	all := []*offered{
		named("a", "1", "alone"), named("a", "2", "with blank"), named("a", "3", "with.blank"), named("a", "4", "日本語"),
		named("a", "!?", "日本語!"),
		named("a", "5", long+"x"), named("a", "6", long+"y"), named("a", "7", "get_workflows"),
		named("b", "7", "get_workflows"),
		named("a", strings.Repeat("i", 500), "same"), named("a", "9", "same"), named("b", "10", "same_9"),
		named("b", "11", "Émile"), named("b", "12", "same"), named("c", "12", "same"),
	}
	names := nameAll(all, "", []string{"get_workflows"}, nil)
	seen := map[string]bool{"get_workflows": true}
	for i, name := range names {
		testkit.True(t, legalName(name) && !seen[name], "%q of %q", name, all[i].Name)
		seen[name] = true
	}
	testkit.ContainsAll(t, strings.Join(names, " "),
		[]string{"alone with_blank_2 with_blank_3 4 ", " same_9 mile ", " same_9_", " get_workflows_7_"})

	// The order in which they came does not matter.
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	again := nameAll(reversed, "", []string{"get_workflows"}, nil)
	slices.Reverse(again)
	testkit.Same(t, names, again)

	for _, name := range nameAll(all, strings.Repeat("p", 32), nil, nil) {
		testkit.True(t, legalName(name) && strings.HasPrefix(name, strings.Repeat("p", 32)), "%q", name)
	}
}

func TestAnswersOfASource(t *testing.T) {
	for text, want := range map[string]Answer{
		`{"execution_id":"e","status":"RUNNING"}`: {ExecutionID: "e", State: Running},
		`{"executionId":17,"status":"queued"}`:    {ExecutionID: "17", State: Running},
		`{"status":"Completed","output":{"b":1,"a":2}}`: {
			State:  Completed,
			Output: json.RawMessage(`{"b":1,"a":2}`),
		},
		`{"status":"failed","error":"no disk"}`:                     {State: Failed, Error: "no disk"},
		`{"status":"error","error":{"code":3,"message":"no disk"}}`: {State: Failed, Error: "no disk"},
		`{"status":"failed","error":{"code":3}}`:                    {State: Failed, Error: `{"code":3}`},
		`{"status":"canceled"}`:                                     {State: Cancelled},
		`{}`:                                                        {},
		`"started"`:                                                 {Output: json.RawMessage(`"started"`)},
		`{"progress":3,"total":4,"message":"m"}`: {Progress: &Progress{
			Value:   new(3.0),
			Total:   new(4.0),
			Message: "m",
		}},
		`{"status":7,"execution_id":{},"progress":null,"output":null}`: {},
	} {
		for name, r := range map[string]reply{
			"structured": {Structured: json.RawMessage(text)},
			"text":       {Content: mustJSON(t, []block{{Type: "text", Text: text}})},
			"wrapped":    {Structured: json.RawMessage(`{"result":` + text + `}`)},
			"a text, wrapped": {
				Content:    mustJSON(t, []block{{Type: "text", Text: text}}),
				Structured: mustJSON(t, map[string]string{"result": text}),
			},
		} {
			if text[0] != '{' && strings.HasSuffix(name, "wrapped") {
				continue // only fields of an execution are taken out
			}
			testkit.Equal(t, string(mustJSON(t, r.answer())), string(mustJSON(t, want)), "%s %s", name, text)
		}
	}
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	return testkit.Get(json.Marshal(v)).Must(t)
}

// What a source answers in words stays readable.
func TestAnswersAreNotEscapedForHTML(t *testing.T) {
	r := reply{Content: mustJSON(t, []block{{"text", "a <b> & c"}})}
	testkit.Equal(t, string(r.syncAnswer().Output), `"a <b> & c"`)
	r = reply{Content: json.RawMessage(`[{"type":"text","text":"{\"x\":\"<\"}"},{"type":"text","text":"{}"}]`)}
	testkit.Equal(t, string(r.list()), `[{"x":"<"},{}]`)
	testkit.Contains(t, string(shallow(json.RawMessage(strings.Repeat("[", 300)+`"<"`+strings.Repeat("]", 300)))),
		`\"<\"`)
}

func TestListsThatFrameworksWrap(t *testing.T) {
	for _, r := range []reply{
		{Structured: json.RawMessage(`{"result":[{"id":"1"},{"id":"2"}]}`)},
		{Content: mustJSON(t, []block{{"text", `{"id":"1"}`}, {"text", `{"id":"2"}`}})},
		{Content: mustJSON(t, []block{{"text", `[{"id":"1"},{"id":"2"}]`}})},
		{Structured: json.RawMessage(`{"result":"[{\"id\":\"1\"},{\"id\":\"2\"}]"}`)},
	} {
		testkit.Equal(t, string(r.list()), `[{"id":"1"},{"id":"2"}]`)
	}
}

func TestVariablesOfTheEnvironment(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "x", "B": "${A}", "E": "", "N": "a\nb"}[name]
		return v, ok
	}
	for value, want := range map[string]string{"": "", "plain $A": "plain $A", "${A}-${B}": "x-${A}"} {
		testkit.Equal(t, testkit.Get(expand(value, lookup)).Must(t), want, "%q", value)
	}
	for _, value := range []string{"${C}", "${E}", "${}", "x ${N}"} {
		testkit.Fails(t, testkit.Get(expand(value, lookup)).Err(), "", "%q", value)
	}
}

// Names are remembered up to a bound: those that no tool has now go first.
func TestRememberedNamesAreBounded(t *testing.T) {
	o := &owner{names: make(map[string]string)}
	one := []*offered{named("a", "1", "one")}
	for i := range maxNames + 10 {
		o.remember(one, []string{strconv.Itoa(i)})
		testkit.Need(t, len(o.names) <= maxNames, "%d names are remembered", len(o.names))
	}
	testkit.Equal(t, o.names[strconv.Itoa(maxNames+9)], "a", "the newest name is not remembered")
}

// What a task says becomes what a run is; an answer of a kind that is not known is never an empty success.
func TestAnswersThatAreTasks(t *testing.T) {
	for text, want := range map[string]string{
		`{"resultType":"task","taskId":"x","status":"working","statusMessage":"half",` +
			`"pollIntervalMs":5000}`: "task:x running half 5s",
		`{"resultType":"task","taskId":"x","status":"working",` +
			`"pollIntervalMs":9e9}`: "task:x running 30s",
		`{"resultType":"complete","taskId":"x","status":"input_required",` +
			`"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Which ` +
			`city?"}}}}`: "task:x running it waits for an answer of a person: Which city? Which city? 0s",
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"content":[{"type":"text",` +
			`"text":"{\"a\":1}"}]}}`: `task:x completed {"a":1} 0s`,
		`{"resultType":"complete","taskId":"x","status":"completed",` +
			`"result":{"structuredContent":{"a":12345678901234567890},"content":[]}}`: `task:x completed ` +
			`{"a":12345678901234567890} 0s`,
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"isError":true,` +
			`"content":[{"type":"text","text":"no"}]}}`: `task:x failed no "no" 0s`,
		`{"resultType":"complete","taskId":"x","status":"failed","error":{"code":-32603,` +
			`"message":"broke"}}`: "task:x failed broke 0s",
		`{"resultType":"complete","taskId":"x","status":"cancelled","statusMessage":"by you"}`: "task:x cancelled by " +
			"you by you 0s",
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"resultType":"task","taskId":"y",` +
			`"status":"working"}}`: "the result of its task is not that of a tool",
		`{"resultType":"task","status":"working"}`: "fault: it is a task without an id, or is not written " +
			"as one",
		`{"resultType":"task","taskId":5,"status":"working"}`: "fault: it is a task without an id, or is not written " +
			"as one",
		`{"resultType":"later","content":[]}`: `fault: it is of the kind ` +
			`"later", which this server does not know`,
		`{"resultType":"input_required","inputRequests":{}}`: `fault: it is of the kind ` +
			`"input_required", which this server does not know`,
		`{"taskId":"of the workflow's own","content":[{"type":"text","text":"1"}]}`: "no task",
		`{"content":[]}`: "no task",
	} {
		var r reply
		testkit.Must(t, json.Unmarshal([]byte(text), &r))
		got := "no task"
		if r.fault != "" {
			got = "fault: " + r.fault
		} else if r.task != nil {
			a, err := r.task.answer()
			if err != nil {
				got = err.Error()
			} else {
				p := cmp.Or(a.Progress, &Progress{})
				parts := []string{a.ExecutionID, string(a.State), p.Message, p.Asks, a.Error, string(a.Output),
					fmt.Sprint(a.Pause.Round(time.Second))}
				got = strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
			}
		}
		testkit.Equal(t, got, want, "%s", text)
	}
}

// Each schema that model APIs refuse is listed in a form that they accept, which takes what the source's own
// takes; arguments are checked against the source's own.
func TestField03_SchemasAreListedAsModelAPIsAcceptThem(t *testing.T) {
	const file = "testdata/portable.txt" // names, schemas, arguments that fit and that don't, and what is listed
	var all []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t))), "\n\n") {
		lines := strings.Split(block, "\n")
		name := lines[0]
		schema := lines[1]
		good := json.RawMessage(lines[2])
		bad := json.RawMessage(lines[3])
		s := compileSchema(json.RawMessage(schema))
		testkit.Need(t, s.err == nil, "%s: %v", name, s.err)

		listed := string(s.listed)
		testkit.Equal(t, s.adapted == nil, listed == schema, "%s: nothing is said to be changed", name)
		if listed == schema {
			listed = "the same"
		} else {
			testkit.True(t, len(s.adapted.Changes) > 0, "%s: nothing says what was changed", name)
			again, _ := adapt(s.listed)
			testkit.Equal(t, string(again), listed, "%s, adapted again", name)
		}
		all = append(all, strings.Join(append(lines[:4], "= "+listed), "\n"))
		testkit.Equal(t, refusedByModelAPIs(t, s.listed), "", "%s: %s", name, listed)
		testkit.Works(t, s.check(good), "%s refuses %s", name, good)
		testkit.Fails(t, s.check(bad), "", "%s takes %s", name, bad)
		testkit.Works(t, compileSchema(s.listed).check(good), "%s: the listed schema refuses %s", name, good)
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *renew)
}

var renew = flag.Bool("update", false, "write golden files anew")

// refusedByModelAPIs returns why a model API refuses a schema, as cmd/deepwork/docs/howto/sources.md lists their rules.
func refusedByModelAPIs(t *testing.T, listed json.RawMessage) string {
	t.Helper()
	var top map[string]any
	testkit.Must(t, json.Unmarshal(listed, &top))
	for _, key := range strings.Fields("oneOf anyOf allOf enum const not") {
		if top[key] != nil || top["type"] != "object" {
			return key + " at the top, or its type is not object"
		}
	}
	key := regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	var walk func(v any, level int, names bool) string
	walk = func(v any, level int, names bool) string {
		o, _ := v.(map[string]any)
		_, min := o["exclusiveMinimum"].(bool)
		_, list := o["items"].([]any)
		items, _ := o["items"].(map[string]any)
		switch {
		case o != nil && level > 2*(maxLevels+1):
			return "it is too deep"
		case !names && (min || list || o["$ref"] != nil || o["definitions"] != nil || o["id"] != nil):
			return "it is of draft 4, or has references"
		case !names && (o["type"] == "array" || o["prefixItems"] != nil) && items == nil:
			return "an array has no items"
		}

		for name, child := range o {
			if names && !key.MatchString(name) {
				return "a property is named " + name
			}
			if why := walk(child, level+1, !names && name == "properties"); why != "" {
				return why
			}
			list, _ := child.([]any)
			for _, child := range list {
				if why := walk(child, level, false); why != "" {
					return why
				}
			}
		}

		return ""
	}
	return walk(top, 0, false)
}

// Properties whose names model APIs refuse have others, wherever they are, and go to the source under their own names.
func TestField03_PropertiesAreRenamedAndBack(t *testing.T) {
	schema := `{"type":"object","required":["user id"],"additionalProperties":{"type":"object","properties":{"a ` +
		`b":{}}},"properties":{"filter[name]":{"type":"string"},"user id":{"type":"number"},
		"user_id":{},"a tree":{"$ref":"#/$defs/tree"},` +
		`"pair":{"prefixItems":[{"additionalProperties":{"properties":{"filter[name]":{}}}}],` +
		`"items":{"$ref":"#/$defs/of"}},"deep":{"type":"object","required":["only required"]},` +
		`"日本":{"type":"array","items":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/of"}]}},"2 x":{"type":"object",` +
		`"additionalProperties":{"type":"string"}},"` + strings.Repeat("n", 70) + `":{}},
		"patternProperties":{"^x-":{"$ref":"#/$defs/of"}},"$defs":{"tree":{"type":"object","properties":{"a ` +
		`tree":{"$ref":"#/$defs/tree"}},"dependentSchemas":{"a tree":{"properties":{"a b":{}}}}},` +
		`"of":{"type":"object","properties":{"a b":{"type":"integer"}},"dependentRequired":{"a ` +
		`b":["filter[name]"]}}},"oneOf":[{"required":["filter[name]"]},{"required":["日本"]}]}`
	w, _, err := parseWorkflow("s", json.RawMessage(`{"id":"1","name":"n","description":"d","inputSchema":`+schema+`}`))
	testkit.Need(t, err == nil && w.Adapted != nil, "%v %v", err, w)

	why := refusedByModelAPIs(t, w.InputSchema)
	testkit.Need(t, why == "", "%s: %s", why, w.InputSchema)

	listed := map[string]string{}
	for name, original := range w.Adapted.Renamed {
		listed[original] = name
	}
	testkit.Need(t, listed["filter[name]"] == "filter_name", "%v", listed)
	testkit.Need(t, listed["a b"] == "a_b", "%v", listed)
	testkit.Need(t, listed["2 x"] == "p_2_x", "%v", listed)
	testkit.Need(t, len(listed) == 8, "%v", listed)
	testkit.Need(t, listed["user id"] != "user_id", "%v", listed)

	tool := &Tool{Name: "n", Workflow: w.Workflow, origin: w, check: w.check}
	user := listed["user id"]
	japan := listed["日本"]
	tree := listed["a tree"]
	for given, want := range map[string]string{
		`{"filter_name":"x","` + user + `":1.50,"user_id":"` + user +
			`"}`: `{"filter[name]":"x","user id":1.50,"user_id":"` + user + `"}`,
		`{"` + user + `":1,"` + japan +
			`":[null,{"a_b":2,"filter_name":3}],"other":{"a_b":[1]}}`: `{"user id":1,"日本":[null,{"a b":2,` +
			`"filter_name":3}],"other":{"a b":[1]}}`,
		`{"user id":1,"p_2_x":{"a_b":"free"},"filter[name]":"x"}`: `{"user ` +
			`id":1,"2 x":{"a_b":"free"},"filter[name]":"x"}`,
		`{"` + user + `":1,"` + tree + `":{"` + tree + `":{"` + tree +
			`":{"a_b":1,"filter_name":2}}}}`: `{"user id":1,"a tree":{"a tree":{"a tree":{"a b":1,"filter_name":2}}}}`,
		`{"` + user +
			`":1,"x-1":{"a_b":1},"deep":{"only_required":1,"other":{"only_required":2}}}`: `{"user id":1,"x-1":{"a ` +
			`b":1},"deep":{"only required":1,"other":{"only_required":2}}}`,
		`{"` + user +
			`":1,"pair":[{"a_b":{"filter_name":1}},{"a_b":1}]}`: `{"user id":1,"pair":[{"a_b":{"filter[name]":1}},` +
			`{"a b":1}]}`,
		`[1]`: `[1]`, `{"a`: `{"a`, ``: ``,
	} {
		testkit.Equal(t, string(tool.Original(json.RawMessage(given))), want, "%v", given)
	}
	for _, change := range w.Adapted.Changes {
		testkit.True(t, !strings.Contains(change, "the top has properties") &&
			!strings.Contains(change, "the type at the top"), "it says that this was changed: %s", change)
	}
	testkit.Fails(t, tool.Check(tool.Original(json.RawMessage(`{"filter_name":"x"}`))),
		`("user id" is `+user+` in the listed schema)`)
}

// A schema that doubles with each reference, or refers to a long text again and again, is listed in a bounded form.
func TestField03_ListedSchemasAreBounded(t *testing.T) {
	doubling := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d9"}},"$defs":{"d0":{"type":"string"}`
	for i := range 9 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i)
		doubling += fmt.Sprintf(`,"d%d":{"type":"object","properties":{"a":%s,"b":%s,"c":%s}}`, i+1, ref, ref, ref)
	}

	long := `{"type":"object","$defs":{"long":{"description":"` + strings.Repeat("x", maxSchema/2) +
		`"}},"properties":{"p0":{}`
	for i := range 3000 {
		long += fmt.Sprintf(`,"p%d":{"$ref":"#/$defs/long"}`, i+1)
	}
	for _, schema := range []string{doubling + "}}", long + "}}"} {
		s := compileSchema(json.RawMessage(schema))
		testkit.True(t, s.err == nil && len(s.listed) <= 2*maxSchema, "%d bytes, %v", len(s.listed), s.err)
		testkit.Equal(t, refusedByModelAPIs(t, s.listed), "")
	}
}
