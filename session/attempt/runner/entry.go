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
	Index  int64     `json:"index" jsonschema:"the entry's number, from 0, without gaps"`
	Time   time.Time `json:"time" jsonschema:"when it was written, RFC 3339"`
	Stream string    `json:"stream" jsonschema:"stdout, stderr, or system for what deepwork says of the run"`
	Text   string    `json:"text" jsonschema:"the line, without its line break"`
}

// The streams of an Entry.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	System = "system"
)

// MaxLine is the longest text of an Entry in bytes; a longer line is split into
// several entries.
const MaxLine = 64 << 10

// maxEncoded bounds an encoded entry: each byte of its text may need six.
const maxEncoded = 6*MaxLine + 200

// The encoded form of an entry is one line of JSON that begins with its index,
// so that a reader can skip without parsing: {"i":7,"t":"…","s":"o","x":"…"}.
const encodedHead = `{"i":`

var (
	streamCodes = map[string]byte{Stdout: 'o', Stderr: 'e', System: 's'}
	streamNames = map[string]string{"o": Stdout, "e": Stderr, "s": System}
)

// appendEntry encodes an entry and a line break. at is the time, as JSON.
func appendEntry(dst []byte, index int64, at []byte, stream byte, text []byte) []byte {
	dst = append(dst, encodedHead...)
	dst = strconv.AppendInt(dst, index, 10)
	dst = append(dst, `,"t":`...)
	dst = append(dst, at...)
	dst = append(dst, `,"s":"`...)
	dst = append(dst, stream)
	dst = append(dst, `","x":`...)
	dst = append(dst, jsontext.Quote(string(text))...) // what is not UTF-8 is replaced
	return append(dst, "}\n"...)
}

// decodeEntry decodes a line.
func decodeEntry(line []byte) (Entry, error) {
	var r struct {
		I int64     `json:"i"`
		T time.Time `json:"t"`
		S string    `json:"s"`
		X string    `json:"x"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Entry{}, err
	}
	name, ok := streamNames[r.S]
	if !ok {
		return Entry{}, fmt.Errorf("unknown stream %q", r.S)
	}
	return Entry{Index: r.I, Time: r.T, Stream: name, Text: r.X}, nil
}

// indexOf reads the index of a line and nothing else.
func indexOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(encodedHead))
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
