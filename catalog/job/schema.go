package job

import _ "embed"

//go:embed job.schema.json
var schema string

// Schema returns the JSON Schema (draft 2020-12) of job.yml, for editors and validators. It refuses
// structural faults; faults that only Parse can find (references, cycles, the order of steps,
// files) pass. The caller owns the returned bytes.
func Schema() []byte { return []byte(schema) }
