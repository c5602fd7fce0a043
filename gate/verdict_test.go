package gate

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

var twoCriteria = []job.Criteria{{Name: "complete", Question: "Is everything there?"}, {Name: "Plain words", Question: "Can a stranger read it?"}}

// envelope is what claude prints around a result.
func envelope(result, more string) string {
	text, _ := json.Marshal(result)
	return `{"type":"result","subtype":"success","is_error":false,"duration_ms":2041,"num_turns":2,"result":` + string(text) + more + `,"session_id":"5b1c","total_cost_usd":0.01,"usage":{"input_tokens":3}}`
}

func TestVerdictsThatAreUnderstood(t *testing.T) {
	both := `"criteria_results":[{"criterion":"complete","passed":true,"feedback":null},{"criterion":"Plain words","passed":true}]`
	for name, c := range map[string]struct {
		in       string
		passed   bool
		feedback string
		criteria int
	}{
		"bare":                     {`{"passed":true,"feedback":"fine"}`, true, "fine", 0},
		"with blanks and a mark":   {"\ufeff\n {\"passed\" : true , \"feedback\":\"fine\"}\r\n", true, "fine", 0},
		"fenced":                   {"```json\n{\"passed\":true,\"feedback\":\"fine\"}\n```\n", true, "fine", 0},
		"fenced within prose":      {"I read {all} of it: f(x) { return \"{\"; }\n\n```json\n{\"passed\":false,\"feedback\":\"no\"}\n```\nThat is all. {}", false, "no", 0},
		"all criteria":             {`{"passed":true,"feedback":"fine",` + both + `}`, true, "fine", 2},
		"criteria by question":     {`{"passed":true,"criteria_results":[{"criterion":"is everything  there?","passed":true},{"criterion":"PLAIN WORDS","passed":true}]}`, true, "", 2},
		"a criterion of its own":   {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},{"criterion":"Plain words","passed":true},{"criterion":"extra","passed":true}]}`, true, "", 3},
		"no criteria at all":       {`{"passed":true,"criteria_results":[]}`, true, "", 0},
		"null for a value":         {`{"passed":true,"feedback":null,"criteria_results":null}`, true, "", 0},
		"unknown members":          {`{"passed":true,"score":9,"score":8,"more":{"passed":false}}`, true, "", 0},
		"failed, some left out":    {`{"passed":false,"feedback":"no","criteria_results":[{"criterion":"complete","passed":false}]}`, false, "no", 1},
		"failed, all passed":       {`{"passed":false,"feedback":"no",` + both + `}`, false, "no", 2},
		"passed left out":          {`{"feedback":"hm"}`, false, "hm", 0},
		"passed null":              {`{"passed":null,"feedback":"hm"}`, false, "hm", 0},
		"no reason":                {`{"passed":false}`, false, "The reviewer did not pass this, and gave no reason.", 0},
		"reasons in the criteria":  {`{"passed":false,"feedback":" ","criteria_results":[{"criterion":"COMPLETE","passed":false,"feedback":"half of it"},{"criterion":"Plain words","passed":true}]}`, false, "- complete: half of it", 2},
		"claude, structured":       {envelope("Done.", `,"structured_output":{"passed":true,"feedback":"fine",`+both+`}`), true, "fine", 2},
		"claude, both alike":       {envelope("```json\n{\"passed\":true}\n```", `,"structured_output":{"passed":true,"feedback":"fine"}`), true, "fine", 0},
		"claude, in the result":    {envelope("It is so: ```{\"passed\":false,\"feedback\":\"no\"}```", ""), false, "no", 0},
		"claude, null":             {envelope(`{"passed":true,"feedback":"fine"}`, `,"structured_output":null`), true, "fine", 0},
		"claude, a list":           {"[{\"type\":\"system\",\"subtype\":\"init\"},{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"passed\\\":false}\"}]}}," + envelope("", `,"structured_output":{"passed":true}`) + "]", true, "", 0},
		"claude, a line each":      {"{\"type\":\"system\"}\n{\"type\":\"assistant\",\"message\":{\"passed\":false}}\n" + envelope("", `,"structured_output":{"passed":true}`) + "\n", true, "", 0},
		"somebody else's envelope": {`{"model":"m","result":"{\"passed\":true}"}`, true, "", 0},
		"an object beside it":      {`{"result":"4 files read"} {"passed":true}`, true, "", 0},
		"feedback beside it":       {`{"feedback":"a log line"} {"passed":true}`, true, "", 0},
		"cut off after it":         {`{"passed":true} {"and":`, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseVerdict([]byte(c.in), twoCriteria)
			testkit.Must(t, err)
			testkit.True(t, r.passed == c.passed && r.feedback == c.feedback && len(r.criteria) == c.criteria, "got %+v", r)
			for i, cr := range r.criteria[:min(2, len(r.criteria))] {
				testkit.Equal(t, cr.Criterion, twoCriteria[i].Name, "criterion %d", i)
			}
		})
	}
}

func TestAnswersThatAreNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		code Code
		want string
	}{
		"nothing":                 {" \n", NoVerdict, "without an answer"},
		"prose":                   {"All criteria passed: true.", NoVerdict, "no JSON object"},
		"another object":          {`{"verdict":"passed"}`, NoVerdict, "no JSON object"},
		"a list":                  {`["passed", true]`, NoVerdict, "no JSON object"},
		"inside another object":   {`{"review":{"passed":true}}`, NoVerdict, "no JSON object"},
		"cut off":                 {`{"passed":true,"feedback":"and`, NoVerdict, "no JSON object"},
		"in one that is cut off":  {`{"review":{"passed":true}`, NoVerdict, "no JSON object"},
		"passed in words":         {`{"passed":"yes"}`, NoVerdict, `passed in its answer is "yes"; expected true or false`},
		"passed as a number":      {`{"passed":1}`, NoVerdict, "true or false"},
		"feedback as a list":      {`{"passed":true,"feedback":["a"]}`, NoVerdict, `feedback in its answer is ["a"]`},
		"results as an object":    {`{"passed":true,"criteria_results":{"complete":true}}`, NoVerdict, "a list of objects"},
		"results of words":        {`{"passed":true,"criteria_results":["complete"]}`, NoVerdict, "criteria_results[0]"},
		"a result in words":       {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":"PASS"}]}`, NoVerdict, `criteria_results[0].passed in its answer is "PASS"`},
		"two":                     {`{"passed":true} {"passed":true}`, TwoVerdicts, "2 verdicts"},
		"two that differ":         {"```json\n{\"passed\":false}\n```\nOn second thought:\n```json\n{\"passed\":true}\n```", TwoVerdicts, "2 verdicts"},
		"passed twice":            {`{"passed":false,"passed":true}`, TwoVerdicts, `"passed" twice`},
		"a result twice":          {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":false,"passed":true}]}`, TwoVerdicts, `"passed" twice`},
		"claude, differing":       {envelope(`{"passed":false}`, `,"structured_output":{"passed":true}`), TwoVerdicts, "differ"},
		"claude, two in result":   {envelope(`{"passed":true}{"passed":true}`, `,"structured_output":{"passed":true}`), TwoVerdicts, "2 verdicts"},
		"claude, twice":           {envelope("", `,"structured_output":{"passed":true},"structured_output":{"passed":true}`), TwoVerdicts, "twice"},
		"claude and beside it":    {envelope("", `,"structured_output":{"passed":true}`) + passes, TwoVerdicts, "2 verdicts"},
		"claude, at both levels":  {`{"passed":true,"structured_output":{"passed":true}}`, TwoVerdicts, "another in structured_output"},
		"claude failed":           {`{"type":"result","subtype":"error_max_turns","is_error":true,"result":"","structured_output":{"passed":true}}`, Crashed, "error_max_turns"},
		"claude not logged in":    {`{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key · Please run /login"}`, Crashed, "Invalid API key"},
		"claude without":          {envelope("I like it.", ""), NoVerdict, "no JSON object"},
		"claude, no object":       {envelope("", `,"structured_output":"passed"`), NoVerdict, `"passed" where an object is expected`},
		"passed beside a failure": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},{"criterion":"Plain words","passed":false}]}`, Contradiction, `"Plain words" is not`},
		"a failure of its own":    {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},{"criterion":"Plain words","passed":true},{"criterion":"other","passed":false}]}`, Contradiction, `"other" is not`},
		"a result without passed": {`{"passed":true,"criteria_results":[{"criterion":"complete"}]}`, Contradiction, `"complete" is not`},
		"one left out":            {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true}]}`, Contradiction, `leave out the criterion "Plain words"`},
		"one for both":            {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},{"criterion":"complete","passed":true}]}`, Contradiction, "leave out"},
		"claude contradicts":      {envelope("", `,"structured_output":{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`), Contradiction, "is not"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseVerdict([]byte(c.in), twoCriteria)
			m, ok := errors.AsType[*misreading](err)
			testkit.Need(t, ok, "got %+v, %v", r, err)
			testkit.True(t, m.code == c.code && strings.Contains(err.Error(), c.want), "%s: %v", m.code, err)
		})
	}
}

func TestVerdictIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100_000)
	in, _ := json.Marshal(map[string]any{"passed": false, "feedback": long + "\x00", "criteria_results": []any{map[string]any{"criterion": long, "passed": false, "feedback": long}}})
	r, err := parseVerdict(in, twoCriteria)
	testkit.Must(t, err)
	for what, c := range map[string]struct {
		text  string
		limit int
	}{"feedback": {r.feedback, feedbackLimit}, "criterion": {r.criteria[0].Criterion, criterionLimit}, "its feedback": {*r.criteria[0].Feedback, criterionLimit}} {
		testkit.True(t, utf8.RuneCountInString(c.text) == c.limit && strings.HasSuffix(c.text, "é…"), "%s has %d characters", what, utf8.RuneCountInString(c.text))
	}
}

func FuzzVerdict(f *testing.F) {
	for _, s := range []string{
		passes, "```json\n" + passes + "\n```", passes + passes, `{"passed":false,"passed":true}`, `{"passed":"yes"}`,
		`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},{"criterion":"Plain words","passed":true}]}`,
		`{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`, `{"feedback":"x"}`,
		envelope(passes, ""), envelope("", `,"structured_output":`+passes), "[" + envelope("", `,"structured_output":`+passes) + "]",
		`{"type":"result","is_error":true,"result":"no"}`, `{"result":"{\"passed\":true}"}`, `{{{"`, `{"a":{"passed":true}}`, strings.Repeat(strings.Repeat(`{"a":`, 9000)+"!", 30),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := parseVerdict(in, twoCriteria)
		testkit.Need(t, (r == nil) != (err == nil), "%+v and %v", r, err)
		if err != nil {
			m, ok := errors.AsType[*misreading](err)
			testkit.Need(t, ok && m.what != "" && m.code != "", "a %T: %v", err, err)
			return
		}
		testkit.Need(t, utf8.ValidString(r.feedback) && utf8.RuneCountInString(r.feedback) <= feedbackLimit+1, "feedback %.50q", r.feedback)
		testkit.Need(t, r.passed || r.feedback != "", "failed without a word")
		if r.passed {
			testkit.Need(t, strings.Contains(string(in), "passed") || strings.Contains(string(in), `\u`), "passed, and nothing says so")
			testkit.Need(t, !slices.ContainsFunc(r.criteria, func(c CriterionResult) bool { return !c.Passed }), "passed beside %+v", r.criteria)
			both, err := parseVerdict(append([]byte(passes+"\n"), in...), twoCriteria)
			testkit.Need(t, err != nil, "two verdicts make %+v", both)
		}
	})
}
