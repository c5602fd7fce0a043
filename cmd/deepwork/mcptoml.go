package main

import (
	"bytes"
	"reflect"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// inlineServers matches servers in an inline table, to which TOML adds none.
var inlineServers = regexp.MustCompile(`(?m)^[ \t]*["']?mcp_servers["']?[ \t]*=`)

// appendTable returns the text of a TOML config file with this server in it: the same bytes, with the
// entry after them. A text that already has the server is returned unchanged; one that cannot be
// parsed, or does not have the same values with the entry, is a *leftAloneError.
func appendTable(text []byte, entry mcpEntry) ([]byte, error) {
	before, err := decodeTOML(text)
	if err != nil {
		return nil, leftAlone("it cannot be parsed as TOML (%v)", err)
	}
	added, err := decodeTOML([]byte(entry.text))
	if err != nil {
		return nil, err
	}
	want := added["mcp_servers"].(map[string]any)[serverName]
	servers, ok := before["mcp_servers"].(map[string]any)
	if before["mcp_servers"] != nil && !ok {
		return nil, leftAlone("its mcp_servers is not a table")
	}
	if there, ok := servers[serverName]; ok {
		if entry.required && !reflect.DeepEqual(there, want) {
			return nil, leftAlone("it has another entry of the name %q, which must be removed first", serverName)
		}
		return text, nil
	}
	if inlineServers.Match(text) { // the parser would take it, but others refuse it
		return nil, leftAlone("a table cannot be added to its mcp_servers, which are inline")
	}
	newline := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		newline = "\r\n"
	}
	gap := ""
	if len(text) > 0 {
		gap = newline
		if !bytes.HasSuffix(text, []byte("\n")) {
			gap += newline
		}
	}
	out := append(bytes.Clone(text), gap+strings.ReplaceAll(entry.text, "\n", newline)...)
	after, err := decodeTOML(out)
	if err != nil {
		return nil, leftAlone("a table cannot be added to its mcp_servers (%v)", err)
	}
	delete(after["mcp_servers"].(map[string]any), serverName)
	if servers == nil {
		delete(after, "mcp_servers")
	}
	if !reflect.DeepEqual(before, after) {
		return nil, leftAlone("adding a table would change others")
	}
	return out, nil
}

func decodeTOML(text []byte) (v map[string]any, err error) {
	_, err = toml.Decode(string(text), &v)
	if v == nil {
		v = map[string]any{}
	}
	return v, err
}
