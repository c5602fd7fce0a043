package job

import _ "embed"

//go:embed job.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of job.yml, for editors and
// validators. It refuses what is wrong in structure; what only Parse can judge
// (references, circles, the order of steps, files) it lets pass. The caller
// owns the returned bytes.
func Schema() []byte { return append([]byte(nil), schema...) }
