// Package outputs has the values that steps hand in and workflows start with: paths, lists of paths and texts. It
// checks them by their declarations, and words them for replies and lists.
package outputs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
)

// A Map has the values of outputs, or of inputs, by name, in the author's order.
type Map = jsontext.OrderedMap[Value]

// A Value is one path, a list of paths, or a text, as submitted.
type Value struct {
	Paths []string
	List  bool
	Text  *string // nil means paths
	// Each has the values of all items of a for_each's step, in order; nil for items without a value.
	Each []*Value

	hash string // of a text that was not read yet; see Resolve
}

// A textValue is a text in a record: the text itself or, if it is long, its hash.
type textValue struct {
	Text   *string `json:"text,omitempty"`
	SHA256 string  `json:"sha256,omitempty"`
}

// MarshalJSON returns a string or an array of strings for paths, and {"text": "…"} for a text, or {"sha256":
// "…"} if it is kept by its hash. Replies have plain strings; see Plain.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.Each != nil {
		return jsontext.Encode(v.Each)
	}

	switch {
	case v.Text != nil && isLong(*v.Text):
		return jsontext.Encode(textValue{SHA256: session.Digest(*v.Text)})
	case v.Text != nil:
		return jsontext.Encode(textValue{Text: v.Text})
	}
	if !v.List {
		if len(v.Paths) != 1 {
			return nil, fmt.Errorf("a file output has %d paths", len(v.Paths))
		}
		return jsontext.Encode(v.Paths[0])
	}
	if v.Paths == nil {
		return []byte("[]"), nil
	}
	return jsontext.Encode(v.Paths)
}

// UnmarshalJSON reads what MarshalJSON returns.
func (v *Value) UnmarshalJSON(data []byte) error {
	*v = Value{}
	switch jsontext.First(data) {
	case '"':
		v.Paths = make([]string, 1)
		return json.Unmarshal(data, &v.Paths[0])
	case '{':
		var text textValue
		err := json.Unmarshal(data, &text)
		if err == nil && (text.Text == nil) == (text.SHA256 == "") {
			err = errors.New("a value has neither or both of text and sha256")
		}
		v.Text, v.hash = text.Text, text.SHA256
		return err
	}

	var paths []*string
	if json.Unmarshal(data, &paths) != nil || slices.Contains(paths, nil) { // the values of a list's items
		return json.Unmarshal(data, &v.Each)
	}
	v.List, v.Paths = true, make([]string, len(paths))
	for i, path := range paths {
		v.Paths[i] = *path
	}

	return nil
}

// Walk calls f with a value and those of its items.
func (v *Value) Walk(f func(*Value)) {
	f(v)
	for _, one := range v.Each {
		if one != nil {
			one.Walk(f)
		}
	}
}

// Long returns the hash of a text that is so long that records keep it by that, or "".
func (v *Value) Long() string {
	if v.Text == nil || !isLong(*v.Text) {
		return ""
	}
	return session.Digest(*v.Text)
}

// Resolve fills in the text of a value that was read with its hash alone.
func (v *Value) Resolve(texts map[string]string) (err error) {
	if v.hash == "" {
		return nil
	}

	text, kept := texts[v.hash]
	switch {
	case !kept:
		err = fmt.Errorf("its text %s is missing", v.hash)
	case session.Digest(text) != v.hash:
		err = fmt.Errorf("its text %s has another hash than its name", v.hash)
	}
	v.Text, v.hash = &text, ""
	return err
}

// Flat returns the values of all items as one value: a JSON list for type string, otherwise a list of paths.
func (v Value) Flat(as job.OutputType) Value {
	if as == job.Text {
		if list, err := Plain(Map{{Value: v}})[0].Value.MarshalJSON(); err == nil {
			return Value{Text: new(string(list))}
		}
	}
	return Value{List: true, Paths: v.Strings()}
}

// Strings returns the paths and texts of a value, of all items.
func (v Value) Strings() (all []string) {
	for _, one := range v.Each {
		if one != nil {
			all = append(all, one.Strings()...)
		}
	}
	if v.Text != nil {
		all = append(all, *v.Text)
	}
	return append(all, v.Paths...)
}

// Shown returns a value as lists show it: a text, or the values of items, in one shortened line.
func (v Value) Shown() string {
	if v.Each != nil {
		return shortened(strings.Join(v.Strings(), ", "))
	}
	if v.Text == nil {
		return strings.Join(v.Paths, ", ")
	}
	return shortened(*v.Text)
}

func shortened(text string) string {
	line := strings.Join(strings.Fields(jsontext.Clip(text, 4*maxShownText)), " ")
	short := jsontext.Clip(line, maxShownText)
	if n := utf8.RuneCountInString(text); short != line || n > 4*maxShownText {
		return fmt.Sprintf("%s (%d characters)", short, n)
	}
	return short
}

// Plain returns values in the form of arguments and replies: texts are plain strings.
func Plain(all Map) Map { return PlainWithin(all, math.MaxInt) }

// PlainWithin is Plain with a limit on the bytes of all texts; it shortens texts that exceed it.
func PlainWithin(all Map, room int) Map {
	plain := slices.Clone(all)
	for i, o := range plain {
		plain[i].Value = o.Value.plain(&room)
	}
	return plain
}

// plain returns the value in the form of replies; room is how many bytes of text are left.
func (v Value) plain(room *int) Value {
	if v.Each != nil {
		each := slices.Clone(v.Each)
		for i, one := range each {
			if one != nil {
				each[i] = new(one.plain(room))
			}
		}
		return Value{Each: each}
	}
	if v.Text == nil {
		return v
	}
	text := *v.Text
	if len(text) > *room {
		text = shortened(text)
	} else {
		*room -= len(text)
	}
	return Value{Paths: []string{text}}
}
