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

// An mcpEntry is this server's entry in a client's config file.
type mcpEntry struct {
	key      string // of the object that has the servers; "" means that the file is TOML
	text     string // the member, indented by two spaces per level; in TOML the table
	secret   bool   // it has a token in it: only the user may read the file
	required bool   // another entry of that name is not as good
}

// file returns a config file with only this entry.
func (e mcpEntry) file() string {
	if e.key == "" {
		return e.text
	}
	return "{\n  \"" + e.key + "\": {\n    " + strings.ReplaceAll(e.text, "\n", "\n    ") + "\n  }\n}\n"
}

const serverName = "deepwork"

// A leftAloneError is a client's config file that cannot be edited safely and was not changed.
type leftAloneError struct{ reason string }

func (e *leftAloneError) Error() string { return e.reason }

func leftAlone(format string, args ...any) error {
	return &leftAloneError{fmt.Sprintf(format, args...)}
}

// editConfig adds an entry to a client's config file of a project: a new file has the text whole, and
// edit returns the text of one that is there, the same if it needs no change. secret means that only
// the user may read it.
func editConfig(root, file, whole string, secret bool, edit func(there []byte) ([]byte, error)) (done string, err error) {
	mode := fs.FileMode(0o644)
	if secret {
		mode = 0o600
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(file); err == nil {
			return "", leftAlone("it is a symlink to a file that does not exist")
		}
		if err := durable.Inside(root, filepath.Dir(file)); err != nil {
			return "", leftAlone("its folder is a symlink that leads out of the project")
		}
		return createFileAs(file, []byte(whole), mode)
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
	text, err := edit(there)
	if err != nil {
		return "", err
	}
	if bytes.Equal(text, there) {
		return kept, nil
	}
	if err := durable.Inside(root, file); err != nil {
		return "", leftAlone("it is a symlink that leads out of the project")
	}
	if info.Mode().Perm()&0o200 == 0 {
		return "", leftAlone("it is read-only")
	}
	if secret {
		return "extended", replaceWith(file, text, mode)
	}
	return "extended", replaceFile(file, text)
}

// insertServer returns the text of a JSON config file with this server in it: the same bytes, with
// the entry after the last one of its servers, in the file's own style. A text that already has the
// server is returned unchanged; one that is ambiguous or not a JSON object is a *leftAloneError.
func insertServer(text []byte, entry mcpEntry) ([]byte, error) {
	if err := checkJSON(text); err != nil {
		return nil, leftAlone("it cannot be parsed as JSON (%v)", err)
	}
	top, err := scanObject(text, 0)
	if err != nil {
		return nil, leftAlone("it is not a JSON object")
	}
	servers, n := top.find(entry.key)
	switch n {
	case 0:
		servers := "\"" + entry.key + "\": {\n  " + strings.ReplaceAll(entry.text, "\n", "\n  ") + "\n}"
		return top.insert(text, servers, top.style(text, nil)), nil
	case 1:
	default:
		return nil, leftAlone("%q appears in it %d times", entry.key, n)
	}
	object, err := scanObject(text, servers.valueStart)
	if err != nil {
		return nil, leftAlone("its %q is not an object", entry.key)
	}
	if m, n := object.find(serverName); n > 0 {
		if entry.required && !sameJSON("{"+string(text[m.keyStart:m.valueEnd])+"}", "{"+entry.text+"}") {
			return nil, leftAlone("it has another entry of the name %q, which must be removed first", serverName)
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
