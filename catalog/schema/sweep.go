package schema

import (
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxKept is the number of errors after which no further items or members of a value are checked.
const maxKept = 10 * maxViolations

// A sweep checks the items and members of a value in place of the validator, which would check them all and keep
// the errors of each: several gigabytes for an array of 10 MB. A sweep stops at maxKept errors.
type sweep struct {
	names       *jsonschema.Schema
	properties  map[string]*jsonschema.Schema // checked by the validator
	patterns    map[jsonschema.Regexp]*jsonschema.Schema
	others      any                // schema of other members, false if there may be none, or nil
	items       *jsonschema.Schema // of the items from that at the index first
	first       int
	contains    *jsonschema.Schema
	least, most *int // number of items that match contains
	marks       bool // the items that match contains count as evaluated
}

// sweepParts makes sweeps of the keywords for items and members of a schema.
func sweepParts(s *jsonschema.Schema) {
	w := &sweep{names: s.PropertyNames, contains: s.Contains, least: s.MinContains, most: s.MaxContains,
		marks: s.DraftVersion >= 2020, first: len(items(s))}
	s.PropertyNames, s.Contains = nil, nil

	if _, ok := s.AdditionalProperties.(*jsonschema.Schema); ok || len(s.PatternProperties) > 0 {
		w.properties = s.Properties
		w.patterns = s.PatternProperties
		w.others = s.AdditionalProperties
		s.PatternProperties, s.AdditionalProperties = nil, nil
	}

	all, uniform := s.Items.(*jsonschema.Schema)
	rest, _ := s.AdditionalItems.(*jsonschema.Schema)
	switch {
	case s.Items2020 != nil:
		w.items, s.Items2020 = s.Items2020, nil
	case uniform:
		w.items, s.Items = all, nil
		s.AdditionalItems = nil // it applies only after a list of schemas
	case rest != nil:
		w.items, s.AdditionalItems = rest, nil
	}

	if w.names != nil || w.contains != nil || w.items != nil || w.patterns != nil || w.others != nil {
		s.Extensions = append(s.Extensions, w)
	}
}

// Validate implements jsonschema.SchemaExt.
func (w *sweep) Validate(ctx *jsonschema.ValidatorContext, value any) {
	switch v := value.(type) {
	case []any:
		w.checkItems(ctx, v)
		if w.contains != nil {
			w.checkContains(ctx, v)
		}
	case map[string]any:
		w.checkMembers(ctx, v)
		if w.names != nil {
			w.checkNames(ctx, v)
		}
	}
}

// check checks an item or a member, and returns the number of errors that it kept.
func check(ctx *jsonschema.ValidatorContext, s *jsonschema.Schema, value any, at string) int {
	err := ctx.Validate(s, value, []string{at})
	if err == nil {
		return 0
	}
	ctx.AddErr(err)
	return leaves(err.(*jsonschema.ValidationError))
}

// leaves counts the errors without causes in a tree of errors.
func leaves(e *jsonschema.ValidationError) (n int) {
	for _, cause := range e.Causes {
		n += leaves(cause)
	}
	return max(n, 1)
}

func (w *sweep) checkItems(ctx *jsonschema.ValidatorContext, items []any) {
	kept := 0
	for i := w.first; w.items != nil && i < len(items) && kept < maxKept; i++ {
		kept += check(ctx, w.items, items[i], strconv.Itoa(i))
	}
}

func (w *sweep) checkContains(ctx *jsonschema.ValidatorContext, items []any) {
	var matched []int
	for i, item := range items {
		if ctx.Validate(w.contains, item, []string{strconv.Itoa(i)}) != nil {
			continue
		}
		matched = append(matched, i)
		if w.marks {
			ctx.EvaluatedItem(i)
		}
	}

	switch {
	case w.least == nil && len(matched) == 0:
		ctx.AddError(&kind.Contains{})
	case w.least != nil && len(matched) < *w.least:
		ctx.AddError(&kind.MinContains{Got: matched, Want: *w.least})
	}
	if w.most != nil && len(matched) > *w.most {
		ctx.AddError(&kind.MaxContains{Got: matched, Want: *w.most})
	}
}

func (w *sweep) checkMembers(ctx *jsonschema.ValidatorContext, object map[string]any) {
	if w.patterns == nil && w.others == nil {
		return
	}

	var unknown []string
	kept := 0
	for name, member := range object {
		if kept >= maxKept {
			break
		}

		_, known := w.properties[name]
		for pattern, s := range w.patterns {
			if pattern.MatchString(name) {
				known = true
				ctx.EvaluatedProp(name)
				kept += check(ctx, s, member, name)
			}
		}
		if known {
			continue
		}
		switch others := w.others.(type) {
		case *jsonschema.Schema:
			kept += check(ctx, others, member, name)
		case bool:
			if !others {
				unknown = append(unknown, name)
			}
		}
	}
	if unknown != nil {
		ctx.AddError(&kind.AdditionalProperties{Properties: unknown})
	}
}

func (w *sweep) checkNames(ctx *jsonschema.ValidatorContext, object map[string]any) {
	kept := 0
	for name := range object {
		if w.names.Validate(name) == nil {
			continue
		}
		ctx.AddErr(&jsonschema.ValidationError{SchemaURL: w.names.Location,
			InstanceLocation: slices.Clone(ctx.ValueLocation()), ErrorKind: &kind.PropertyNames{Property: name}})
		kept++
		if kept == maxKept {
			return
		}
	}
}
