package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

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
	// Err, an *Error, means that there is no verdict: the attempt is void.
	Err error
}

// A CriterionResult is the verdict on one criterion.
type CriterionResult struct {
	Criterion string // its name, as in the job if the reviewer refers to one of those
	Passed    bool
	Feedback  *string // at most 4,000 characters
}

// Bounds of a stored verdict, in characters.
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

// explain adds the feedback of the criteria to a failing verdict without feedback: the author sees
// only the feedback.
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
	if r.explain(); !r.passed {
		return nil
	}
	judged := make(map[string]bool, len(r.criteria))
	for _, c := range r.criteria {
		if !c.Passed {
			return &misreading{Contradiction, "it says passed, and beside it that the criterion \"" + jsontext.Clip(c.Criterion, 200) + "\" is not"}
		}
		judged[c.Criterion] = true
	}
	for _, c := range criteria {
		if len(r.criteria) > 0 && !judged[c.Name] {
			return &misreading{Contradiction, "it says passed, and its criteria_results leave out the criterion \"" + c.Name + "\""}
		}
	}
	return nil
}

// schemaLimit bounds the verdict's schema, in bytes: it is an argument of a
// command line, which Windows bounds to 32,767 characters in total.
const schemaLimit = 4000

// verdictSchema returns the JSON Schema of the verdict. It lists the criteria's names, so that the
// reviewer cannot use others, unless they are too long for a command line.
func verdictSchema(criteria []job.Criteria) string {
	const frame = `{"additionalProperties": false, "properties": {
		"criteria_results": {"description": "One entry for each criterion.", "items": {"additionalProperties": false, "properties": {
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
	_ = json.Compact(&b, fmt.Appendf(nil, frame, enum)) // both are valid
	return b.String()
}
