package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
)

// newMCPFile is a .mcp.json with only this server (seed 001 "Example MCP Configuration").
const newMCPFile = `{
  "mcpServers": {
    "deepwork": {
      "command": "deepwork",
      "args": ["serve", "--path", "."]
    }
  }
}
`

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
func addServer(file string) (done string, err error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(file); err == nil {
			return "", leftAlone("it is a symlink to a file that does not exist")
		}
		return createFile(file, []byte(newMCPFile))
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
	text, err := insertServer(there)
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
	return "extended", replaceFile(file, text)
}

// insertServer returns the text of a .mcp.json with this server in it: the same bytes, with the
// entry after the last one of mcpServers, in the file's own style. A text that already has the
// server is returned unchanged; one that is ambiguous or not a JSON object is a *leftAloneError.
func insertServer(text []byte) ([]byte, error) {
	if err := checkJSON(text); err != nil {
		return nil, leftAlone("it cannot be parsed as JSON (%v)", err)
	}
	top, err := scanObject(text, 0)
	if err != nil {
		return nil, leftAlone("it is not a JSON object")
	}
	const entry = "\"deepwork\": {\n  \"command\": \"deepwork\",\n  \"args\": [\"serve\", \"--path\", \".\"]\n}"
	servers, n := top.find(serversKey)
	switch n {
	case 0:
		servers := "\"mcpServers\": {\n  " + strings.ReplaceAll(entry, "\n", "\n  ") + "\n}"
		return top.insert(text, servers, top.style(text, nil)), nil
	case 1:
	default:
		return nil, leftAlone("%q stands in it %d times", serversKey, n)
	}
	object, err := scanObject(text, servers.valueStart)
	if err != nil {
		return nil, leftAlone("its %q is not an object", serversKey)
	}
	if _, n := object.find(serverName); n > 0 {
		return text, nil
	}
	return object.insert(text, entry, object.style(text, top)), nil
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
