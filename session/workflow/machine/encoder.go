package machine

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// An encoder writes the indented object by hand around json.Marshal's values,
// because elements are taken from their caches and most fields are simple.
type encoder struct {
	buf   []byte
	inner bool // within an element: keys are indented deeper
	count int  // keys so far
	err   error
}

func (e *encoder) key(name string) {
	if e.count > 0 {
		e.buf = append(e.buf, ',')
	}
	e.count++
	indent := "\n  \""
	if e.inner {
		indent = "\n      \""
	}
	e.buf = append(append(append(e.buf, indent...), name...), "\": "...)
}

func (e *encoder) field(name string, v any) {
	e.key(name)
	if e.inner {
		e.value(v, "      ")
	} else {
		e.value(v, "  ")
	}
}

// object writes an element that is an object, by its fields.
func (e *encoder) object(fields func()) {
	outer := e.count
	e.count, e.inner = 0, true
	e.buf = append(e.buf, '{')
	fields()
	e.buf = append(e.buf, "\n    }"...)
	e.count, e.inner = outer, false
}

// progress writes what is known of a step; it is what json.Marshal gives.
func (e *encoder) progress(p *StepProgress) {
	e.object(func() {
		e.field("step_id", p.StepID)
		e.field("started_at", p.StartedAt)
		e.field("completed_at", p.CompletedAt)
		e.field("outputs", p.Outputs)
		e.field("notes", p.Notes)
		e.field("quality_attempts", p.QualityAttempts)
		e.field("unreported", p.Unreported)
		e.field("overrides", p.Overrides)
		e.field("attempts", p.Attempts)
	})
}

// reply writes a stored reply; it is what json.Marshal gives.
func (e *encoder) reply(r *StoredReply) {
	e.object(func() {
		e.field("tool", r.Tool)
		e.field("request_id", r.RequestID)
		e.field("args_digest", r.ArgsDigest)
		e.field("step_id", r.StepID)
		e.field("entry_index", r.EntryIndex)
		e.key("reply")
		e.indent(r.Raw, "      ")
		if r.Refusal != nil {
			e.field("error", r.Refusal)
		}
	})
}

func (e *encoder) string(s string) { e.value(s, "") }

func (e *encoder) value(v any, prefix string) {
	if e.err != nil {
		return
	}
	switch v := v.(type) { // what most fields are needs no reflection
	case string:
		if plain(v) {
			e.buf = append(append(append(e.buf, '"'), v...), '"')
			return
		}
	case *string:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
		e.value(*v, prefix)
		return
	case int:
		e.buf = strconv.AppendInt(e.buf, int64(v), 10)
		return
	case bool:
		e.buf = strconv.AppendBool(e.buf, v)
		return
	case time.Time:
		if v.Year() >= 0 && v.Year() < 10000 {
			e.buf = append(e.buf, '"')
			e.buf = append(v.AppendFormat(e.buf, time.RFC3339Nano), '"')
			return
		}
	case *time.Time:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
		e.value(*v, prefix)
		return
	case []Override:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
	case []*Attempt:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
	}
	raw, err := Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.indent(raw, prefix)
}

// indent appends a JSON value, indented where it has an inside.
func (e *encoder) indent(raw []byte, prefix string) {
	if e.err != nil {
		return
	}
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		e.buf = append(e.buf, raw...)
		return
	}
	out := bytes.NewBuffer(e.buf) // appends to it
	if e.err = json.Indent(out, raw, prefix, "  "); e.err == nil {
		e.buf = out.Bytes()
	}
}

// plain tells whether a string is its own JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func (e *encoder) open(b byte) { e.buf = append(e.buf, b) }

func (e *encoder) element(i int) {
	if i > 0 {
		e.buf = append(e.buf, ',')
	}
	e.buf = append(e.buf, "\n    "...)
}

func (e *encoder) close(b byte, n int) {
	if n > 0 {
		e.buf = append(e.buf, "\n  "...)
	}
	e.buf = append(e.buf, b)
}

// cached appends the indented JSON of an immutable element.
func (e *encoder) cached(cache *atomic.Pointer[[]byte], write func()) {
	if b := cache.Load(); b != nil {
		e.buf = append(e.buf, *b...)
		return
	}
	start := len(e.buf)
	write()
	if e.err == nil {
		b := slices.Clone(e.buf[start:])
		cache.Store(&b)
	}
}

// marshal is json.Marshal that leaves <, > and & readable.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
