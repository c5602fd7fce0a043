package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"deepwork/catalog/jsontext"
)

// Encode returns the session file's JSON: keys in State's order, indented by two spaces, ending in
// "\n}". Unchanged parts are not encoded again, so that a late step of a long workflow costs as
// much as the first.
func (s *State) Encode() ([]byte, error) {
	bare := *s
	bare.StepProgress, bare.History, bare.Replies = nil, nil, nil
	frame, err := indented(bare, "")
	size := len(frame) + 8192
	for _, p := range s.StepProgress {
		size += len(p.Value.encoded) + 16
	}
	e := encoder{buf: make([]byte, 0, size), frame: frame, err: err}
	e.list("step_progress", "{}", len(s.StepProgress), func(i int) {
		p := s.StepProgress[i]
		e.cached(&p.Value.encoded, p.Key, p.Value)
	})
	e.list("history", "[]", len(s.History), func(i int) { e.cached(&s.History[i].encoded, "", s.History[i]) })
	e.list("replies", "[]", len(s.Replies), func(i int) {
		r := s.Replies[i]
		if r.Raw == nil && e.err == nil {
			r.Raw, e.err = jsontext.Encode(r.Reply)
		}
		e.cached(&r.encoded, "", r)
	})
	if e.err != nil {
		return nil, fmt.Errorf("encoding session %s: %w", s.SessionID, e.err)
	}
	return append(e.buf, e.frame...), nil
}

// An encoder inserts lists, whose elements are cached, into the JSON of a State without them.
type encoder struct {
	buf   []byte
	frame []byte // what follows buf
	err   error
}

// list replaces the empty list of a key. No text in the frame can look like the key, since a line
// break precedes it.
func (e *encoder) list(key, brackets string, n int, element func(i int)) {
	key = "\n  \"" + key + "\": "
	before, after, _ := bytes.Cut(e.frame, []byte(key))
	e.buf = append(append(append(e.buf, before...), key...), brackets[0])
	for i := range n {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, "\n    "...)
		element(i)
	}
	if n > 0 {
		e.buf = append(e.buf, "\n  "...)
	}
	e.buf = append(e.buf, brackets[1])
	e.frame = after[min(len(after), bytes.IndexAny(after, ",\n")):]
}

// cached appends the indented JSON of an immutable element, with its key, if any.
func (e *encoder) cached(cache *[]byte, key string, v any) {
	if *cache == nil && e.err == nil {
		*cache, e.err = indented(v, "    ")
		if key != "" && e.err == nil {
			*cache = slices.Concat(jsontext.Quote(key), []byte(": "), *cache)
		}
	}
	e.buf = append(e.buf, *cache...)
}

// indented returns the JSON of a value as a part of an indented file.
func indented(v any, prefix string) ([]byte, error) {
	raw, err := jsontext.Encode(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, prefix, "  "); err != nil {
		return nil, err
	}
	return slices.Clip(b.Bytes()), nil
}
