package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
)

// An Entry is one line of an attempt's log.
type Entry struct {
	Index  int64     `json:"index" jsonschema:"number of the entry, from 0, without gaps"`
	Time   time.Time `json:"time" jsonschema:"when it was written, RFC 3339"`
	Stream string    `json:"stream" jsonschema:"stdout, stderr, or system for messages of deepwork"`
	Text   string    `json:"text" jsonschema:"the line, without its line break"`
	Raw    string    `json:"raw,omitempty" jsonschema:"the line in base64, if text is not exactly that"`
	More   bool      `json:"more,omitempty" jsonschema:"true if no line feed follows"`
}

// newEntry returns the entry of a line as process.Lines has it, with its break, or of a message of deepwork.
func newEntry(index int64, at time.Time, stream string, line []byte) Entry {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	e := Entry{Index: index, Time: at, Stream: stream, Text: string(bytes.TrimSuffix(text, []byte("\r"))), More: !whole && stream != System}
	if len(e.Text) < len(text) || !utf8.Valid(text) {
		e.Raw = base64.StdEncoding.EncodeToString(text)
	}
	return e
}

// Bytes returns what was written: the line and, if it has ended, its break.
func (e *Entry) Bytes() []byte {
	line := []byte(e.Text)
	if raw, err := base64.StdEncoding.DecodeString(e.Raw); e.Raw != "" && err == nil {
		line = raw
	}
	if !e.More {
		line = append(line, '\n')
	}
	return line
}

// The streams of an Entry.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	System = "system"
)

// MaxLine is the longest text of an Entry in bytes; a longer line is split into several entries.
const MaxLine = 64 << 10

// appendEntry encodes an entry as one line of JSON that begins with the index, so that a reader can
// skip it without parsing. Invalid UTF-8 is replaced.
func appendEntry(dst []byte, e Entry) []byte {
	line, err := jsontext.Encode(e)
	if err != nil {
		panic(err) // the year is in range
	}
	return append(append(dst, line...), '\n')
}

// decodeEntry decodes a line.
func decodeEntry(line []byte) (e Entry, err error) {
	if err = json.Unmarshal(line, &e); err == nil && e.Stream != Stdout && e.Stream != Stderr && e.Stream != System {
		err = fmt.Errorf("unknown stream %q", e.Stream)
	}
	return e, err
}

// indexOf parses only the index of a line.
func indexOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"index":`))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest[:min(len(rest), 21)], []byte(","))
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(string(digits), 10, 64)
	return i, err == nil && i >= 0
}
