// Package fieldtag reads the tags of a struct's fields. A method of the struct has the tags that are too long
// for the field's line.
package fieldtag

import "reflect"

// A Tagger is a struct with additional tags for its fields, by the fields' Go names.
type Tagger interface{ Tags() map[string]string }

// Of returns the tags of a field of t, including those that t's method Tags, or that of an embedded struct,
// adds.
func Of(t reflect.Type, f reflect.StructField) reflect.StructTag {
	if n := len(f.Index) - 1; n > 0 {
		t = t.FieldByIndex(f.Index[:n]).Type
	}

	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	owner, ok := reflect.Zero(t).Interface().(Tagger)
	if !ok {
		return f.Tag
	}
	return f.Tag + " " + reflect.StructTag(owner.Tags()[f.Name])
}
