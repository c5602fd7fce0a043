// Quick is an agent that does nothing but finish its step, and starts as fast as a program can.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	session := ""
	call := func(body string) (answer string, err error) {
		r, err := http.NewRequest("POST", os.Getenv("DEEPWORK_MCP_URL"), strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header = http.Header{
			"Content-Type":         {"application/json"},
			"Accept":               {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2025-06-18"},
		}
		if token := os.Getenv("DEEPWORK_MCP_TOKEN"); token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer reply.Body.Close()
		if session == "" {
			session = reply.Header.Get("Mcp-Session-Id")
		}
		text, err := io.ReadAll(reply.Body)
		return string(text), err
	}
	answer := ""
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"quick","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"finished_step",`+
			`"arguments":{"session_id":%q,"step_id":%q,"outputs":{}}}}`,
			os.Getenv("DEEPWORK_SESSION_ID"), os.Getenv("DEEPWORK_STEP_ID")),
	} {
		var err error
		if answer, err = call(body); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if !strings.Contains(answer, `"status"`) && !strings.Contains(answer, `\"status\"`) {
		fmt.Println(answer)
		os.Exit(1)
	}
}
