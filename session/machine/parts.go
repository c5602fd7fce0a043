package machine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// A PartKind says to which list of a State a part belongs.
type PartKind string

// The values of PartKind.
const (
	StepPart       PartKind = "step"       // of StepProgress; the key is the step's id
	WithdrawalPart PartKind = "withdrawal" // of History; the key is the index
	ReplyPart      PartKind = "reply"      // of Replies; the key is the revision that the call made
	TextPart       PartKind = "text"       // a long text; the key is its hash
)

// A Part is one element of a State's lists. A store keeps each part in its own row, so that a transition
// writes only what it changed.
type Part struct {
	Kind     PartKind
	Key      string
	Position int64  // the order within a list; may have gaps
	Body     []byte // JSON
}

// Parts returns the JSON of a state without its lists, and the parts of the lists.
func (s *State) Parts() (frame []byte, all []Part, err error) {
	frame, all, _, err = s.Changes(&State{})
	return frame, all, err
}

// Changes returns the JSON of a state without its lists, the parts that differ from those of an earlier
// state, and the removed parts, without bodies. Parts that both states share are recognized by address,
// without comparing them.
func (s *State) Changes(before *State) (frame []byte, put, gone []Part, err error) {
	if frame, err = s.encodeFrame(); err != nil {
		return nil, nil, nil, fmt.Errorf("encoding session %s: %w", s.SessionID, err)
	}

	add := func(kind PartKind, key string, position int64, body []byte, failed error) {
		put = append(put, Part{kind, key, position, body})
		if failed != nil {
			err = fmt.Errorf("encoding session %s: %w", s.SessionID, failed)
		}
	}
	for i, p := range s.StepProgress {
		if i >= len(before.StepProgress) || before.StepProgress[i].Value != p.Value {
			body, err := p.Value.encode()
			add(StepPart, p.Key, int64(i), body, err)
		}
	}

	for i, p := range before.StepProgress {
		// with many items, nearly all have kept their position
		there := i < len(s.StepProgress) && s.StepProgress[i].Key == p.Key
		if !there && s.Progress(p.Key) == nil {
			gone = append(gone, Part{Kind: StepPart, Key: p.Key})
		}
	}

	for i, w := range s.History {
		if i >= len(before.History) || before.History[i] != w {
			body, err := w.encode()
			add(WithdrawalPart, strconv.Itoa(i), int64(i), body, err)
		}
	}
	for _, r := range s.Replies {
		if !slices.Contains(before.Replies, r) {
			body, err := r.encode()
			add(ReplyPart, strconv.FormatInt(r.Revision, 10), r.Revision, body, err)
		}
	}
	for _, r := range before.Replies {
		if !slices.ContainsFunc(s.Replies, func(o *StoredReply) bool { return o.Revision == r.Revision }) {
			gone = append(gone, Part{Kind: ReplyPart, Key: strconv.FormatInt(r.Revision, 10)})
		}
	}

	texts, unused, failed := s.textChanges(before)
	if failed != nil {
		return nil, nil, nil, fmt.Errorf("encoding session %s: %w", s.SessionID, failed)
	}
	return frame, append(put, texts...), append(gone, unused...), err
}

// Assemble is the inverse of Parts. It validates the state as Decode does.
func Assemble(id string, frame []byte, parts []Part) (*State, error) {
	s, texts := new(State), map[string]string{}
	if err := json.Unmarshal(frame, s); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}

	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(a.Position, b.Position) })
	for _, part := range parts {
		var err error
		switch part.Kind {
		case StepPart:
			p := new(StepProgress)
			err = json.Unmarshal(part.Body, p)
			s.StepProgress = append(s.StepProgress, jsontext.Pair[*StepProgress]{Key: part.Key, Value: p})
		case WithdrawalPart:
			w := new(Withdrawal)
			err = json.Unmarshal(part.Body, w)
			s.History = append(s.History, w)
		case ReplyPart:
			r := new(StoredReply)
			err = json.Unmarshal(part.Body, r)
			s.Replies = append(s.Replies, r)
		case TextPart:
			var text string
			err = json.Unmarshal(part.Body, &text)
			texts[part.Key] = text
		default:
			err = fmt.Errorf("unknown kind")
		}
		if err != nil {
			return nil, fmt.Errorf("reading session %s, %s %s: %w", id, part.Kind, part.Key, err)
		}
	}

	return s.checked(id, texts)
}

// checked returns a decoded state with its long texts, or an error if it cannot be used.
func (s *State) checked(id string, texts map[string]string) (*State, error) {
	if why := s.unusable(id); len(why) > 0 {
		return nil, fmt.Errorf("reading session %s: %s", id, why[0])
	}
	if err := s.setTexts(texts); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	return s, nil
}

// Decode decodes a session's JSON, such as an export, and validates it.
func Decode(id string, data []byte) (*State, error) {
	var head struct {
		FormatVersion int               `json:"format_version"`
		Texts         map[string]string `json:"texts"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	if head.FormatVersion > FormatVersion {
		return nil, session.NotNow(codes.SessionTooNew,
			"Session '%s' was written by a newer deepwork (file format %d, this program knows %d). It was left "+
				"untouched; use that version, or a newer one.",
			id, head.FormatVersion, FormatVersion).With("session_id", id)
	}

	s := new(State)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	return s.checked(id, head.Texts)
}

// Encode returns the session's JSON as it is exported: keys in State's order, then the long texts by their
// hashes, indented by two spaces, ending in "\n}". Unchanged parts are not encoded again, so a late step of a
// long workflow costs no more than the first.
func (s *State) Encode() ([]byte, error) { return s.AppendTo(nil) }

// AppendTo appends the result of Encode to a buffer.
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
		e.frame = slices.Concat(bytes.TrimSuffix(e.frame, []byte("\n}")), []byte(",\n  \"texts\": "), body,
			[]byte("\n}"))
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
		bare.StepProgress = nil
		bare.History = nil
		bare.Replies = nil
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

// An encoder inserts lists of cached elements into the JSON of a State without them.
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

// list replaces the empty list of a key. No text in the frame can look like the key, which follows a line
// break.
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
