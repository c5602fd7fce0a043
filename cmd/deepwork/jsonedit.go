package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// A jsonObject is the position of an object and its members in a JSON text.
type jsonObject struct {
	start, end int // of the braces: text[start] is '{', text[end-1] is '}'
	members    []jsonMember
}

// A jsonMember is one member of a jsonObject, as offsets into the text.
type jsonMember struct {
	key                  string
	keyStart, keyEnd     int
	valueStart, valueEnd int
}

// scanObject finds the members of the object that begins at or after offset.
// The text must be valid JSON.
func scanObject(text []byte, offset int) (*jsonObject, error) {
	d := json.NewDecoder(bytes.NewReader(text[offset:]))
	at := func() int { return offset + int(d.InputOffset()) }
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	o := &jsonObject{start: at() - 1}
	for d.More() {
		var m jsonMember
		from := at()
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		m.key = key.(string)
		m.keyStart, m.keyEnd = from+bytes.IndexByte(text[from:], '"'), at()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		m.valueStart, m.valueEnd = at()-len(value), at()
		o.members = append(o.members, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	o.end = at()
	return o, nil
}

// find returns the last member with a key, and how many there are.
func (o *jsonObject) find(key string) (m *jsonMember, n int) {
	for i := range o.members {
		if o.members[i].key == key {
			m = &o.members[i]
			n++
		}
	}
	return m, n
}

// A jsonStyle is the layout of an object's members.
type jsonStyle struct {
	before string // between a comma, or the brace, and a member's key
	after  string // between the last value and the closing brace
	colon  string // between a key and its value
	unit   string // one more level of indentation; "" if all is on one line
}

// style reads an object's style from its last member; an empty object takes its
// parent's, one level deeper.
func (o *jsonObject) style(text []byte, parent *jsonObject) jsonStyle {
	if len(o.members) == 0 {
		if parent == nil {
			return jsonStyle{before: "\n  ", after: "\n", colon: ": ", unit: "  "}
		}
		s := parent.style(text, nil)
		if s.unit == "" {
			s.before, s.after = strings.Trim(s.before, "\r\n"), ""
			return s
		}
		s.before, s.after = s.before+s.unit, s.before
		return s
	}
	last := o.members[len(o.members)-1]
	s := jsonStyle{
		before: string(text[o.gapBefore(text, last.keyStart):last.keyStart]),
		after:  string(text[last.valueEnd : o.end-1]),
		colon:  string(text[last.keyEnd:last.valueStart]),
	}
	inner, outer := lineIndent(s.before), lineIndent(s.after)
	if newline := strings.IndexByte(s.before, '\n'); newline >= 0 {
		s.unit = "  "
		if len(inner) > len(outer) && strings.HasPrefix(inner, outer) {
			s.unit = inner[len(outer):]
		}
		// Blank lines between members are not repeated within the new one.
		s.before = strings.TrimLeft(s.before[:newline+1], " \t") + inner
	}
	if len(o.members) == 1 && s.unit == "" && s.before == "" && s.colon != ":" {
		s.before = " " // { "a": 1 } does not show what follows a comma
	}
	return s
}

// gapBefore returns the start of the white space before offset.
func (o *jsonObject) gapBefore(text []byte, offset int) int {
	return len(bytes.TrimRight(text[:offset], " \t\r\n"))
}

// lineIndent returns the indentation of the line on which a gap ends.
func lineIndent(gap string) string { return gap[strings.LastIndexByte(gap, '\n')+1:] }

// insert returns the text with one more member at the end of the object. The given member is
// indented by two spaces per level, and is converted to the style.
func (o *jsonObject) insert(text []byte, member string, s jsonStyle) []byte {
	var b strings.Builder
	for i, line := range strings.Split(strings.ReplaceAll(member, ": ", s.colon), "\n") {
		content := strings.TrimLeft(line, " ")
		switch depth := (len(line) - len(content)) / 2; {
		case i == 0:
		case s.unit != "":
			b.WriteString(s.before + strings.Repeat(s.unit, depth))
		case depth > 0 && strings.HasSuffix(b.String(), ","):
			b.WriteString(s.before)
		}
		b.WriteString(content)
	}
	if len(o.members) == 0 {
		return splice(text, o.start+1, o.end-1, s.before+b.String()+s.after)
	}
	last := o.members[len(o.members)-1].valueEnd
	return splice(text, last, last, ","+s.before+b.String())
}

func splice(text []byte, from, to int, with string) []byte {
	return slices.Concat(text[:from], []byte(with), text[to:])
}
