package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"deepwork/catalog/jsontext"
)

// An Entry is one line of an attempt's log.
type Entry struct {
	Index  int64     `json:"index" jsonschema:"number of the entry, from 0, without gaps"`
	Time   time.Time `json:"time" jsonschema:"when it was written, RFC 3339"`
	Stream string    `json:"stream" jsonschema:"stdout, stderr, or system for messages of deepwork"`
	Text   string    `json:"text" jsonschema:"the line, without its line break"`
}

// The streams of an Entry.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	System = "system"
)

// MaxLine is the longest text of an Entry in bytes; a longer line is split into several entries.
const MaxLine = 64 << 10

// An encoded entry is one line that begins with the index, so that a reader can skip without
// parsing: {"i":7,"t":"…","s":"o","x":"…"}.
type encoded struct {
	Index  int64     `json:"i"`
	Time   time.Time `json:"t"`
	Stream string    `json:"s"`
	Text   string    `json:"x"`
}

var (
	streamCodes = map[string]string{Stdout: "o", Stderr: "e", System: "s"}
	streamNames = map[string]string{"o": Stdout, "e": Stderr, "s": System}
)

// appendEntry encodes an entry and a line break. Invalid UTF-8 is replaced.
func appendEntry(dst []byte, e Entry) []byte {
	line, err := jsontext.Encode(encoded{e.Index, e.Time, streamCodes[e.Stream], e.Text})
	if err != nil {
		panic(err) // the year is in range
	}
	return append(append(dst, line...), '\n')
}

// decodeEntry decodes a line.
func decodeEntry(line []byte) (Entry, error) {
	var r encoded
	if err := json.Unmarshal(line, &r); err != nil {
		return Entry{}, err
	}
	name, ok := streamNames[r.Stream]
	if !ok {
		return Entry{}, fmt.Errorf("unknown stream %q", r.Stream)
	}
	return Entry{r.Index, r.Time, name, r.Text}, nil
}

// indexOf parses only the index of a line.
func indexOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"i":`))
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
