package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"deepwork/actor/testkit"
)

func TestAdd(t *testing.T) {
	// entry is what is added, with a break before each line that is indented so far.
	entry := func(end, indent, unit string) string {
		return strings.Join([]string{`"deepwork": {`, unit + `"command": "deepwork",`,
			unit + `"args": ["serve", "--path", "."]`, `}`}, end+indent)
	}
	for in, want := range map[string]string{
		"{}\n": All[0].Stdio().Whole(),
		"{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"other\"}\n  },\n  \"z\": 1,\n  \"a\": [1, " +
			"2]\n}\n": "{\n  \"mcpServers\": {\n    " + entry("\n", "    ", "  ") +
			",\n    \"other\": {\"command\": \"other\"}\n  },\n  \"z\": 1,\n  \"a\": [1, 2]\n}\n",
		"{\r\n\t\"inputs\": []\r\n}\r\n": "{\r\n\t\"mcpServers\": {\r\n\t\t" +
			entry("\r\n", "\t\t", "\t") + "\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n",
		"{\n    \"mcpServers\": {},\n    \"x\": null\n}": "{\n    \"mcpServers\": {\n        " +
			entry("\n", "        ", "    ") + "\n    },\n    \"x\": null\n}",
		"{\n  \"mcpServers\": {\n  }\n}": "{\n  \"mcpServers\": {\n    " +
			entry("\n", "    ", "  ") + "\n  }\n}",
		`{"mcpServers":{"deepwork":{"command":"deepwork",` +
			`"args":[]}}}`: `{"mcpServers":{"deepwork":{"command":"deepwork","args":[]}}}`,
	} {
		got, _, err := All[0].Stdio().addTo([]byte(in), false)
		testkit.Must(t, err)
		testkit.Equal(t, string(got), want, "%q", in)
		again, _, err := All[0].Stdio().addTo(got, false)
		testkit.True(t, err == nil && bytes.Equal(again, got), "the second time: %v\n%s", err, again)
	}
}

func TestAddLeavesAlone(t *testing.T) {
	for in, want := range map[string]string{
		"{\n// no\n}": "cannot be parsed",
		`{"a": 1,}`:   "cannot be parsed",
		`{"a": 1} x`:  "cannot be parsed",
		`[]`:          "not a JSON object",
		`{"mcpServers":{"deepwork":{"command":"uvx"}}}`: `starts another program, "uvx"`,
		`null`:                 "not a JSON object",
		`{"mcpServers": []}`:   `"mcpServers" is not an object`,
		`{"mcpServers": null}`: `"mcpServers" is not an object`,
		"{\n  \"mcpServers\": {},\n  \"mcpServers\": {}\n}": "another form",
		strings.Repeat("[", 20_000):                         "cannot be parsed",
	} {
		got, _, err := All[0].Stdio().addTo([]byte(in), false)
		_, ok := err.(*LeftAloneError)
		testkit.True(t, ok && strings.Contains(err.Error(), want),
			"addTo(%.40q) = %q, %v; want a *LeftAloneError with %q", in, got, err, want)
	}
}

// The entry is added to any valid config, and everything else in it stays.
func TestAddToAnyForm(t *testing.T) {
	for _, in := range []string{
		"", " \n", "{}", "\ufeff{}\r\n", "\ufeff{\n  \"a\": 1\n}\n", `{"mcpServers":{"a":{"command":"a"}}}`,
		`{"a": [1, "é"], "b": {}}`,
		"{\n \"a\": {\n  \"mcpServers\": {}\n }\n}", "\n{\n\n  \"mcpServers\":\n  {\n    \"a\": {}\n  }\n}",
		"{ \"mcpServers\" : { } }",
	} {
		out, _, err := All[0].Stdio().addTo([]byte(in), false)
		testkit.Works(t, err, "%q", in)
		testkit.Equal(t, strings.HasPrefix(string(out), "\ufeff"), strings.HasPrefix(in, "\ufeff"),
			"%q: the byte order mark", in)

		want := map[string]any{}
		if text := strings.TrimSpace(strings.TrimPrefix(in, "\ufeff")); text != "" {
			testkit.Must(t, json.Unmarshal([]byte(text), &want))
		}
		servers, _ := want["mcpServers"].(map[string]any)
		if servers == nil {
			servers = map[string]any{}
		}
		servers["deepwork"] = map[string]any{"command": "deepwork", "args": []any{"serve", "--path", "."}}
		want["mcpServers"] = servers
		var got map[string]any
		testkit.Works(t, json.Unmarshal(bytes.TrimPrefix(out, byteOrderMark), &got), "%q", out)
		testkit.Same(t, got, want, "%q became %q", in, out)
	}
}

// --replace is proposed only where it helps.
func TestRemedyOfAnotherEntry(t *testing.T) {
	const entry = `"mcpServers":{"deepwork":{"command":"uvx"}}`
	for in, helps := range map[string]bool{"{" + entry + "}": true, "{" + entry + ", " + entry + "}": false} {
		_, _, err := All[0].Stdio().addTo([]byte(in), false)
		testkit.Equal(t, strings.Contains(err.Error(), "--replace"), helps, "%s: %v", in, err)
		_, _, err = All[0].Stdio().addTo([]byte(in), true)
		testkit.Equal(t, err == nil, helps, "%s: %v", in, err)
	}
}

// An entry that starts another program is replaced when asked: its value alone changes.
func TestReplace(t *testing.T) {
	own, err := os.Executable()
	testkit.Must(t, err)
	for in, want := range map[string]string{
		`{"deepwork": 1, "mcpServers": {"a": {"deepwork": {}}, "deepwork": {"command": "python"}}, "z": ` +
			`1}`: "{\"deepwork\": 1, \"mcpServers\": {\"a\": {\"deepwork\": {}}, \"deepwork\": {\n  \"command\": " +
			"\"deepwork\",\n  \"args\": [\"serve\", \"--path\", \".\"]\n}}, \"z\": 1}",
		"{\r\n\t\"mcpServers\": {\r\n\t\t\"deepwork\": {\"command\": " +
			"\"uvx\"}\r\n\t}\r\n}": "{\r\n\t\"mcpServers\": {\r\n\t\t\"deepwork\": {\r\n\t\t  \"command\": " +
			"\"deepwork\",\r\n\t\t  \"args\": [\"serve\", \"--path\", \".\"]\r\n\t\t}\r\n\t}\r\n}",
		`{"mcpServers":{"deepwork":{"type":"http","url":"http://h/"}}}`: "{\"mcpServers\":{\"deepwork\":{\n  " +
			"\"command\": \"deepwork\",\n  \"args\": [\"serve\", \"--path\", \".\"]\n}}}",
		`{"mcpServers": {"deepwork": {"command": ` + strconv.Quote(own) + `}}}`:             "",
		`{"mcpServers": {"deepwork": {"command": "deepwork", "args": ["serve", "--pin"]}}}`: "",
	} {
		if want == "" {
			want = in // a person's own entry of this program stays
		}
		out, has, err := All[0].Stdio().addTo([]byte(in), true)
		testkit.Need(t, err == nil, "%q becomes %q, %v, %v; want %q", in, out, has, err, want)
		testkit.Need(t, has, "%q becomes %q, %v, %v; want %q", in, out, has, err, want)
		testkit.Equal(t, string(out), want, "%q becomes %q, %v, %v; want %q", in, out, has, err, want)
	}

	for _, replace := range []bool{false, true} {
		_, _, err := Named("codex").Stdio().addTo([]byte("[mcp_servers.deepwork]\ncommand = \"uvx\"\n"), replace)
		testkit.Need(t, err != nil, "a table of TOML: %v", err)
		testkit.Contains(t, err.Error(), "remove [mcp_servers.deepwork] first", "a table of TOML: %v", err)
		testkit.True(t, !strings.Contains(err.Error(), "--replace"), "a table of TOML: %v", err)
	}
}

// FuzzAddToJSON holds the promise of init: what was in the file is still
// there, byte for byte around one insertion, and the server is in it.
func FuzzAddToJSON(f *testing.F) {
	for _, seed := range []string{
		"{}", `{"mcpServers":{}}`, "{\n\t\"mcpServers\" : {\n\t\t\"a\" :{}\n\t}\n}",
		`{"a":"{\"","mcpServers":{"b\"":[{}]}}`,
		"{\"a\":1\n,\"b\":2}", ` { "mcpServers" : { } , "n" : -1.5e3 } `, `{"mcpServers":{"deepwork":null}}`,
		" {\"a\":0}", "{\n\r\"x\" :{}}\t",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, in []byte) {
		if in = bytes.TrimPrefix(in, byteOrderMark); len(bytes.TrimSpace(in)) == 0 {
			return
		}
		out, before, after := added(t, All[0].Stdio(), in, json.Unmarshal)
		if out == nil {
			return
		}
		servers, _ := before["mcpServers"].(map[string]any)
		if servers == nil {
			servers = map[string]any{}
			before["mcpServers"] = servers
		}
		servers["deepwork"] = map[string]any{"command": "deepwork", "args": []any{"serve", "--path", "."}}
		testkit.Need(t, reflect.DeepEqual(before, after), "%q became %q", in, out)

		again, _, err := All[0].Stdio().addTo(out, false)
		testkit.Need(t, err == nil && bytes.Equal(again, out), "%q: not the same the second time: %v", out, err)

		prefix := 0
		for prefix < len(in) && in[prefix] == out[prefix] {
			prefix++
		}
		testkit.Need(t, bytes.HasSuffix(out, in[prefix:]) || strings.TrimSpace(string(in)) == "{}",
			"%q became %q: more than one insertion", in, out)
	})
}

// added adds an entry to a file, and returns that and what it held before and holds now; nothing if it was not changed.
func added(
	t *testing.T, entry Entry, in []byte, parse func([]byte, any) error,
) (out []byte, before, after map[string]any) {
	out, _, err := entry.addTo(in, false)
	if err != nil || bytes.Equal(in, out) {
		return nil, nil, nil
	}
	testkit.Need(t, parse(in, &before) == nil, "edited a file that does not parse: %q", in)
	testkit.Need(t, parse(out, &after) == nil, "%q became %q", in, out)
	return out, before, after
}

// FuzzAddToTOML holds the same promise for TOML: every byte of the file is still there, its values are the same, and
// the server is in it.
func FuzzAddToTOML(f *testing.F) {
	for _, seed := range []string{
		"", " ", "\ufeff ", "a = 1", "a = 1\r\n",
		"[mcp_servers.other]\ncommand = \"x\"\n", "[[a]]\nb = 2\n", "mcp_servers = 1\n",
		"[mcp_servers]\n", "mcp_servers.other.command = \"x\"\n", "mcp_servers = {}\n", "a = \"\"\"\n",
		"[mcp_servers]\ndeepwork = 1\n",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, in []byte) {
		out, before, after := added(t, Named("codex").Stdio(), in, toml.Unmarshal)
		if out == nil {
			return
		}
		testkit.Need(t, bytes.HasPrefix(out, in), "%q became %q", in, out)

		servers := after["mcp_servers"].(map[string]any)
		testkit.Need(t, servers["deepwork"] != nil, "%q became %q, without the server", in, out)
		delete(servers, "deepwork")
		if before["mcp_servers"] == nil {
			delete(after, "mcp_servers")
		}
		testkit.Need(t, len(before)+len(after) <= 0 || reflect.DeepEqual(before, after), "%q became %q", in, out)
	})
}

// The token of a server is in no file: an entry names a variable where the server does not know its callers.
func TestHTTPNamesTheVariable(t *testing.T) {
	for address, want := range map[string]bool{
		"http://127.0.0.1:8000/mcp":     false,
		"https://host.example:8000/mcp": true,
	} {
		u := testkit.Get(url.Parse(address)).Must(t)
		for _, c := range All {
			e, named := c.HTTP(u, true)
			testkit.True(t, named == want && strings.Contains(e.Whole(), TokenVariable) == want, "%s, %s: %v, %s",
				c.Name, address, named, e.Whole())
			e, named = c.HTTP(u, false)
			testkit.True(t, named && strings.Contains(e.Whole(), TokenVariable),
				"%s, %s, where nobody knows the callers: %v, %s", c.Name, address, named, e.Whole())
		}
	}
}

// A config file is made, extended or left alone on disk; what a link leads to is edited in its place.
func TestAddToAFile(t *testing.T) {
	c := &All[0]
	root := testkit.Dir(t)
	file := c.Path(root)
	add := func(replace bool) (string, error) { return c.Add(root, c.Stdio(), replace) }
	testkit.Equal(t, testkit.Get(add(false)).Must(t), Created)
	testkit.Equal(t, string(testkit.Get(os.ReadFile(file)).Must(t)), c.Stdio().Whole())
	testkit.Equal(t, testkit.Get(add(true)).Must(t), Kept)
	testkit.Must(t, errors.Join(os.WriteFile(file, []byte("{}\n"), 0o640), os.Chmod(file, 0o640)))
	testkit.Equal(t, testkit.Get(add(false)).Must(t), Extended)

	info := testkit.Get(os.Stat(file)).Must(t)
	testkit.True(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o640, "the mode is %v", info.Mode())
	testkit.Must(t, os.WriteFile(file, []byte(`{"mcpServers":{"deepwork":{"command":"uvx"}}}`), 0o600))
	testkit.Fails(t, testkit.Get(add(false)).Err(), "starts another program")
	testkit.Equal(t, testkit.Get(add(true)).Must(t), Replaced)
	testkit.Must(t, os.Rename(file, filepath.Join(root, "elsewhere")))
	testkit.Must(t, os.WriteFile(filepath.Join(root, "elsewhere"), []byte("{}"), 0o600))
	testkit.Must(t, os.Symlink(filepath.Join(root, "elsewhere"), file))
	testkit.Equal(t, testkit.Get(add(false)).Must(t), Extended)
	testkit.Contains(t, string(testkit.Get(os.ReadFile(filepath.Join(root, "elsewhere"))).Must(t)), "deepwork")
	testkit.True(t, testkit.Get(os.Lstat(file)).Must(t).Mode()&os.ModeSymlink != 0, "the link was replaced")

	outside := filepath.Join(testkit.Dir(t), "x.json")
	for what, plant := range map[string]func() error{
		"leads out":             func() error { return os.Symlink(outside, file) },
		"is not a regular file": func() error { return os.Mkdir(file, 0o700) },
		"cannot be written":     func() error { return os.WriteFile(file, []byte("{}"), 0o400) },
	} {
		testkit.Must(t, errors.Join(os.RemoveAll(file), os.WriteFile(outside, []byte("{}"), 0o600)))
		testkit.Must(t, plant())
		_, err := add(false)
		testkit.True(t, err != nil && errors.As(err, new(*LeftAloneError)), "%s: %v", what, err)
	}
	testkit.Equal(t, string(testkit.Get(os.ReadFile(outside)).Must(t)), "{}")

	made := filepath.Join(root, "a", "b")
	for _, want := range []string{Created, Kept} {
		testkit.Equal(t, testkit.Get(Create(made, []byte("x"))).Must(t), want)
	}
	testkit.Fails(t, testkit.Get(Create(filepath.Join(root, "a"), nil)).Err(), "not a file; move it away")

	for _, name := range Names() {
		sse := testkit.Get(url.Parse("http://h/sse")).Must(t)
		testkit.Equal(t, Named(name).Speaks(testkit.Get(url.Parse("http://h/mcp")).Must(t)), true,
			"%s speaks HTTP", name)
		testkit.Equal(t, Named(name).Speaks(sse), Named(name).sseKey != "", "%s speaks SSE", name)
	}
	testkit.Equal(t, Named("none"), nil)
}
