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
	"regexp"
	"strconv"
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

// insertServer returns the text of a JSON config file with this server in it: the same bytes, with the
// entry before the other servers. It knows the form that clients and people write, with each member on
// lines of its own. A text that already has the server is returned unchanged; one of another form is a
// *leftAloneError.
func insertServer(text []byte, entry mcpEntry) ([]byte, error) {
	before, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	own, err := decodeJSON([]byte("{" + entry.text + "}"))
	if err != nil {
		return nil, err
	}
	servers, is := before[entry.key].(map[string]any)
	if _, has := before[entry.key]; has && !is {
		return nil, leftAlone("its %q is not an object", entry.key)
	}
	if there, has := servers[serverName]; has {
		if entry.required && !reflect.DeepEqual(there, own[serverName]) {
			return nil, leftAlone("it has another entry of the name %q, which must be removed first", serverName)
		}
		return text, nil
	}
	out := entry.insert(string(text), len(servers) > 0)
	if servers == nil {
		servers = map[string]any{}
		before[entry.key] = servers
	}
	servers[serverName] = own[serverName]
	if after, err := decodeJSON([]byte(out)); err != nil || !reflect.DeepEqual(before, after) {
		return nil, leftAlone("it has another form than expected, with %q on a line of its own", entry.key)
	}
	return []byte(out), nil
}

// insert inserts the entry where a text has the expected form.
func (e mcpEntry) insert(text string, others bool) string {
	if strings.TrimSpace(text) == "{}" {
		return e.file()
	}
	newline := "\n"
	if strings.Contains(text, "\r\n") {
		newline = "\r\n"
	}
	indented := func(member, unit string, depth int) string { // which is indented by two spaces per level
		lines := strings.Split(member, "\n")
		for i, line := range lines {
			content := strings.TrimLeft(line, " ")
			lines[i] = strings.Repeat(unit, depth+(len(line)-len(content))/2) + content
		}
		return strings.Join(lines, newline)
	}
	key := regexp.MustCompile(`\n([ \t]+)` + regexp.QuoteMeta(strconv.Quote(e.key)) + `: \{(\}?)`)
	if at := key.FindStringSubmatchIndex(text); at != nil {
		unit, end := text[at[2]:at[3]], at[4]
		added := newline + indented(e.text, unit, 2)
		switch {
		case others:
			added += ","
		case at[4] < at[5]: // {} on the line
			added += newline + unit
		}
		return text[:end] + added + text[end:]
	}
	first := regexp.MustCompile(`\A\{\r?\n([ \t]+)`).FindStringSubmatchIndex(text)
	if first == nil {
		return text
	}
	member := strconv.Quote(e.key) + ": {\n  " + strings.ReplaceAll(e.text, "\n", "\n  ") + "\n},"
	return text[:first[2]] + indented(member, text[first[2]:first[3]], 1) + newline + text[first[2]:]
}

// decodeJSON decodes the object that a text is. Its error is a *leftAloneError.
func decodeJSON(text []byte) (v map[string]any, err error) {
	err = json.Unmarshal(text, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		upTo := text[:min(int(syntax.Offset), len(text))]
		return nil, leftAlone("it cannot be parsed as JSON (line %d: %v)", 1+bytes.Count(upTo, []byte("\n")), err)
	}
	if err != nil || v == nil {
		return nil, leftAlone("it is not a JSON object")
	}
	return v, nil
}
