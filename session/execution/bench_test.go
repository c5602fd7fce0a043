package execution

import (
	"encoding/json"
	"testing"

	"deepwork/catalog/remote"
)

// BenchmarkOverhead is what the engine adds to a synchronous call: a source that
// answers at once.
func BenchmarkOverhead(b *testing.B) {
	s := open(b, newRoot(b), newPlant(), nil)
	w := workflow(b, "w", false, script{answer: remote.Answer{Output: json.RawMessage(`{"sum":3}`)}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.call(b.Context(), "me", w, json.RawMessage(`{}`), nil); err != nil {
			b.Fatal(err)
		}
	}
}
