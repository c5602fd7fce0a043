package gate

import (
	"encoding/json"

	"deepwork/catalog/job"
)

// schemaLimit bounds the verdict's schema, in bytes: it is an argument of a
// command line, which Windows bounds to 32,767 characters in total.
const schemaLimit = 4000

// verdictSchema is the JSON Schema of the verdict that is wanted. The criteria's
// names are in it, so that the reviewer cannot call them something else, unless
// they are too long for a command line.
func verdictSchema(criteria []job.Criteria) string {
	type object = map[string]any
	named := object{"type": "string", "description": "The criterion's name."}
	if len(criteria) > 0 {
		names := make([]string, len(criteria))
		for i, c := range criteria {
			names[i] = c.Name
		}
		named["enum"] = names
	}
	schema := object{
		"type":                 "object",
		"additionalProperties": false,
		"required":             []string{"passed", "feedback", "criteria_results"},
		"properties": object{
			"passed":   object{"type": "boolean", "description": "True only if every criterion passes."},
			"feedback": object{"type": "string", "description": "For the author: what is wrong, where, and what to do about it."},
			"criteria_results": object{
				"type":        "array",
				"description": "One entry for each criterion.",
				"items": object{
					"type":                 "object",
					"additionalProperties": false,
					"required":             []string{"criterion", "passed", "feedback"},
					"properties": object{
						"criterion": named,
						"passed":    object{"type": "boolean", "description": "Whether the files show that the criterion is met."},
						"feedback":  object{"type": []string{"string", "null"}, "description": "What is wrong; null where it passes."},
					},
				},
			},
		},
	}
	text, err := json.Marshal(schema)
	if err == nil && len(text) <= schemaLimit {
		return string(text)
	}
	delete(named, "enum")
	text, _ = json.Marshal(schema) // it is made of constants now
	return string(text)
}
