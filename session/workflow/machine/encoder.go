package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"deepwork/catalog/jsontext"
)

// Encode returns the session's JSON as it is exported: keys in State's order and then the long texts by their
// hashes, indented by two spaces, ending in "\n}". Unchanged parts are not encoded again, so that a late step of a long workflow
// costs as much as the first.
func (s *State) Encode() ([]byte, error) { return s.AppendTo(nil) }

// AppendTo appends what Encode returns to a buffer.
func (s *State) AppendTo(buf []byte) ([]byte, error) {
	frame, err := s.encodeFrame()
	size := len(frame) + 8192
	for _, p := range s.StepProgress {
		size += len(p.Value.encoded) + 64
	}
	e := encoder{buf: slices.Grow(buf, size), frame: frame, err: err}
	e.list("step_progress", "{}", len(s.StepProgress), func(i int) []byte {
		p := s.StepProgress[i]
		e.buf = append(append(e.buf, jsontext.Quote(p.Key)...), ": "...)
		return e.part(p.Value.encode())
	})
	e.list("history", "[]", len(s.History), func(i int) []byte { return e.part(s.History[i].encode()) })
	e.list("replies", "[]", len(s.Replies), func(i int) []byte { return e.part(s.Replies[i].encode()) })
	if texts := s.longTexts(); texts != nil && e.err == nil {
		var body []byte
		body, e.err = indented(texts, "  ")
		e.frame = slices.Concat(bytes.TrimSuffix(e.frame, []byte("\n}")), []byte(",\n  \"texts\": "), body, []byte("\n}"))
	}
	if e.err != nil {
		return nil, fmt.Errorf("encoding session %s: %w", s.SessionID, e.err)
	}
	return append(e.buf, e.frame...), nil
}

// encodeFrame returns the JSON of a state without its lists.
func (s *State) encodeFrame() (frame []byte, err error) {
	if s.frame == nil {
		bare := *s
		bare.StepProgress, bare.History, bare.Replies = nil, nil, nil
		s.frame, err = indented(bare, "")
	}
	return s.frame, err
}

func (p *StepProgress) encode() ([]byte, error) { return cached(&p.encoded, p) }

func (w *Withdrawal) encode() ([]byte, error) { return cached(&w.encoded, w) }

func (r *StoredReply) encode() (_ []byte, err error) {
	if r.Raw == nil {
		if r.Raw, err = jsontext.Encode(r.Reply); err != nil {
			return nil, err
		}
	}
	return cached(&r.encoded, r)
}

// cached returns the indented JSON of an immutable part.
func cached(cache *[]byte, part any) (_ []byte, err error) {
	if *cache == nil {
		*cache, err = indented(part, "    ")
	}
	return *cache, err
}

// An encoder inserts lists, whose elements are cached, into the JSON of a State without them.
type encoder struct {
	buf   []byte
	frame []byte // what follows buf
	err   error
}

func (e *encoder) part(part []byte, err error) []byte {
	if e.err == nil {
		e.err = err
	}
	return part
}

// list replaces the empty list of a key. No text in the frame can look like the key, since a line
// break precedes it.
func (e *encoder) list(key, brackets string, n int, element func(i int) []byte) {
	key = "\n  \"" + key + "\": "
	before, after, _ := bytes.Cut(e.frame, []byte(key))
	e.buf = append(append(append(e.buf, before...), key...), brackets[0])
	for i := range n {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, "\n    "...)
		part := element(i)
		e.buf = append(e.buf, part...)
	}
	if n > 0 {
		e.buf = append(e.buf, "\n  "...)
	}
	e.buf = append(e.buf, brackets[1])
	e.frame = after[min(len(after), bytes.IndexAny(after, ",\n")):]
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
