package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"deepwork/actor/testkit"
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
		{"a text over stdio", 3, overPipe, ofPipe, "", 8<<20 + 1},
		{"a text over HTTP", 3, overWeb, ofWeb, "application/json", 8<<20 + 1},
		{"a text in a stream over HTTP", 3, overWeb, ofWeb, "text/event-stream", 8<<20 + 1},
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

// A result over the limit is refused with words that say so, and later calls work.
func TestAResultOverTheLimitIsRefused(t *testing.T) {
	web := newRawWeb(t)
	overWeb, ofWeb := web.open(t)
	overPipe := open(t, settings(command("s", "raw")))
	ofPipe := &overPipe.tools(t, "raw").Tools[0].Workflow
	for _, c := range []struct {
		name, kind string
		r          *rig
		w          *remote.Workflow
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
		execute := func() (*remote.Answer, error) {
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
