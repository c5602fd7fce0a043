package yamltree

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"deepwork/actor/xslices"
	"deepwork/catalog/fieldtag"
	"deepwork/catalog/jsontext"
)

// A Decoder decodes one file and collects its errors. After an error it continues with the rest. Beyond
// MaxDiagnostics it only counts errors, so that a hostile file costs neither time nor memory.
type Decoder struct {
	File string // the file's name in diagnostics
	// Lenient makes null an absent value, as in a file whose entries are commented out.
	Lenient bool
	Texts   map[string]Text // rules for texts, by their names in tags
	Forms   map[string]Form // forms of values, by their names in tags
	// Foreign reports an error for a key with the tag own, which this file may not have; flag is the text of
	// the tag. A nil Foreign accepts all keys.
	Foreign func(v Value, flag string)

	lines            [][]byte   // of the file
	root             *yaml.Node // of the document
	path             []any      // of the value being decoded: keys and indices
	faults, warnings list
}

// A Text is a rule for texts: it returns the text, perhaps normalized, or an error with the remedy.
type Text func(s string) (string, error)

// A Form decodes a value into the variable that to points to.
type Form func(d *Decoder, v Value, to any)

// Decode decodes a value into the variable that to points to. Its type says what is expected: a
// bool, an int, a float64, a time.Duration (a number of seconds, or a text like 90s), a string, a
// slice (a list), a map (a mapping of any keys), a pointer (set if the value is present and without
// error), or a struct (a mapping of the keys that its tags name; others are refused). A slice of
// structs one field of which is tagged yaml:",key" is a mapping of any keys, in the author's order;
// its other fields are the mapping below, or the value if one is tagged yaml:",value".
//
// A field without the tag yaml is not decoded, and one whose key is absent keeps its value. More
// tags of a field:
//
//	add       the key is required; how to add it
//	is        what is expected, for messages: "a list of steps"
//	as        the name of a rule of its text, or of the form of its value
//	each      as, for the items of a list and the values of a mapping
//	keys      the name of a rule of the keys of a mapping
//	oneof     the texts that are allowed, separated by commas
//	min, max  the bounds of a number or duration
//	zero      what a duration of 0 means, which then may be below min
//	nonempty  a list or mapping needs an item; how to add one
//	default   the value of a text or bool whose key is absent
//	unique    the structs of a list differ in this text
//	written   numbers and booleans count as texts, as written; so they do in a map[string]string
//	own       see Decoder.Foreign
func (d *Decoder) Decode(v Value, to any) {
	d.decode(v, reflect.ValueOf(to).Elem(), &field{item: true})
}

func (d *Decoder) decode(v Value, to reflect.Value, f *field) {
	if d.Lenient && IsNull(v.Target()) && !f.item {
		return
	}
	if form := d.Forms[f.as]; form != nil {
		form(d, v, to.Addr().Interface())
		return
	}
	if f.as != "" && to.Kind() != reflect.String && to.Kind() != reflect.Pointer {
		panic("yamltree has no form " + f.as)
	}

	switch to.Kind() {
	case reflect.Pointer:
		faults, target := d.Faults(), reflect.New(to.Type().Elem())
		d.decode(v, target.Elem(), f)
		if d.Faults() == faults {
			to.Set(target)
		}
	case reflect.Struct:
		d.mapping(v, to)
	case reflect.Map:
		d.anyKeys(v, to, f)
	case reflect.Slice:
		if elem := to.Type().Elem(); elem.Kind() == reflect.Struct && shapeOf(elem).key != nil {
			d.anyKeys(v, to, f)
		} else {
			d.list(v, to, f)
		}
	default:
		d.scalar(v, to, f)
	}
}

// mapping decodes a mapping into a struct.
func (d *Decoder) mapping(v Value, to reflect.Value) {
	s, n := shapeOf(to.Type()), v.Target()
	switch {
	case d.Lenient && IsNull(n):
		n = new(yaml.Node)
	case n.Kind != yaml.MappingNode || n.Style&yaml.TaggedStyle != 0:
		if _, ok := d.Is(v, yaml.MappingNode, "a mapping with the keys "+strings.Join(s.names(), ", ")); !ok {
			return
		}
	}

	for _, f := range s.fields {
		if f.fallback == "" {
			continue
		}
		if to := to.FieldByIndex(f.index); to.Kind() == reflect.Bool {
			to.SetBool(f.fallback == "true")
		} else {
			to.SetString(f.fallback)
		}
	}

	lines := make([]int, len(s.fields)) // of each key; 0 means absent
	for key, value := range d.pairs(n) {
		i := s.index(key.Value)
		if i < 0 && !d.Full() {
			near := jsontext.Nearest(visible(key.Value), s.names())
			d.within(key.Value, func() { d.unknownKey(key, near, s) })
			// If the key is misspelled, report only that: the value is given, and references to it are valid.
			given := slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Value == near })
			if near != "" && !given {
				key.Value, i = near, s.index(near)
			}
		}
		switch {
		case i < 0:
		case lines[i] > 0:
			d.repeated(key, lines[i])
		default:
			lines[i] = key.Line
			d.within(key.Value, func() { d.field(Value{key, value}, to, s.fields[i]) })
		}
	}
	for i, f := range s.fields {
		if f.add != "" && lines[i] == 0 {
			d.Fault(v.At(), "%s is missing: add %s", f.name, f.add)
		}
	}
}

func (d *Decoder) unknownKey(key *yaml.Node, near string, s *shape) {
	if near != "" {
		d.Fault(At(key), "unknown key: did you mean %s?", near)
		return
	}
	d.Fault(At(key), "unknown key; the keys here are %s", strings.Join(s.names(), ", "))
}

// field decodes the value of a key into a struct's field.
func (d *Decoder) field(v Value, of reflect.Value, f *field) {
	if f.own && d.Foreign != nil {
		if n := v.Target(); !IsNull(n) && (n.Kind != yaml.SequenceNode || len(n.Content) > 0) {
			d.Foreign(v, f.flag)
		}
		return
	}
	d.decode(v, of.FieldByIndex(f.index), f)
}

// anyKeys decodes a mapping of any keys into a map, or into a slice of structs with the key as a
// field.
func (d *Decoder) anyKeys(v Value, to reflect.Value, f *field) {
	elem := to.Type().Elem()
	all := reflect.Zero(to.Type())
	ok := d.Mapping(v, cmp.Or(f.is, "a mapping of names to texts"), func(v Value) {
		if rule := d.rule(f.keys); rule != nil {
			if _, err := rule(v.Key.Value); err != nil {
				d.Fault(At(v.Key), "%v", err)
			}
		}

		item := reflect.New(elem).Elem()
		if to.Kind() == reflect.Map {
			d.decode(v, item, f.elem)
			if all.IsNil() {
				all = reflect.MakeMap(to.Type())
			}
			all.SetMapIndex(reflect.ValueOf(v.Key.Value), item)
			return
		}

		s := shapeOf(elem)
		item.FieldByIndex(s.key.index).SetString(v.Key.Value)
		if s.value != nil {
			d.decode(v, item.FieldByIndex(s.value.index), s.value)
		} else {
			d.mapping(v, item)
		}
		all = reflect.Append(all, item)
	})
	if ok {
		d.fill(v, to, all, f)
	}
}

// list decodes a list into a slice.
func (d *Decoder) list(v Value, to reflect.Value, f *field) {
	n, ok := d.Is(v, yaml.SequenceNode, cmp.Or(f.is, "a list of texts"))
	if !ok {
		return
	}

	all := reflect.Zero(to.Type())
	if len(n.Content) > 0 {
		all = reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content))
	}
	for i, c := range n.Content {
		d.within(i, func() { d.decode(Self(c), all.Index(i), f.elem) })
	}

	if elem := to.Type().Elem(); elem.Kind() == reflect.Struct {
		for _, f := range shapeOf(elem).fields {
			if f.unique {
				d.differ(all, f)
			}
		}
	}
	d.fill(v, to, all, f)
}

// fill sets a variable to the items of a list or mapping.
func (d *Decoder) fill(v Value, to, all reflect.Value, f *field) {
	if all.Len() == 0 && f.nonempty != "" {
		d.Fault(v.At(), "is empty: %s", f.nonempty)
	}
	to.Set(all)
}

// differ reports structs in a list that have the same text in a field.
func (d *Decoder) differ(all reflect.Value, f *field) {
	first := make(map[string]int, all.Len())
	for i := range all.Len() {
		text := all.Index(i).FieldByIndex(f.index).String()
		k, twice := first[text]
		if !twice {
			first[text] = i
		} else if text != "" && !d.Full() {
			of := slices.Concat(d.path, []any{k})
			d.FaultAt(slices.Concat(d.path, []any{i, f.name}), "%s is the %s of %s too, in line %d: give each its own",
				Quote(text), f.name, pathText(of), d.Find(append(of, f.name)...).At().Line)
		}
	}
}

// A shape is what the tags of a struct say.
type shape struct {
	fields     []*field // the keys
	key, value *field   // nil, or those of yaml:",key" and yaml:",value"
}

// index returns the index of a key's field, or -1.
func (s *shape) index(name string) int {
	return slices.IndexFunc(s.fields, func(f *field) bool { return f.name == name })
}

// names returns the keys in the order of the fields.
func (s *shape) names() []string {
	return xslices.Map(s.fields, func(f *field) string { return f.name })
}

// A field is what the tags of a field say; see Decode. The zero field is for a plain variable.
type field struct {
	name, add, is, as, keys    string
	min, max, zero             string
	oneof                      []string
	nonempty, fallback, flag   string
	unique, written, own, item bool
	index                      []int
	elem                       *field // of the items
}

var shapes sync.Map // of *shape, by reflect.Type

// shapeOf returns the shape of a type of structs.
func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}

	s := &shape{}
	for _, v := range reflect.VisibleFields(t) {
		v.Tag = fieldtag.Of(t, v)
		name, tagged := v.Tag.Lookup("yaml")
		if !tagged {
			continue
		}
		f := &field{
			name:     name,
			add:      v.Tag.Get("add"),
			is:       v.Tag.Get("is"),
			as:       v.Tag.Get("as"),
			keys:     v.Tag.Get("keys"),
			min:      v.Tag.Get("min"),
			max:      v.Tag.Get("max"),
			zero:     v.Tag.Get("zero"),
			nonempty: v.Tag.Get("nonempty"),
			fallback: v.Tag.Get("default"),
			index:    v.Index,
		}
		f.flag, f.own = v.Tag.Lookup("own")
		_, f.unique = v.Tag.Lookup("unique")
		_, f.written = v.Tag.Lookup("written")
		if texts := v.Tag.Get("oneof"); texts != "" {
			f.oneof = strings.Split(texts, ",")
		}
		f.elem = &field{
			as:      v.Tag.Get("each"),
			min:     f.min,
			max:     f.max,
			oneof:   f.oneof,
			item:    true,
			written: f.written || v.Type.Kind() == reflect.Map,
		}
		f.elem.elem = f.elem
		switch name {
		case ",key":
			s.key = f
		case ",value":
			f.item = true
			s.value = f
		default:
			s.fields = append(s.fields, f)
		}
	}

	actual, _ := shapes.LoadOrStore(t, s)
	return actual.(*shape)
}
