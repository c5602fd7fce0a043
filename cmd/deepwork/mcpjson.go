package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"deepwork/actor/durable"
)

// stdioEntry is the entry of a server that the client starts (seed 001 "Example MCP Configuration").
var stdioEntry = mcpEntry{text: `"deepwork": {
  "command": "deepwork",
  "args": ["serve", "--path", "."]
}`}

// An mcpEntry is this server's entry in a .mcp.json.
type mcpEntry struct {
	text     string // the member, indented by two spaces per level
	secret   bool   // it has a token in it: only the user may read the file
	required bool   // another entry of that name is not as good
}

// file returns a .mcp.json with only this entry.
func (e mcpEntry) file() string {
	return "{\n  \"mcpServers\": {\n    " + strings.ReplaceAll(e.text, "\n", "\n    ") + "\n  }\n}\n"
}

const (
	serversKey = "mcpServers"
	serverName = "deepwork"
)

// A leftAloneError is a .mcp.json that cannot be edited safely and was not changed.
type leftAloneError struct{ reason string }

func (e *leftAloneError) Error() string { return e.reason }

func leftAlone(format string, args ...any) error {
	return &leftAloneError{fmt.Sprintf(format, args...)}
}

// addServer adds this server to the file unless it is there. All other bytes stay the same, since
// the entry is inserted into the text.
func addServer(file string, entry mcpEntry) (done string, err error) {
	mode := fs.FileMode(0o644)
	if entry.secret {
		mode = 0o600
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(file); err == nil {
			return "", leftAlone("it is a symlink to a file that does not exist")
		}
		return createFileAs(file, []byte(entry.file()), mode)
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", leftAlone("it is not a regular file")
	}
	there, err := os.ReadFile(file)
	if err != nil {
		return "", leftAlone("it cannot be read: %v", err)
	}
	text, err := insertServer(there, entry)
	if err != nil {
		return "", err
	}
	if bytes.Equal(text, there) {
		return kept, nil
	}
	if err := durable.Inside(filepath.Dir(file), file); err != nil {
		return "", leftAlone("it is a symlink that leads out of the project")
	}
	if info.Mode().Perm()&0o200 == 0 {
		return "", leftAlone("it is read-only")
	}
	if entry.secret {
		return "extended", replaceWith(file, text, mode)
	}
	return "extended", replaceFile(file, text)
}

// insertServer returns the text of a .mcp.json with this server in it: the same bytes, with the
// entry after the last one of mcpServers, in the file's own style. A text that already has the
// server is returned unchanged; one that is ambiguous or not a JSON object is a *leftAloneError.
func insertServer(text []byte, entry mcpEntry) ([]byte, error) {
	if err := checkJSON(text); err != nil {
		return nil, leftAlone("it cannot be parsed as JSON (%v)", err)
	}
	top, err := scanObject(text, 0)
	if err != nil {
		return nil, leftAlone("it is not a JSON object")
	}
	servers, n := top.find(serversKey)
	switch n {
	case 0:
		servers := "\"mcpServers\": {\n  " + strings.ReplaceAll(entry.text, "\n", "\n  ") + "\n}"
		return top.insert(text, servers, top.style(text, nil)), nil
	case 1:
	default:
		return nil, leftAlone("%q appears in it %d times", serversKey, n)
	}
	object, err := scanObject(text, servers.valueStart)
	if err != nil {
		return nil, leftAlone("its %q is not an object", serversKey)
	}
	if m, n := object.find(serverName); n > 0 {
		if entry.required && !sameJSON("{"+string(text[m.keyStart:m.valueEnd])+"}", "{"+entry.text+"}") {
			return nil, leftAlone("it has another entry of the name %q, which this would replace", serverName)
		}
		return text, nil
	}
	return object.insert(text, entry.text, object.style(text, top)), nil
}

// checkJSON returns why a text is not exactly one JSON value, with the line.
func checkJSON(text []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(text, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		upTo := text[:min(int(syntax.Offset), len(text))]
		return fmt.Errorf("line %d: %w", 1+bytes.Count(upTo, []byte("\n")), err)
	}
	return err
}

// sameJSON reports whether two texts have the same value.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
