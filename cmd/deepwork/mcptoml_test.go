package main

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzAppendTable holds the promise of init for TOML: every byte of the file is still there, its values
// are the same, and the server is in it.
func FuzzAppendTable(f *testing.F) {
	for _, seed := range []string{
		"", "a = 1", "a = 1\r\n", "[mcp_servers.other]\ncommand = \"x\"\n", "[[a]]\nb = 2\n", "mcp_servers = 1\n",
		"[mcp_servers]\n", "mcp_servers.other.command = \"x\"\n", "mcp_servers = {}\n", "a = \"\"\"\n", "[mcp_servers]\ndeepwork = 1\n",
	} {
		f.Add([]byte(seed))
	}
	entry := clientNamed("codex").stdio()
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := appendTable(in, entry)
		if err != nil || bytes.Equal(in, out) {
			return
		}
		if !bytes.HasPrefix(out, in) {
			t.Fatalf("%q became %q", in, out)
		}
		before, err := decodeTOML(in)
		if err != nil {
			t.Fatalf("edited a file that does not parse: %v", err)
		}
		after, err := decodeTOML(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		servers := after["mcp_servers"].(map[string]any)
		if servers[serverName] == nil {
			t.Fatalf("%q became %q, without the server", in, out)
		}
		delete(servers, serverName)
		if before["mcp_servers"] == nil {
			delete(after, "mcp_servers")
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}
