package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// parseVerdict reads the one verdict in a reviewer's output: a JSON object, bare, fenced, with text
// around it, or in the envelope of `claude --output-format json`. Any other output is a
// *misreading.
func parseVerdict(out []byte, criteria []job.Criteria) (*reading, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, &misreading{NoVerdict, "it ended without an answer"}
	}

	var found, partial []*reading // partial: feedback alone, "passed" defaults to false
	for object, err := range objects(out) {
		if err != nil {
			return nil, err
		}

		r, whole, err := readObject(object)
		switch {
		case err != nil:
			return nil, err
		case r != nil && whole:
			found = append(found, r)
		case r != nil:
			partial = append(partial, r)
		}
	}
	if len(found) == 0 {
		found = partial
	}
	switch len(found) {
	case 0:
		return nil, &misreading{NoVerdict, `its answer holds no JSON object with "passed"`}
	case 1:
		if m := found[0].check(criteria); m != nil {
			return nil, m
		}
		return found[0], nil
	}

	return nil, &misreading{TwoVerdicts, fmt.Sprintf("its answer holds %d verdicts", len(found))}
}

// readObject reads an object that may be a verdict, an envelope that contains one, or neither; then it
// returns nil. whole reports whether the object is certainly intended as a verdict, and does not just happen
// to have feedback.
func readObject(object []byte) (r *reading, whole bool, err error) {
	fields, err := members(object)
	if err != nil {
		return nil, false, err
	}
	has := func(name string) bool {
		_, ok := fields[name]
		return ok
	}

	var kind, result string
	json.Unmarshal(fields["type"], &kind)
	switch {
	case has("structured_output"), kind == "result" && !has("passed"):
		r, err = readEnvelope(fields)
		return r, true, err
	case has("passed"):
		r, err = readVerdict(fields)
		return r, true, err
	case has("result") && json.Unmarshal(fields["result"], &result) == nil:
		// It is another program's envelope, or not a verdict.
		r, err = parseVerdict([]byte(result), nil)
		if m, ok := errors.AsType[*misreading](err); ok && m.code == NoVerdict {
			return nil, false, nil
		}
		return r, true, err
	case has("criteria_results"), has("feedback"):
		r, err = readVerdict(fields)
		return r, has("criteria_results"), err
	}

	return nil, false, nil
}

// readEnvelope reads claude's output. The verdict is in structured_output, perhaps repeated in result, or
// only in result.
func readEnvelope(fields map[string]json.RawMessage) (*reading, error) {
	var result, subtype string
	var failed bool
	json.Unmarshal(fields["result"], &result)
	json.Unmarshal(fields["subtype"], &subtype)
	json.Unmarshal(fields["is_error"], &failed)
	if failed {
		what := "it says of itself that it failed"
		if subtype != "" && subtype != "success" {
			what += " (" + jsontext.Clip(subtype, 100) + ")"
		}
		if result != "" {
			what += ": " + jsontext.Clip(oneLine(result), 300)
		}
		return nil, &misreading{Crashed, what}
	}
	if fields["passed"] != nil {
		return nil, &misreading{TwoVerdicts, "its answer holds a verdict, and another in structured_output"}
	}

	text, textErr := parseVerdict([]byte(result), nil)
	structured := fields["structured_output"]
	if structured == nil || string(structured) == "null" {
		return text, textErr
	}
	inner, err := members(structured)
	if err != nil {
		return nil, err
	}
	r, err := readVerdict(inner)
	if err != nil {
		return nil, err
	}
	if text != nil && text.passed != r.passed {
		return nil, &misreading{TwoVerdicts, "its structured_output and its result hold verdicts that differ"}
	}

	if m, ok := errors.AsType[*misreading](textErr); ok && m.code != NoVerdict {
		return nil, m
	}
	return r, nil
}

// readVerdict reads the members of a verdict. A missing passed is false (DESIGN
// "Reviews").
func readVerdict(fields map[string]json.RawMessage) (*reading, error) {
	r := &reading{}
	if err := read(fields, "passed", "true or false", &r.passed); err != nil {
		return nil, err
	}

	var feedback string
	if err := read(fields, "feedback", "a string", &feedback); err != nil {
		return nil, err
	}
	r.feedback = clean(feedback, feedbackLimit)

	var list []json.RawMessage
	if err := read(fields, "criteria_results", "a list of objects", &list); err != nil {
		return nil, err
	}
	for i, item := range list {
		at := fmt.Sprintf("criteria_results[%d].", i)
		inner, err := members(item)
		if err != nil {
			return nil, fmt.Errorf("reading criteria_results[%d]: %w", i, err)
		}

		var c CriterionResult
		if err := read(inner, "criterion", "a string", &c.Criterion, at); err != nil {
			return nil, err
		}
		if err := read(inner, "passed", "true or false", &c.Passed, at); err != nil {
			return nil, err
		}
		if err := read(inner, "feedback", "a string, or null", &c.Feedback, at); err != nil {
			return nil, err
		}
		c.Criterion = clean(c.Criterion, criterionLimit)
		if c.Feedback != nil {
			*c.Feedback = clean(*c.Feedback, criterionLimit)
		}
		r.criteria = append(r.criteria, c)
	}
	return r, nil
}

// read decodes one member; a missing or null one keeps its default.
func read(fields map[string]json.RawMessage, name, wants string, to any, at ...string) error {
	raw, ok := fields[name]
	if !ok || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return &misreading{NoVerdict, fmt.Sprintf("%s%s in its answer is %s; expected %s",
			strings.Join(at, ""), name, jsontext.Clip(string(raw), 100), wants)}
	}
	return nil
}

// ours are the members of a verdict.
var ours = []string{"passed", "feedback", "criteria_results", "criterion", "structured_output", "result",
	"is_error", "type"}

// members returns the members of an object. A repeated member of a verdict is an error: the last one does not
// simply win.
func members(object []byte) (map[string]json.RawMessage, error) {
	fields := make(map[string]json.RawMessage)
	for m, err := range jsontext.Members(object) {
		switch _, twice := fields[m.Name]; {
		case errors.Is(err, jsontext.ErrNotObject):
			return nil, &misreading{NoVerdict,
				"its answer has " + jsontext.Clip(string(object), 100) + " where an object is expected"}
		case err != nil:
			return nil, fmt.Errorf("reading an object: %w", err)
		case twice && slices.Contains(ours, m.Name):
			return nil, &misreading{TwoVerdicts,
				fmt.Sprintf("an object in its answer has %q twice", jsontext.Clip(m.Name, 100))}
		}
		fields[m.Name] = m.Value
	}
	return fields, nil
}

// objects yields each JSON object in a text that is not inside another one.
func objects(text []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		// Text that only looks like an object is parsed once; if nested a thousand times, it would be parsed
		// a thousand times.
		budget := 8*int64(len(text)) + 1<<20
		for {
			i := bytes.IndexByte(text, '{')
			if i < 0 {
				return
			}
			text = text[i:]
			if next := bytes.TrimLeft(text[1:], " \t\r\n"); len(next) > 0 && next[0] != '"' && next[0] != '}' {
				text = text[1:] // a brace of another language
				continue
			}
			d := json.NewDecoder(bytes.NewReader(text))

			var object json.RawMessage
			err := d.Decode(&object)
			switch {
			case err == nil:
				if !yield(object, nil) {
					return
				}
				text = text[d.InputOffset():]
				continue
			case errors.Is(err, io.ErrUnexpectedEOF):
				// The rest is one truncated object: nothing in it is a verdict.
				return
			}

			tried := int64(512) // the minimum cost of a try
			if e, ok := errors.AsType[*json.SyntaxError](err); ok {
				tried = max(tried, e.Offset)
			}
			if budget -= tried; budget < 0 {
				yield(nil, &misreading{NoVerdict, "its answer is too tangled to be read"})
				return
			}

			text = text[1:]
		}
	}
}

// declaredName returns the name of the criterion to which a reviewer refers, by name or question. It ignores
// case and white space if no name matches exactly.
func declaredName(said string, criteria []job.Criteria) string {
	i := slices.IndexFunc(criteria, func(c job.Criteria) bool { return c.Name == said })
	said = oneLine(said)
	if i < 0 {
		i = slices.IndexFunc(criteria, func(c job.Criteria) bool { return strings.EqualFold(said, oneLine(c.Name)) })
	}
	if i < 0 {
		i = slices.IndexFunc(criteria, func(c job.Criteria) bool {
			return strings.EqualFold(said, oneLine(c.Question))
		})
	}
	if i < 0 {
		return said
	}
	return criteria[i].Name
}

// clean prepares a reviewer's text for storing and showing.
func clean(s string, limit int) string {
	return jsontext.Clip(strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")), limit)
}

// A Verdict is the result of a Task.
type Verdict struct {
	Task     Task
	Passed   bool              // false if Err is not nil
	Feedback string            // the reviewer's, at most 20,000 characters
	Criteria []CriterionResult // as the reviewer gave them; may be empty
	Reviewer string            // "claude", or the words of the command
	// StartedAt is when the review left the queue, EndedAt when its verdict was received; both UTC.
	// They are equal if it was cancelled while it waited.
	StartedAt, EndedAt time.Time
	// Err, an *Error, means that there is no verdict, and the try is void.
	Err error
}

// A CriterionResult is the verdict on one criterion.
type CriterionResult struct {
	Criterion string // its name; if it is one of the job's, exactly as there
	Passed    bool
	Feedback  *string // at most 4,000 characters
}

// The limits of a stored verdict, in characters.
const (
	feedbackLimit  = 20_000
	criterionLimit = 4_000
)

// A reading is the verdict in a reviewer's output.
type reading struct {
	passed   bool
	feedback string
	criteria []CriterionResult
}

// explain adds the criteria's feedback to a failing verdict without feedback, since the author sees only the
// feedback.
func (r *reading) explain() {
	if r.passed || r.feedback != "" {
		return
	}

	var b strings.Builder
	for _, c := range r.criteria {
		if c.Passed {
			continue
		}

		b.WriteString("- " + c.Criterion)
		if c.Feedback != nil && *c.Feedback != "" {
			b.WriteString(": " + *c.Feedback)
		}
		b.WriteByte('\n')
	}

	if b.Len() == 0 {
		b.WriteString("The reviewer did not pass this, and gave no reason.")
	}
	r.feedback = clean(b.String(), feedbackLimit)
}

// A misreading reports an output without a usable verdict.
type misreading struct {
	code Code
	what string
}

func (m *misreading) Error() string { return m.what }

// check compares a verdict with the requested criteria.
func (r *reading) check(criteria []job.Criteria) *misreading {
	for i := range r.criteria {
		r.criteria[i].Criterion = declaredName(r.criteria[i].Criterion, criteria)
	}

	r.explain()
	if !r.passed {
		return nil
	}
	judged := make(map[string]bool, len(r.criteria))
	for _, c := range r.criteria {
		if !c.Passed {
			return &misreading{Contradiction,
				"it says passed, and beside it that the criterion \"" + jsontext.Clip(c.Criterion, 200) + "\" is not"}
		}
		judged[c.Criterion] = true
	}

	for _, c := range criteria {
		if len(r.criteria) > 0 && !judged[c.Name] {
			return &misreading{Contradiction,
				"it says passed, and its criteria_results leave out the criterion \"" + c.Name + "\""}
		}
	}

	return nil
}

// schemaLimit limits the verdict's schema, in bytes. It is an argument of a command line, which Windows
// limits to 32,767 characters in total.
const schemaLimit = 4000

// verdictSchema returns the JSON Schema of the verdict. It lists the criteria's names, so that the
// reviewer cannot use others, unless they are too long for a command line.
func verdictSchema(criteria []job.Criteria) string {
	const frame = `{"additionalProperties": false, "properties": {
		"criteria_results": {"description": "One entry for each criterion.", "items": {"additionalProperties": ` +
		`false, "properties": {
			"criterion": {"description": "The criterion's name.", %s"type": "string"},
			"feedback": {"description": "What is wrong; null where it passes.", "type": ["string", "null"]},
			"passed": {"description": "Whether the files show that the criterion is met.", "type": "boolean"}},
			"required": ["criterion", "passed", "feedback"], "type": "object"}, "type": "array"},
		"feedback": {"description": "For the author: what is wrong, where, and what to do about it.", "type": "string"},
		"passed": {"description": "True only if every criterion passes.", "type": "boolean"}},
		"required": ["passed", "feedback", "criteria_results"], "type": "object"}`

	names := xslices.Map(criteria, func(c job.Criteria) string { return c.Name })
	enum := ""
	if text, err := json.Marshal(names); err == nil && names != nil && len(text)+len(frame) <= schemaLimit {
		enum = `"enum": ` + string(text) + ", "
	}

	var b bytes.Buffer
	_ = json.Compact(&b, fmt.Appendf(nil, frame, enum)) // both are valid JSON
	return b.String()
}
