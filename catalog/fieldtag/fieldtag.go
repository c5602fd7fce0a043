// Package fieldtag reads the tags of a struct's fields. Tags that are too long for the field's line are in a
// method of the struct.
package fieldtag

import "reflect"

// A Tagger is a struct with further tags of its fields, by the names of the fields in Go.
type Tagger interface{ Tags() map[string]string }

// Of returns the tags of a field that t has, by itself or through structs embedded in it.
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
