// Package toolstest replays calls of tools in the tests of the packages that have them.
package toolstest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/session/state"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

var (
	ids = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b|\b[0-9a-f]{40}\b|\b[0-9a-f]{8}\b`)
	// What differs from run to run, or by whether the server has started an attempt already.
	varies = regexp.MustCompile(
		`"started_at":(?:null|"[^"]*")|"exists":(?:true|false)|"notice":(?:null|"It is about to be started\.")|` +
			`"\d{4}-\d\d-\d\dT[^"]*"|-?\d{4}-\d\d-\d\d|"(?:duration|took)_ms":\d+|-[0-9a-f]{4}\b|-[0-9a-f]{12}\b|` +
			`"available":(?:true|false)|"state":"(?:queued|running)"|/[a-z/]+/sh as process \d+|after [0-9.]+m?s`)
)

// Update is whether replies are written to the files with which they are compared.
var Update = flag.Bool("update", false, "write the replies")

// Main runs the tests of a package.
func Main(m *testing.M) { os.Exit(pagetest.Main(m, goleak.Find)) }

// Text is what a caller gets: the text, the structured content where it differs from that, and what is in _meta.
func Text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	text := res.Content[0].(*mcp.TextContent).Text
	var same any
	err := json.Unmarshal([]byte(text), &same)
	if res.StructuredContent != nil && (err != nil || !reflect.DeepEqual(same, res.StructuredContent)) {
		text += "\n   structured: " + string(testkit.Get(json.Marshal(res.StructuredContent)).Must(t))
	}
	delete(res.Meta, "io.modelcontextprotocol/serverInfo")
	if len(res.Meta) > 0 {
		text += "\n   _meta: " + string(testkit.Get(json.Marshal(res.Meta)).Must(t))
	}
	return text
}

// Replay makes the calls in testdata/calls.txt of a server with these toolsets on the project at root, and compares the
// replies with those in the file, which it writes if Update is set. A line "-> TOOL ARGUMENTS" is a call. With "until
// TEXT: " before the tool it is repeated until its reply has the text. The ids of replies are #1, #2 and so on, in the
// order in which they are seen, also in the arguments of later calls.
func Replay(t *testing.T, root string, toolsets []string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the agents are shell scripts, and replies have other paths")
	}

	s := testkit.Get(transport.NewServer(transport.Options{
		ProjectRoot:    root,
		StandardJobs:   fstest.MapFS{},
		AdditionalJobs: []string{},
		Toolsets:       toolsets,
	})).Must(t)

	h := testkit.Get(s.Listen(t.Context(), web.Options{})).Must(t)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	over := &mcp.StreamableClientTransport{
		Endpoint:   h.URL(),
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(t.Context(), over,
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})).Must(t)
	defer func() {
		cs.Close()
		stop()
		testkit.Works(t, <-served)
		testkit.Works(t, s.Close(context.Background()))
	}()

	const file = "testdata/calls.txt"
	var out strings.Builder
	var seen []string
	for line := range strings.Lines(string(testkit.Get(os.ReadFile(file)).Must(t))) {
		if strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
		call, ok := strings.CutPrefix(strings.TrimSpace(line), "-> ")
		if !ok {
			continue
		}
		fmt.Fprintf(&out, "-> %s\n", call)

		until := ""
		if text, rest, ok := strings.Cut(call, ": "); ok && strings.HasPrefix(text, "until ") {
			until, call = strings.TrimPrefix(text, "until "), rest
		}
		for i := len(seen); i > 0; i-- { // so that #12 is not taken for #1
			call = strings.ReplaceAll(call, fmt.Sprintf("#%d", i), seen[i-1])
		}
		tool, args, _ := strings.Cut(call, " ")
		reply := ""
		testkit.Until(t, line, func() bool {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
			if err != nil {
				reply = err.Error()
			} else {
				reply = Text(t, res)
			}
			return strings.Contains(reply, until)
		})

		reply = strings.NewReplacer(root, "ROOT", os.Getenv(state.Env), "STATE").Replace(reply)
		for _, id := range ids.FindAllString(reply, -1) {
			if !strings.Contains(" "+strings.Join(seen, " ")+" ", " "+id+" ") {
				seen = append(seen, id)
			}
		}
		for i, id := range seen {
			reply = strings.ReplaceAll(reply, id, fmt.Sprintf("#%d", i+1))
		}
		fmt.Fprintf(&out, "<- %s\n", varies.ReplaceAllString(reply, "…"))
	}
	testkit.Golden(t, file, out.String(), *Update)
}
