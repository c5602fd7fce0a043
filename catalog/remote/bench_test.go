package remote_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What a synchronous call costs through the catalog, beside the same call made by
// the SDK's own client.
func BenchmarkSyncCall(b *testing.B) {
	b.Run("direct", func(b *testing.B) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), modeEnv+"=good")
		client := mcp.NewClient(&mcp.Implementation{Name: "direct", Version: "1"}, nil)
		session, err := client.Connect(b.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer session.Close()
		for b.Loop() {
			if _, err := session.CallTool(b.Context(), &mcp.CallToolParams{
				Name: "workflows-execute-tool", Arguments: json.RawMessage(`{"workflow_id":"2","input":{"a":1}}`),
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("catalog", func(b *testing.B) {
		r := open(b, settings(command("local", "good")))
		w := &r.tools(b, "one", "two").Tool("two").Workflow
		for b.Loop() {
			if _, err := r.Execute(b.Context(), w, json.RawMessage(`{"a":1}`), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
