package gate

import (
	"bytes"
	"encoding/json"
	"fmt"

	"deepwork/catalog/job"
)

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
	var names []string
	for _, c := range criteria {
		names = append(names, c.Name)
	}
	enum := ""
	if text, err := json.Marshal(names); err == nil && names != nil && len(text)+len(frame) <= schemaLimit {
		enum = `"enum": ` + string(text) + ", "
	}
	var b bytes.Buffer
	_ = json.Compact(&b, fmt.Appendf(nil, frame, enum)) // both are valid
	return b.String()
}
