package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"deepwork/catalog/remote"
)

// largeResult is the result of a tool, of about so many bytes: structured, or, where
// the size is odd, as a text.
func largeResult(size int) string {
	const row = `{"name":"Ada Lovelace","n":12345678901234567890},`
	if size%2 == 1 {
		rows := strings.TrimSuffix(strings.Repeat(row, size/(len(row)+6)), ",")
		return `{"content":[{"type":"text","text":"{\"rows\":[` + strings.ReplaceAll(rows, `"`, `\"`) + `]}"}]}`
	}
	rows := strings.TrimSuffix(strings.Repeat(row, size/len(row)), ",")
	return `{"content":[],"structuredContent":{"rows":[` + rows + `]}}`
}

// What handling a large result allocates, over all transports, of the size of its
// message: for the parts as they come, the whole message, and of a text what it says.
func TestALargeResultIsNotCopiedAgainAndAgain(t *testing.T) {
	web := newRawWeb(t)
	overWeb, ofWeb := web.open(t)
	overPipe := open(t, settings(command("s", "raw")))
	ofPipe := &overPipe.tools(t, "raw").Tools[0].Workflow
	var prepared string
	for _, c := range []struct {
		name string
		most float64
		r    *rig
		w    *remote.Workflow
		kind string
		size int
	}{
		{"stdio", 2.5, overPipe, ofPipe, "", 8 << 20},
		{"HTTP", 2.5, overWeb, ofWeb, "application/json", 8 << 20},
		{"a stream over HTTP", 2.5, overWeb, ofWeb, "text/event-stream", 8 << 20},
		{"a text over stdio", 3.1, overPipe, ofPipe, "", 8<<20 + 1},
		{"a text over HTTP", 3.1, overWeb, ofWeb, "application/json", 8<<20 + 1},
	} {
		size := c.size
		web.call = func(w http.ResponseWriter, r *http.Request, id string) {
			w.Header().Set("Content-Type", c.kind)
			before, _, _ := strings.Cut(prepared, "%ID%")
			_, after, _ := strings.Cut(prepared, "%ID%")
			for _, part := range []string{before, id, after} {
				io.WriteString(w, part)
			}
		}
		prepared = `{"jsonrpc":"2.0","id":%ID%,"result":` + largeResult(size) + `}`
		if c.kind == "text/event-stream" {
			prepared = "data: " + prepared + "\n\n"
		}
		input := []byte(fmt.Sprintf(`{"size":%d}`, size))
		var was, is runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&was)
		got, err := c.r.Execute(t.Context(), c.w, input, nil)
		runtime.ReadMemStats(&is)
		if err != nil || len(got.Output) < size*8/10 {
			t.Fatalf("%s: %d bytes, %v", c.name, len(got.Output), err)
		}
		times := float64(is.TotalAlloc-was.TotalAlloc) / float64(size)
		t.Logf("%s: %.2f times its size", c.name, times)
		if times > c.most {
			t.Errorf("%s: handling a result of %d bytes allocated %.2f times its size, and %v are the most", c.name, size, times, c.most)
		}
	}
}
