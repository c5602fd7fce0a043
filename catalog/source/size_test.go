package source_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/source"
)

// largeResult is the result of a tool, of about so many bytes.
func largeResult(size int) string {
	const row = `{"name":"Ada Lovelace","n":12345678901234567890},`
	rows := strings.TrimSuffix(strings.Repeat(row, size/len(row)), ",")
	return `{"content":[],"structuredContent":{"rows":[` + rows + `]}}`
}

// A result over the limit is refused with words that say so, and later calls work.
func TestAResultOverTheLimitIsRefused(t *testing.T) {
	web := newRawWeb(t)
	overWeb, ofWeb := web.open(t)
	overPipe := open(t, settings(command("s", "raw")))
	ofPipe := &overPipe.tools(t, "raw").Tools[0].Workflow
	for _, c := range []struct {
		name, kind string
		r          *rig
		w          *source.Workflow
	}{{"stdio", "", overPipe, ofPipe}, {"HTTP", "application/json", overWeb, ofWeb}, {"a stream over HTTP", "text/event-stream", overWeb, ofWeb}} {
		size := 17 << 20
		web.call = func(w http.ResponseWriter, r *http.Request, id string) {
			w.Header().Set("Content-Type", c.kind)
			text := `{"jsonrpc":"2.0","id":` + id + `,"result":` + largeResult(size) + `}`
			if c.kind == "text/event-stream" {
				text = "data: " + text + "\n\n"
			}
			io.WriteString(w, text)
		}
		execute := func() (*source.Answer, error) {
			return c.r.Execute(t.Context(), c.w, []byte(fmt.Sprintf(`{"size":%d}`, size)), nil)
		}
		_, err := execute()
		if err == nil || !strings.Contains(err.Error(), "16777216 bytes") {
			t.Errorf("%s: %v", c.name, err)
		}
		size = 1000
		testkit.Until(t, c.name+" to work again", func() bool { _, err := execute(); return err == nil })
	}
}
