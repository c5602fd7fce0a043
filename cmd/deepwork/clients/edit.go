package clients

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"deepwork/actor/durable"
)

// The results of writing a file.
const (
	Created  = "created"
	Kept     = "kept"
	Extended = "extended"
	Replaced = "replaced"
)

// MaxFile is the maximum size of a client's config in a project.
const MaxFile = 16 << 20

// Create writes a file, and creates the folders above it. It does not replace an existing file.
func Create(path string, data []byte) (done string, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("it is %s, not a file; move it away and try again", durable.Kind(info.Mode()))
	}

	if _, err := os.Lstat(path); err == nil {
		return Kept, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return Created, put(path, data, 0o644)
}

// put makes data the content of path atomically, even if the machine loses power.
func put(path string, data []byte, mode fs.FileMode) error {
	return durable.Disk{}.Put(path, data, durable.PutOptions{Temp: "." + filepath.Base(path) + ".*", Mode: mode})
}

// A LeftAloneError is a client's config file that cannot be edited safely and was not changed.
type LeftAloneError struct{ reason string }

// Error says why the file was not changed.
func (e *LeftAloneError) Error() string { return e.reason }

func leftAlone(format string, args ...any) error {
	return &LeftAloneError{fmt.Sprintf(format, args...)}
}

// Add adds an entry to the client's config of a project, and returns what was done. With replace it replaces an entry
// of the same name that starts another program or connects to another server. A *LeftAloneError means that the file
// cannot be edited safely.
func (c *Client) Add(root string, e Entry, replace bool) (done string, err error) {
	return AddTo(root, c.Path(root), e, replace)
}

// AddTo adds an entry to a file in a project, as Add does.
func AddTo(root, file string, e Entry, replace bool) (done string, err error) {
	if err := durable.Inside(root, file); err != nil {
		return "", leftAlone("%v", err)
	}

	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Create(file, []byte(e.Whole()))
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o200 == 0 {
		return "", leftAlone("it is not a regular file that can be written")
	}

	there, err := durable.ReadIn(root, file, MaxFile)
	if err != nil {
		return "", leftAlone("it cannot be read: %v", err)
	}
	text, has, err := e.addTo(there, replace)
	if err != nil {
		return "", err
	}
	if bytes.Equal(text, there) {
		return Kept, nil
	}

	target, err := filepath.EvalSymlinks(file) // a symlink remains one
	if err != nil {
		return "", err
	}

	done = Extended
	if has {
		done = Replaced
	}
	return done, put(target, text, info.Mode().Perm())
}

// addTo returns a config file's text with the entry in it: the same bytes around one insertion. A text that already has
// the server stays unchanged, unless its entry differs and replace is true. It also reports whether there was an entry.
// A *LeftAloneError means that it cannot edit the text.
func (e Entry) addTo(file []byte, replace bool) (out []byte, has bool, err error) {
	text, marked := bytes.CutPrefix(file, byteOrderMark)
	if e.key != "" && len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}

	before, err := e.decode(text)
	if err != nil {
		return nil, false, err
	}
	whole, err := e.decode([]byte(e.Whole()))
	if err != nil {
		return nil, false, err
	}

	key := cmp.Or(e.key, "mcp_servers")
	own := whole[key].(map[string]any)[e.name]
	servers, ok := before[key].(map[string]any)
	if _, has := before[key]; has && !ok {
		return nil, false, leftAlone("its %q is not an object", key)
	}
	there, has := servers[e.name]
	program := otherProgram(there)
	fields, _ := there.(map[string]any)
	if has && (reflect.DeepEqual(there, own) ||
		!e.required && program == "" && (!replace || fields["command"] != nil)) {
		return file, true, nil
	}

	if servers == nil {
		servers = map[string]any{}
		before[key] = servers
	}
	others := len(servers) > 0
	servers[e.name] = own // now before is what the file must say afterwards
	for _, edit := range e.edits(string(text), has, others) {
		if after, err := e.decode([]byte(edit)); err == nil && reflect.DeepEqual(before, after) {
			out = []byte(edit)
			break
		}
	}
	if marked {
		out = slices.Concat(byteOrderMark, out)
	}

	remedy := "run init with --replace to put this one in its place"
	if e.key == "" {
		remedy = "remove [mcp_servers." + e.name + "] first, since a table of TOML is not replaced"
	}
	switch {
	case out == nil && e.key != "":
		return nil, has, leftAlone("it has another form than expected: %q, or %q in it, is there twice", key, e.name)
	case out == nil && !has:
		return nil, has, leftAlone("it has another form than expected, with %s in a table of its own", key)
	case replace && e.key != "" || !has:
		return out, has, nil
	case program != "":
		return nil, has, leftAlone("its entry %q starts another program, %s; %s", e.name, program, remedy)
	case e.name != serverName:
		return nil, has, leftAlone("it has a %q of its own", e.name)
	}
	return nil, has, leftAlone("it has another entry of the name %q; %s", e.name, remedy)
}

// byteOrderMark begins the files of some editors.
var byteOrderMark = []byte("\ufeff")

// edits returns candidates for the file with the entry, the best laid out first.
func (e Entry) edits(text string, has, others bool) []string {
	if e.key == "" {
		return []string{e.appendTo(text)}
	}

	_, value, _ := strings.Cut(e.text, ": ")
	var oneLine bytes.Buffer
	_ = json.Compact(&oneLine, []byte(value)) // it is ours
	if has {
		at := gjson.Get(text, e.key+"."+e.name).Index
		line := text[strings.LastIndexByte(text[:at], '\n')+1 : at]
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		oneLine.Reset()
		oneLine.WriteString(strings.ReplaceAll(value, "\n", newlineOf(text)+indent))
	}
	object := strings.Trim(text, " \t\r\n") // sjson drops what stands around it
	before, after, _ := strings.Cut(text, object)
	set, err := sjson.SetRaw(object, e.key+"."+e.name, oneLine.String())
	set = before + set + after
	if err != nil || has {
		return []string{set}
	}
	return append(e.inserted(text, others), set)
}

// otherProgram returns the command of an entry that starts another program, or "". This program is the name deepwork,
// as PATH finds it, and the path of the running file.
func otherProgram(entry any) string {
	fields, _ := entry.(map[string]any)
	command, _ := fields["command"].(string)
	if name := strings.TrimSuffix(command, ".exe"); command == "" || name == serverName {
		return ""
	}
	if own, err := os.Executable(); err == nil {
		ours, err1 := os.Stat(own)
		theirs, err2 := os.Stat(command)
		if err1 == nil && err2 == nil && os.SameFile(ours, theirs) {
			return ""
		}
	}

	return strconv.Quote(command)
}

// decode decodes a config file. Its error is a *LeftAloneError.
func (e Entry) decode(text []byte) (v map[string]any, err error) {
	if e.key == "" {
		v = map[string]any{}
		if err := toml.Unmarshal(text, &v); err != nil {
			return nil, leftAlone("it cannot be parsed as TOML (%v)", err)
		}
		return v, nil
	}
	err = json.Unmarshal(text, &v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok || err == nil && v == nil {
		return nil, leftAlone("it is not a JSON object")
	}
	if err != nil {
		return nil, leftAlone("it cannot be parsed as JSON (%v), so whether it has the entry is not known", err)
	}
	return v, nil
}

// newlineOf returns how the lines of a text end.
func newlineOf(text string) string {
	if strings.Contains(text, "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// inlineServers matches servers in an inline table, which TOML does not let others extend.
var inlineServers = regexp.MustCompile(`(?m)^[ \t]*["']?mcp_servers["']?[ \t]*=`)

// appendTo appends the table to a text of TOML.
func (e Entry) appendTo(text string) string {
	if inlineServers.MatchString(text) { // the parser would take it, but others refuse it
		return text
	}

	newline, gap := newlineOf(text), ""
	if text != "" {
		gap = newline
		if !strings.HasSuffix(text, "\n") {
			gap += newline
		}
	}
	return text + gap + strings.ReplaceAll(e.text, "\n", newline)
}

// inserted returns a JSON text with the entry in it, for each of the expected layouts that it has.
func (e Entry) inserted(text string, others bool) (all []string) {
	if strings.TrimSpace(text) == "{}" {
		return []string{e.Whole()}
	}

	newline := newlineOf(text)
	indented := func(member, unit string, depth int) string { // member is indented by two spaces per level
		lines := strings.Split(member, "\n")
		for i, line := range lines {
			content := strings.TrimLeft(line, " ")
			lines[i] = strings.Repeat(unit, depth+(len(line)-len(content))/2) + content
		}
		return strings.Join(lines, newline)
	}

	key := regexp.MustCompile(`\n([ \t]+)` + regexp.QuoteMeta(strconv.Quote(e.key)) + `\s*:\s*\{(\}?)`)
	if at := key.FindStringSubmatchIndex(text); at != nil {
		unit, end := text[at[2]:at[3]], at[4]
		added := newline + indented(e.text, unit, 2)
		switch {
		case others:
			added += ","
		case at[4] < at[5]: // {} on the line
			added += newline + unit
		}
		all = append(all, text[:end]+added+text[end:])
	}

	if first := regexp.MustCompile(`\A\s*\{\s*?\n([ \t]+)`).FindStringSubmatchIndex(text); first != nil {
		member := strconv.Quote(e.key) + ": {\n  " + strings.ReplaceAll(e.text, "\n", "\n  ") + "\n},"
		all = append(all, text[:first[2]]+indented(member, text[first[2]:first[3]], 1)+newline+text[first[2]:])
	}
	return all
}
